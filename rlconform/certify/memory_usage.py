"""Measures the memory that a plane holds, as the Linux kernel counts it."""

from __future__ import annotations

import gc
from pathlib import Path

import psutil


def plane_bytes() -> int:
    """Memory of this process and all its child processes, in bytes.

    A page shared by n processes counts 1/n for each. Pages of files are left out: this process's
    share of torch's libraries grows whenever another process on the machine ends.
    """
    gc.collect()
    own = psutil.Process()
    return sum(held_bytes(process.pid) for process in [own, *own.children(recursive=True)])


def held_bytes(pid: int) -> int:
    """Anonymous and shared memory of a process, in bytes; 0 if the process has ended."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text("ascii").splitlines()
    except OSError:
        return 0
    kib = {name: value.split()[0] for name, _, value in (line.partition(":") for line in lines)}
    kinds: list[str] = [kind for kind in ("Pss_Anon", "Pss_Shmem") if kind in kib]
    return sum(int(kib[kind]) for kind in kinds or ["Pss"]) << 10  # old kernels only have the sum
