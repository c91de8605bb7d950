"""Rays that one process starts one after another get workers of the same worker server."""

from __future__ import annotations

import subprocess
import sys

import pytest

SCRIPT = """
import os
import ray
from rlconform.backends import ray_worker_server as servers
from rlconform.backends.ray_runtime import ensure_ray

servers.start_separate_server()
for _ in range(2):
    with ensure_ray():
        parent = ray.get(ray.remote(lambda: os.getppid()).remote(), timeout=60)
        print("forked" if parent in servers._SERVERS else "started")
"""


@pytest.mark.timeout(180)
def test_a_second_ray_has_forked_workers_too() -> None:
    """A worker that took itself for one of the first raylet would end with it, and tasks wait."""
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=False, timeout=150
    )
    assert done.stdout.split() == ["forked", "forked"], done.stderr
