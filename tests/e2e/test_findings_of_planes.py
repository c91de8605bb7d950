"""The reproducers in ``docs/findings`` that need a plane print what they say, each in a process.

The master that those of Mooncake expect is started with the page's own port.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

from rlconform._resources import resource_dir
from rlconform.backends.transfer_queue.mooncake_master import is_up

FOLDER = resource_dir("suites").parent / "docs" / "findings"
MASTER = "localhost:17251"


def blocks(page: str) -> list[str]:
    """The page's Python blocks."""
    text = (FOLDER / f"{page}.md").read_text("utf-8")
    return re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


def printed(block: str) -> list[str]:
    """What a block prints, and what its comments say that it prints."""
    quiet = {"MC_STORE_MEMCPY": "0", "MC_LOG_LEVEL": "ERROR", "TQ_LOGGING_LEVEL": "CRITICAL"}
    environment = os.environ | quiet | {"RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}
    ran = subprocess.run(
        [sys.executable, "-c", block], env=environment, capture_output=True, text=True, timeout=240,
        check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr[-2000:]
    return ran.stdout.splitlines()


def claimed(block: str) -> list[str]:
    """The comment behind each ``print``, without what is expected instead."""
    comments = re.findall(r"^print\(.*\)  # (.*)$", block, re.MULTILINE)
    return [comment.partition(";")[0] for comment in comments]


@pytest.fixture
def mooncake_master() -> Iterator[None]:
    """Run the master that the page of Mooncake starts."""
    program = Path(next(iter(import_module("mooncake").__path__)), "mooncake_master")
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    port = MASTER.partition(":")[2]
    master = subprocess.Popen([program, f"--rpc_port={port}"], **quiet)
    try:
        end = time.monotonic() + 15
        while not is_up(MASTER):
            assert time.monotonic() < end, "expected the master to answer in 15 s; got nothing"
            assert master.poll() is None, f"the master ended with {master.returncode}"
            time.sleep(0.05)
        yield
    finally:
        master.kill()
        master.wait()


@pytest.mark.usefixtures("mooncake_master")
@pytest.mark.parametrize("number", range(len(blocks("mooncake"))))
def test_a_reproducer_of_mooncake_prints_what_it_says(number: int) -> None:
    block = blocks("mooncake")[number]
    assert claimed(block)
    assert printed(block) == claimed(block)


@pytest.mark.parametrize("number", range(len(blocks("transfer_queue"))))
def test_a_reproducer_of_transfer_queue_prints_what_it_says(number: int) -> None:
    block = blocks("transfer_queue")[number]
    assert claimed(block)
    assert printed(block) == claimed(block)
