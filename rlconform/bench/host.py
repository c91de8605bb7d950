"""Describes the machine that measures, and times how fast it copies memory."""

from __future__ import annotations

import os
import platform
import time
from pathlib import Path

import psutil
import torch

from rlconform._versions import installed_versions
from rlconform.bench.document import Host

#: Packages whose versions influence the figures.
PACKAGES = ("torch", "tensordict", "numpy", "ray")


def describe_host() -> Host:
    """Return a description of the machine and its current load."""
    kernel = ".".join(platform.release().split(".")[:2])
    return Host(
        cpu=_cpu(),
        cores=len(os.sched_getaffinity(0)),
        memory_gib=round(psutil.virtual_memory().total / 2**30, 1),
        system=f"{platform.system()} {kernel}, {platform.machine()}",
        versions={"python": platform.python_version()} | installed_versions(PACKAGES),
        load_at_start=round(os.getloadavg()[0], 2),
    )


def _cpu() -> str:
    """Return the CPU model, or the architecture where the kernel reports no model."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text("utf-8").splitlines() if info.exists() else []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.machine())


class MemcpyTimer:
    """Times copies of ``size`` bytes in one thread, which is what a plane's processes use."""

    def __init__(self, size: int) -> None:
        # Ray gives each worker one thread; with two the copy would not be comparable.
        torch.set_num_threads(1)
        self._source = torch.ones(size, dtype=torch.uint8)
        self._target = torch.zeros(size, dtype=torch.uint8)

    def time_copies(self) -> tuple[float, float]:
        """Return the seconds of a copy into touched memory, and of one into fresh memory."""
        self._target.copy_(self._source)  # this process was idle: warm the caches
        start = time.perf_counter()
        self._target.copy_(self._source)
        copied = time.perf_counter()
        fresh = self._source.clone()
        cloned = time.perf_counter()
        del fresh
        return copied - start, cloned - copied
