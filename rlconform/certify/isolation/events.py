"""The events that test processes and the fork server send to the runner, one JSON line each.

    fork server   ProcessStarted ........................................ ProcessEnded
    test process   TargetDescribed · HostsNamed · PlaneOpening · PlaneOpened · HealthNoted
                   ChecksCollected
                   for each check: CheckBegan · ... · CheckEnded; its calls are in a ``CallsFile``
                   PlaneClosing · SessionFinished

``ShareRunner`` follows the check that runs; ``RunState`` records the rest.
"""

from __future__ import annotations

import json
import os
import threading
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, dataclass_transform

from pydantic import TypeAdapter

from rlconform.certify.results import CheckResult, PlannedCheck

#: Exit status of a test process whose pipe to the runner was closed.
PIPE_CLOSED = 71
#: Bytes of a line; a longer one is none of ours.
LONGEST_EVENT = 256 << 20


@dataclass_transform(frozen_default=True)
@dataclass(frozen=True)
class Event:
    """The base class of all events; each subclass is a frozen dataclass."""

    def __init_subclass__(cls) -> None:
        dataclass(frozen=True)(cls)


class ProcessStarted(Event):
    """The fork server has started the test process with this number."""

    number: int
    pid: int


class ProcessEnded(Event):
    """A test process has ended; ``number`` is ``None`` if the fork server itself ended."""

    number: int | None
    code: int


class TargetDescribed(Event):
    """The target was resolved; ``description`` is its part of the report's header."""

    description: dict[str, Any]


class HostsNamed(Event):
    """The processes of checks are spread over these hosts; the owner is on the first."""

    hosts: list[str]


class StartFailed(Event):
    """The target can't be resolved or opened, see ``PlaneDidNotStart``."""

    message: str
    detail: str
    plain: bool


class PlaneOpening(Event):
    """The plane begins to open; all time before this event counts as rlconform's."""


class PlaneOpened(Event):
    """The plane is open; a first round trip follows."""


class HealthNoted(Event):
    """The first round trip is over, whether it worked or not."""


class ChecksCollected(Event):
    """pytest has collected the checks, including those that do not run."""

    checks: list[PlannedCheck]


class CheckBegan(Event):
    """A check begins."""

    check: str


class ProcessesChanging(Event):
    """The check begins to start or end processes (0.0), or has done so, which took ``seconds``.

    This time does not count against the check's deadline.
    """

    seconds: float


class CallOverdue(Event):
    """A call of the check has not returned in time, and the check still waits for it."""

    check: str
    kind: str
    text: str


class CallAbandoned(Event):
    """A call has not returned although the check that made it is over."""

    check: str
    kind: str


class ExamplesCutShort(Event):
    """The plane was too slow for all examples or rounds of the check; ``text`` has the numbers."""

    check: str
    text: str


class ChangeFound(Event):
    """A call changed its arguments or an earlier result; reported as one more failed check."""

    result: CheckResult


class CheckEnded(Event):
    """A check is over."""

    result: CheckResult


class RemarkMade(Event):
    """The report gets a note, ``text``."""

    text: str


class PlaneClosedByCheck(Event):
    """The check has closed the plane: the test process ends, and a new one continues."""


class PlaneUnhealthy(Event):
    """The plane stopped working: the test process ends, and a new one continues."""

    text: str


class PlaneClosing(Event):
    """All checks have run, and the plane is about to be closed."""


class SessionFinished(Event):
    """The test process is about to end; closing the plane took ``seconds``."""

    seconds: float


#: For each event's name, how it is made from plain data.
_ADAPTERS = {kind.__name__: TypeAdapter(kind) for kind in Event.__subclasses__()}


def encode(event: Event) -> bytes:
    """Return the event as one line of JSON."""
    # not by ``asdict``, which copies every value first
    body = {"event": type(event).__name__, **vars(event)}
    return (json.dumps(body, default=vars) + "\n").encode()


def decode(line: bytes | str) -> Event | None:
    """Return the event in a line; ``None`` if it has none.

    The line may be cut short, as its process died, or come from a plane that writes to all files.
    """
    try:
        body = json.loads(line)
        return _ADAPTERS[body.pop("event")].validate_python(body)
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return None


class EventPipe:
    """The writing end of the pipe to the runner; without a file descriptor it sends nothing.

    If a plane has closed it, the process ends: the same number may be a file of the plane by now.
    """

    def __init__(self, fd: int | None) -> None:
        self._fd = fd
        self._lock = threading.Lock()
        self._pipe = identity(fd)
        if fd is not None:
            os.set_inheritable(fd, False)  # the plane's processes must not keep it open

    @property
    def watched(self) -> bool:
        """Whether a runner reads the pipe."""
        return self._fd is not None

    def send(self, event: Event) -> None:
        """Write the whole event, from any thread."""
        if self._fd is not None:
            data = b"\n" + encode(event)  # what a plane has written is a line of its own
            with self._lock:
                if identity(self._fd) != self._pipe:
                    with suppress(OSError):
                        os.write(2, b"the plane closed the pipe to the runner\n")
                    os._exit(PIPE_CLOSED)
                while data:
                    data = data[os.write(self._fd, data) :]


def identity(fd: int | None) -> tuple[int, int] | None:
    """Return what the descriptor stands for; None if it is closed."""
    try:
        found = os.fstat(-1 if fd is None else fd)
    except OSError:
        return None
    return found.st_dev, found.st_ino
