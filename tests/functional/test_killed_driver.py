"""Nothing of a local Ray outlives the process that started it."""

from __future__ import annotations

import subprocess
import sys
from contextlib import suppress

import psutil
import pytest

#: Seconds for the end of Ray's processes, on a busy machine. Ray's own agents take 60 s and more.
GONE_S = 40.0
DRIVER = """
import ray
from rlconform.backends.ray_runtime import ensure_ray

class Actor:
    def answer(self):
        return True

with ensure_ray():
    actor = ray.remote(Actor).remote()
    print(ray.get(actor.answer.remote(), timeout=60), flush=True)
    input()
"""


def name_of(process: psutil.Process) -> str:
    """Return the name of a process; "" if it has ended."""
    try:
        return process.name()
    except psutil.NoSuchProcess:
        return ""


@pytest.mark.timeout(180)
def test_the_processes_of_a_ray_end_soon_after_its_driver_was_killed() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", DRIVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as driver:
        assert driver.stdout is not None
        assert driver.stdout.readline() == "True\n"
        family = psutil.Process(driver.pid).children(recursive=True)
        names = {process: name_of(process) for process in family}
        driver.kill()
    _, left = psutil.wait_procs(family, GONE_S)
    for process in left:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    assert "raylet" in names.values()
    assert [names[process] for process in left] == []
