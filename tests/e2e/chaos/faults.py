"""What happens to a process: it is killed, stopped for a while, or gets a part of its time."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass
from math import inf
from typing import Literal

import psutil

#: Seconds in which a process that is slowed down runs once.
_CYCLE_S = 0.1


@dataclass(frozen=True)
class Kill:
    """SIGKILL."""


@dataclass(frozen=True)
class Stop:
    """SIGSTOP, and after ``seconds`` SIGCONT."""

    seconds: float = inf


@dataclass(frozen=True)
class Slow:
    """SIGSTOP and SIGCONT in turn, so that the process runs for one in ``factor`` seconds."""

    factor: int = 10


@dataclass(frozen=True)
class Lose:
    """One message does not arrive; ``lossy_train`` does it, and there is no victim.

    ``put``: the plane confirms a put of rows that it never got. ``put_reply``: the rows are there,
    and the call ends without an answer. ``group_reply``: a rollout actor has put its group, and the
    driver never hears of it.
    """

    message: Literal["put", "put_reply", "group_reply"]


Fault = Kill | Stop | Slow | Lose


def is_stopped(fault: Fault, elapsed: float) -> bool:
    """Whether the process stands still so many seconds after the fault began."""
    match fault:
        case Stop():
            return elapsed < fault.seconds
        case Slow():
            return elapsed % _CYCLE_S < _CYCLE_S * (1 - 1 / fault.factor)
        case _:
            return False


class Strike:
    """A fault that goes on; the process was stopped before."""

    def __init__(self, fault: Fault, process: psutil.Process) -> None:
        self._fault, self._process = fault, process
        self._stopped = True
        if isinstance(fault, Kill):
            process.kill()

    def go_on(self, elapsed: float) -> None:
        """Stop the process or let it run, as the fault says for this moment."""
        stopped = is_stopped(self._fault, elapsed)
        if stopped == self._stopped or isinstance(self._fault, Kill):
            return
        self._stopped = stopped
        try:
            os.kill(self._process.pid, signal.SIGSTOP if stopped else signal.SIGCONT)
        except ProcessLookupError:
            return  # the run is over
