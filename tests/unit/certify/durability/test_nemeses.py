"""Nemeses on real processes: what is stopped goes on, what is killed is gone."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import psutil
import pytest

from rlconform.certify.durability.nemeses import (
    CloseConnections,
    Kill,
    Slow,
    Stop,
    why_not_close_connections,
)


@pytest.fixture
def busy() -> Iterator[subprocess.Popen[bytes]]:
    """A process that uses a core."""
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as process:
        try:
            yield process
        finally:
            process.kill()


def cpu_share(pid: int, seconds: float) -> float:
    before = sum(psutil.Process(pid).cpu_times()[:2])
    start = time.monotonic()
    threading.Event().wait(seconds)  # the measured time
    return (sum(psutil.Process(pid).cpu_times()[:2]) - before) / (time.monotonic() - start)


def test_a_killed_process_is_gone_and_a_second_kill_misses(busy: subprocess.Popen[bytes]) -> None:
    fault = Kill().strike("victim", busy.pid)
    assert (fault.kind, fault.missed) == ("killed", "")
    assert fault.start <= fault.end <= time.monotonic()
    busy.wait()
    again = Kill().strike("victim", busy.pid)
    assert again.missed == "victim had ended before it was to be killed"


@pytest.mark.parametrize("nemesis", [Stop(0.3), Slow(0.3)], ids=["stop", "slow"])
def test_a_struck_process_goes_on_afterwards(
    busy: subprocess.Popen[bytes], nemesis: Stop | Slow
) -> None:
    used = sum(psutil.Process(busy.pid).cpu_times()[:2])
    fault = nemesis.strike("victim", busy.pid)
    during = sum(psutil.Process(busy.pid).cpu_times()[:2]) - used
    assert fault.missed == ""
    assert fault.end - fault.start >= 0.3
    assert during < 0.5 * (fault.end - fault.start)
    assert psutil.Process(busy.pid).status() != psutil.STATUS_STOPPED
    assert cpu_share(busy.pid, 0.3) > 0.0


def test_a_stop_of_a_process_that_ended_is_missed(busy: subprocess.Popen[bytes]) -> None:
    busy.kill()
    busy.wait()
    assert Stop(0.01).strike("victim", busy.pid).missed == "victim ended during the fault"


@pytest.mark.skipif(bool(why_not_close_connections()), reason=why_not_close_connections())
def test_closed_connections_are_reset_and_others_stay() -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    with listener, socket.create_connection(listener.getsockname()) as here:
        there, _ = listener.accept()
        fault = CloseConnections(0.05).strike("this process", os.getpid())
        assert fault.missed == ""
        with there, pytest.raises(ConnectionError):
            here.recv(1)
    assert CloseConnections(0.05).strike("victim", os.getppid()).kind == "cut off"
