"""Every process that a run has started is found and ended, however it hides."""

from __future__ import annotations

import os
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import closing, suppress
from multiprocessing.shared_memory import SharedMemory
from pathlib import Path

import psutil
import pytest

from rlconform.certify.isolation.leftovers import RUN_MARK, end_left, left_processes, still_running

#: Stands for the fork server: adopts orphans, starts a process, prints its id, and waits.
ADOPTING = """
import subprocess, sys
from rlconform.certify.isolation.leftovers import adopt_orphans
adopt_orphans()
subprocess.run(["sh", "-c", sys.argv[1]], env={}, start_new_session=True)
print("ready", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def mark() -> str:
    """The mark of a run."""
    return uuid.uuid4().hex


@pytest.fixture
def adopting() -> Iterator[subprocess.Popen[str]]:
    """A fork server that has started a shell with a child, which lost both parent and mark."""
    command = [sys.executable, "-c", ADOPTING, "sleep 1000 & exit 0"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield process
        process.kill()


def test_a_marked_process_is_ended_and_named(mark: str) -> None:
    with subprocess.Popen(["sleep", "1000"], env={RUN_MARK: mark}) as process:
        assert [one.pid for one in left_processes(mark, None)] == [process.pid]
        assert end_left(mark, None) == [f"sleep (pid {process.pid})"]
        assert process.wait(10) != 0
    assert left_processes(mark, None) == []
    assert end_left(mark, None) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root chooses the id of the next process")
def test_a_process_with_the_id_of_an_earlier_one_is_found(mark: str) -> None:
    earlier = subprocess.Popen(["sleep", "1000"], env={RUN_MARK: mark})
    assert end_left(mark, None) == [f"sleep (pid {earlier.pid})"]  # after a second: see YOUNG_S
    earlier.wait(10)
    later = _with_id(earlier.pid, mark)
    try:
        assert end_left(mark, None) == [f"sleep (pid {later.pid})"]
    finally:
        later.kill()
        later.wait(10)


def _with_id(pid: int, mark: str) -> subprocess.Popen[bytes]:
    """Start a process with this id: tried again if another process takes the id first."""
    for _ in range(50):
        Path("/proc/sys/kernel/ns_last_pid").write_text(str(pid - 1))
        process = subprocess.Popen(["sleep", "1000"], env={RUN_MARK: mark})
        if process.pid == pid:
            return process
        process.kill()
        process.wait(10)
    raise AssertionError(f"expected a process with the id {pid}; other processes took it 50 times")


def test_an_orphan_without_the_mark_is_ended(mark: str, adopting: subprocess.Popen[str]) -> None:
    assert left_processes(mark, None) == []
    (orphan,) = left_processes(mark, adopting.pid)
    assert orphan.ppid() == adopting.pid
    assert end_left(mark, adopting.pid) == [f"sleep (pid {orphan.pid})"]
    assert still_running([orphan], 0.0) == []
    assert adopting.poll() is None


def test_a_process_that_ends_in_time_is_not_named(mark: str) -> None:
    with subprocess.Popen(["sleep", "0.2"], env={RUN_MARK: mark}) as process:
        assert end_left(mark, None, grace_s=30) == []
        assert process.wait(10) == 0


def test_one_that_nobody_has_collected_does_not_run() -> None:
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    process = psutil.Process(pid)
    assert still_running([process], 30) == []
    os.waitpid(pid, 0)


#: Leaves shared memory and ends without its exit handlers; Python's tracker removes it.
LEAKING = """
import os, sys
from multiprocessing.shared_memory import SharedMemory
SharedMemory(sys.argv[1], True, 4096)
os._exit(1)
"""


def test_shared_memory_is_removed_before_its_tracker_is_killed(mark: str) -> None:
    name = f"rlconform-test-{mark}"
    subprocess.run(
        [sys.executable, "-c", LEAKING, name], env=os.environ | {RUN_MARK: mark}, check=False
    )
    end_left(mark, None)
    left = Path("/dev/shm", name)
    try:
        assert not left.exists()
    finally:
        with suppress(FileNotFoundError), closing(SharedMemory(name)) as segment:
            segment.unlink()
