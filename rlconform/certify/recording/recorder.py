"""Records every client call of a check.

    check, its threads ──call──▶ RecordingClient ──begin(record)──▶ Recording ──▶ listener
                                        │                               ▲
                                        └──call──▶ plane ──▶ end(result or error)

A failure's evidence and reproducer are made from the records. They also show who caused an error:
the plane, if a recorded call raised the exception, else rlconform.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import pytest

from rlconform.certify.recording.busy_time import BusyTime
from rlconform.certify.recording.call_kind import call_kind
from rlconform.certify.recording.changes import ChangeWatch
from rlconform.certify.recording.shorten import brief, call_text, error_text
from rlconform.certify.reproduce.call_source import call_source
from rlconform.certify.reproduce.expectations import ScriptExpectation, expectation_of
from rlconform.certify.reproduce.render import Call

if TYPE_CHECKING:
    Skipped = BaseException
else:
    Skipped = pytest.skip.Exception

#: Name of the owner's client. Every other client runs in its own process.
OWNER = "client"

#: Seconds for sending a call to another process and its result back, added to the plane's time.
TRANSPORT_S = 10.0

#: Most calls that are described per check; a concurrency check makes thousands.
MAX_CALLS = 60


class EndsCheck(Skipped):
    """A skip that rlconform itself raises, in any thread of a check; it is no error of a plane."""


class MethodGivenUp(EndsCheck):
    """A skip: the check needs a kind of call that hung in several checks and is given up."""


class CheckIsOver(Exception):
    """The error of a call that a thread of a check makes after the check has ended."""


@dataclass(frozen=True)
class Overdue:
    """A call that did not return in time: its ``call_kind``, and a sentence about the call."""

    kind: str
    text: str


@dataclass
class CallRecord:
    """One client call: the client's name, the method and the arguments."""

    who: str
    method: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    number: int = -1  # once the call has begun
    text: str = ""  # the call as one readable line, once it has begun
    started: float = field(default_factory=time.monotonic)


class Recording:
    """The calls of one check, from all its clients and threads.

    Arguments are turned into text before the call, as the check may change them later. ``listener``
    is called with each call before it is made, so that a call which kills the process is known, and
    with ``None`` at a ``restart``. ``given_up`` maps kinds of calls that are not made to reasons.
    ``interruptible``: whether a person may press Ctrl-C, which the main thread raises in any call.
    ``writes_source``: whether calls are ever written as source, for a script that repeats them.
    ``watches_changes``: whether changes of arguments and results are looked for.
    """

    def __init__(
        self,
        listener: Callable[[Call | None], None] | None = None,
        given_up: Mapping[str, str] = MappingProxyType({}),
        interruptible: bool = True,
        writes_source: bool = True,
        watches_changes: bool = True,
    ) -> None:
        self._watches_changes = watches_changes
        self.given_up = given_up
        self._interruptible = interruptible
        self.calls: list[Call] = []
        self.outcomes: dict[int, str] = {}  # by number of the call
        self.plane_time = BusyTime()
        self.changes = ChangeWatch()
        self._listener = listener
        self._count = 0
        self._base = 0  # number of the first call since the last restart
        self._in_flight: dict[int, CallRecord] = {}
        # By id, with the number of the call; the reference keeps the id unique.
        self._results: dict[int, tuple[int, Any]] = {}
        self._errors: dict[int, tuple[BaseException, int, str]] = {}
        self._claimed: dict[int, list[Any]] = {}  # number of a call -> row ids that it returned
        self._lock = threading.Lock()
        self._call_returned = threading.Condition(self._lock)
        self._over = False
        self._may_write_source = self._writes_source = writes_source
        self._started = time.monotonic()
        self._clients: dict[str, Any] = {}  # by name
        self._reopened: set[str] = set()  # names whose client was reopened since its last call
        self._last: tuple[int, Any, bool] | None = None  # number, result, raised

    def register_client(self, who: str, client: Any) -> None:
        """Record which client has this name. Another client of the name means a reopened plane."""
        if self._clients.setdefault(who, client) is not client:
            self._clients[who] = client
            self._reopened.add(who)

    def is_interrupt(self, error: BaseException) -> bool:
        """Whether a person may have interrupted the call that raised ``error``."""
        here = threading.current_thread() is threading.main_thread()
        return self._interruptible and here and isinstance(error, KeyboardInterrupt)

    @property
    def plane_seconds(self) -> float:
        """Seconds in which at least one call ran in the plane."""
        return self.plane_time.seconds

    def begin(self, record: CallRecord) -> None:
        """Record that a call starts, and number it.

        Raises:
            CheckIsOver: The check has ended, and the caller is one of its threads.
            MethodGivenUp: Calls of this kind have hung in several checks.
        """
        if why := self.given_up.get(call_kind(record.method, record.args, record.kwargs)):
            raise MethodGivenUp(why)
        if self._over and threading.current_thread() is not threading.main_thread():
            raise CheckIsOver(f"{record.method}, called by {threading.current_thread().name}")
        who, method, args, kwargs = record.who, record.method, record.args, record.kwargs
        record.text = text = call_text(f"{who}.{method}", args, kwargs)
        with self._lock:
            record.number = number = self._count
            self._count += 1
            concurrent = tuple(other.text for other in self._in_flight.values())
            numbers = tuple(self._in_flight)
            self._in_flight[number] = record
            source = ""
            if number - self._base < MAX_CALLS:
                source = f"# {text}"
                if self._writes_source:
                    names = {key: f"r{earlier}" for key, (earlier, _) in self._results.items()}
                    source = call_source(number, who, method, args, kwargs, names)
            at = round(record.started - self._started, 3)
            call = Call(who, text, source, concurrent, number, numbers, at, who in self._reopened)
            self._reopened.discard(who)
            if source:
                self.calls.append(call)
                self.outcomes[number] = "did not return"
        if self._listener is not None:
            self._listener(call)

    def watch_arguments(self, record: CallRecord) -> Callable[[], None]:
        """Look at the arguments; return a function that, after the call, records their changes."""
        if not self._watches_changes or record.number not in self.outcomes:  # one of too many calls
            return lambda: None
        arguments = record.args, record.kwargs
        name = f"{record.who}.{record.method}"
        return self.changes.arguments(record.text, lambda: call_text(name, *arguments), arguments)

    def end(self, record: CallRecord, result: Any, error: BaseException | None) -> None:
        """Record that a call returned a result or raised an error."""
        number = record.number
        with self._lock:
            del self._in_flight[number]
            self._last = (number, result, error is not None)
            if error is not None:
                outcome = f"raised {error_text(error)}"
                origin = f"the plane's {record.method} {outcome}"
                self._errors[id(error)] = (error, number, origin)
            elif number in self.outcomes:
                outcome = brief(result)
                self._results[id(result)] = (number, result)
                if self._watches_changes:
                    self.changes.result(record.text, result)
                self._claimed[number] = list(getattr(result, "sample_ids", None) or ())
            if number in self.outcomes:
                self.outcomes[number] = outcome
            self._call_returned.notify_all()

    def finish(self, timeout_s: float) -> None:
        """Forbid more calls by the check's threads, and wait for calls still running."""
        self._over = True
        with self._call_returned:
            self._call_returned.wait_for(lambda: not self._in_flight, timeout_s)

    def restart(self, *, writes_source: bool) -> None:
        """Drop the recorded calls, but not their time: Hypothesis begins a new example.

        Hypothesis runs the smallest failing example last, so the evidence has only its calls.
        ``writes_source``: whether arguments are written as source, which takes much of the time of
        an example and is of use only once an example has failed.
        """
        with self._lock:
            for of_calls in (self.outcomes, self._results, self._errors, self._claimed):
                of_calls.clear()
            self.calls.clear()
            self.changes.forget_results()
            self._last = None
            self._base = self._count
            self._writes_source = writes_source and self._may_write_source
        if self._listener is not None:
            self._listener(None)

    def forget_results(self) -> None:
        """Keep no result or error of earlier calls: a check that measures memory would count them.

        An error keeps the frames of the plane in which it was raised, and what they hold.
        """
        with self._lock:
            self._results.clear()
            self._errors.clear()
        self.changes.forget_results()

    def raised_by_plane(self, error: BaseException | None) -> bool:
        """Whether a recorded call raised ``error`` or one of its causes."""
        while error is not None:
            if id(error) in self._errors:
                return True
            error = error.__cause__ or error.__context__
        return False

    def error_origin(self, error: BaseException) -> str:
        """Return a line that names the call which raised ``error``; "" if no recorded call did."""
        return self._errors[id(error)][2] if id(error) in self._errors else ""

    def script_expectation(self, error: BaseException) -> ScriptExpectation | None:
        """Return what a script expects of the calls' results, given the check's error."""
        with self._lock:
            if id(error) in self._errors:  # that call should have returned
                number = self._errors[id(error)][1]
                source = f"plane.result_of(r{number})"
            elif found := expectation_of(error, dict(self._results.values()), self._last):
                source, number = found
            else:
                return None
            claimed = {n: ids for n, ids in self._claimed.items() if n < number and ids}
            raised = frozenset(number for _, number, _ in self._errors.values())
        return ScriptExpectation(source, number, claimed, raised)

    def overdue(self, allowed: Callable[[CallRecord], float]) -> Overdue | None:
        """Return the first call that has run longer than ``allowed(record)`` seconds."""
        now = time.monotonic()
        with self._lock:
            for record in self._in_flight.values():
                if now - record.started > allowed(record):
                    text = f"{record.text} did not return within {allowed(record):g} s"
                    return Overdue(call_kind(record.method, record.args, record.kwargs), text)
        return None

    def lines(self) -> list[str]:
        """Return the calls in order with their outcomes, for the report."""
        with self._lock:
            shown = [f"{call.text} -> {self.outcomes[call.number]}" for call in self.calls]
            more = self._count - self._base - len(self.calls)
        return [*shown, *([f"... and {more} more calls"] if more else [])]
