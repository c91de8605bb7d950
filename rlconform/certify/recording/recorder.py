"""A client that writes down every call: evidence, a reproducer, and whose fault an error is.

An exception that a recorded call raised is the plane's; any other is ours.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import pytest

from rlconform.certify.recording.busy_time import BusyTime
from rlconform.certify.recording.text import brief, shorten
from rlconform.certify.reproduce.call_source import call_source
from rlconform.certify.reproduce.expectations import (
    ScriptExpectation,
    expect_return,
    expectation_of,
)
from rlconform.certify.reproduce.render import Call
from rlconform.contract import CLIENT_METHODS, DataPlaneClient

if TYPE_CHECKING:
    Skipped = BaseException
else:
    Skipped = pytest.skip.Exception

#: Name of the owner's client; any other runs in a process of its own.
OWNER = "client"

#: Seconds for a call's way to another process and back, beside what the plane takes of it.
TRANSPORT_S = 10.0

#: Calls described per check; a check of concurrency makes thousands.
MAX_CALLS = 60


class MethodGivenUp(Skipped):
    """The check needs a method that has hung in several checks: it is not called again."""


class CheckIsOver(Exception):
    """A thread that a check left behind made a call after the check had ended."""


@dataclass(frozen=True)
class Overdue:
    """A call that did not come back in time: its kind, and what happened in words."""

    kind: str
    text: str


@dataclass
class CallRecord:
    """One client call: who called what, with which arguments, and what came."""

    who: str
    method: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    outcome: str = "did not return"
    text: str = ""
    started: float = field(default_factory=time.monotonic)

    def describe(self) -> str:
        """One line for people."""
        shown = [brief(value) for value in self.args]
        shown += [f"{name}={brief(value)}" for name, value in self.kwargs.items()]
        return f"{self.who}.{self.method}({', '.join(shown)})"


def call_kind(method: str, kwargs: Mapping[str, Any]) -> str:
    """The method, with claims that block told from those that do not: a plane may hang in one."""
    if method != "claim_meta":
        return method
    return "claim_meta, blocking" if kwargs.get("blocking", True) else "claim_meta, not blocking"


class Recording:
    """The calls of one check, over all its clients and threads.

    ``listener`` hears of each call before it is made, so that a call which takes the process down
    is known, and of ``None`` at a ``restart``. What a call is given is written down at once: a
    check may change it later.
    """

    def __init__(
        self,
        listener: Callable[[Call | None], None] | None = None,
        given_up: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self.given_up = given_up  # by kind of call, why it is not made
        self.calls: list[Call] = []
        self.outcomes: list[str] = []
        self.plane_time = BusyTime()  # runs while a call of the plane does
        self._listener = listener
        self._count = 0
        self._base = 0  # number of the first call that is still remembered
        self._in_flight: dict[int, CallRecord] = {}
        self._results: dict[int, tuple[str, Any]] = {}  # id -> name; the result keeps its id taken
        self._errors: dict[int, tuple[BaseException, str]] = {}
        self._raised_by: dict[int, int] = {}  # id of an error -> number of its call
        self._claimed: dict[int, list[Any]] = {}  # rows that a call's result names, as they came
        self._lock = threading.Lock()
        self._came_back = threading.Condition(self._lock)
        self._over = False
        self._started = time.monotonic()
        self._clients: dict[str, Any] = {}  # by who they are
        self._anew: set[str] = set()  # whose client was opened anew since its last call
        self._last: tuple[int, Any, bool] | None = None  # number, result, raised

    def register_client(self, who: str, client: Any) -> None:
        """Note whose calls go to which client: another one belongs to a plane opened anew."""
        if self._clients.setdefault(who, client) is not client:
            self._clients[who] = client
            self._anew.add(who)

    @property
    def plane_seconds(self) -> float:
        """Seconds in which at least one call ran."""
        return self.plane_time.seconds

    def begin(self, step: CallRecord) -> int:
        """Note a call that starts; its number.

        Raises:
            CheckIsOver: The check has ended, and this is one of its threads.
            MethodGivenUp: Calls of this kind have hung in several checks.
        """
        if why := self.given_up.get(call_kind(step.method, step.kwargs)):
            raise MethodGivenUp(why)
        if self._over and threading.current_thread() is not threading.main_thread():
            raise CheckIsOver(f"{step.method}, called by {threading.current_thread().name}")
        text = step.describe()
        with self._lock:
            number = self._count
            self._count += 1
            beside = tuple(other.text for other in self._in_flight.values())
            flying = tuple(self._in_flight)
            self._in_flight[number] = step
            step.text, source = text, ""
            if number - self._base < MAX_CALLS:
                names = {key: name for key, (name, _) in self._results.items()}
                source = call_source(number, step.who, step.method, step.args, step.kwargs, names)
            began = step.started - self._started
            anew = step.who in self._anew
            self._anew.discard(step.who)
            call = Call(step.who, text, source, beside, number, flying, round(began, 3), anew)
            if source:
                self.calls.append(call)
                self.outcomes.append(step.outcome)
        if self._listener is not None:
            self._listener(call)
        return number

    def end(self, number: int, step: CallRecord, result: Any, error: BaseException | None) -> None:
        """Note that the call came back, with a result or an error."""
        with self._lock:
            del self._in_flight[number]
            self._last = (number, result, error is not None)
            if error is not None:
                came = f"raised {type(error).__name__}: {shorten(str(error))}"
                self._errors[id(error)] = (error, f"the plane's {step.method} {came}")
                self._raised_by[id(error)] = number
            elif 0 <= number - self._base < MAX_CALLS:
                came = brief(result)
                self._results[id(result)] = (f"r{number}", result)
                self._claimed[number] = list(getattr(result, "sample_ids", None) or ())
            if 0 <= number - self._base < MAX_CALLS:
                self.outcomes[number - self._base] = came
            self._came_back.notify_all()

    def finish(self, timeout_s: float) -> None:
        """The check is over: its threads make no more calls, and those on their way come back."""
        self._over = True
        with self._came_back:
            self._came_back.wait_for(lambda: not self._in_flight, timeout_s)

    def restart(self) -> None:
        """Forget the calls so far, but not the time they took: a new example of a property begins.

        The last example that runs is the shrunk one, so that its calls alone become the evidence.
        """
        with self._lock:
            self.calls.clear()
            self.outcomes.clear()
            self._results.clear()
            self._errors.clear()
            self._raised_by.clear()
            self._claimed.clear()
            self._last = None
            self._base = self._count
        if self._listener is not None:
            self._listener(None)

    def raised_by_plane(self, error: BaseException | None) -> bool:
        """Whether a recorded call raised ``error`` or anything that it was raised from."""
        while error is not None:
            if id(error) in self._errors:
                return True
            error = error.__cause__ or error.__context__
        return False

    def error_origin(self, error: BaseException) -> str:
        """Which call raised ``error``, in one line; "" if none did."""
        return self._errors.get(id(error), (error, ""))[1]

    def script_expectation(self, error: BaseException) -> ScriptExpectation | None:
        """What a script is to expect of the calls' results, told from what the check raised."""
        with self._lock:
            results = dict(self._results.values())
            judged: ScriptExpectation | None
            if id(error) in self._raised_by:
                judged = expect_return(self._raised_by[id(error)], self._claimed)
            else:
                judged = expectation_of(error, results, self._last, self._claimed)
        return judged and replace(judged, raised=frozenset(self._raised_by.values()))

    def overdue(self, allowed: Callable[[CallRecord], float]) -> Overdue | None:
        """The first call that has run longer than ``allowed(step)`` seconds."""
        now = time.monotonic()
        with self._lock:
            for step in self._in_flight.values():
                if now - step.started > allowed(step):
                    said = f"{step.text} did not return within {allowed(step):g} s"
                    return Overdue(call_kind(step.method, step.kwargs), said)
        return None

    def lines(self) -> list[str]:
        """The calls in order with what came of each, for the report."""
        with self._lock:
            shown = [
                f"{call.text} -> {came}"
                for call, came in zip(self.calls, self.outcomes, strict=True)
            ]
            more = self._count - self._base - len(self.calls)
        return [*shown, *([f"... and {more} more calls"] if more else [])]


class RecordingClient:
    """A client of which every call is written to a ``Recording``.

    Args:
        client: The client.
        recording: What its calls are written to.
        who: The client's name there.
        measuring: ``with measuring(stopwatch):`` around a call counts what the plane takes of it.
    """

    def __init__(
        self,
        client: DataPlaneClient,
        recording: Recording,
        who: str = OWNER,
        measuring: Callable[[BusyTime], AbstractContextManager[None]] = BusyTime.running,
    ) -> None:
        self.recording = recording
        recording.register_client(who, client)
        self._who = who
        self._client = client
        self._measuring = measuring
        self._calls = threading.local()  # of each thread when its last call came back here
        for method in CLIENT_METHODS:
            setattr(self, method, self._recorded(method, getattr(client, method)))

    @property
    def is_remote(self) -> bool:
        """Whether its calls are made in another process, and have a way there and back."""
        return self._who != OWNER

    @property
    def last_end(self) -> float:
        """When this thread's last call ended, s: in the process that made it, before the way back.

        All processes of this machine share the clock.
        """
        span: tuple[float, float] | None = getattr(self._client, "last_span", None)
        return self._calls.end if span is None else span[1]

    def _recorded(self, method: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def recorded(*args: Any, **kwargs: Any) -> Any:
            step = CallRecord(self._who, method, args, kwargs)
            number = self.recording.begin(step)
            result, raised = None, None
            try:
                with self._measuring(self.recording.plane_time):
                    result = call(*args, **kwargs)
            except BaseException as error:
                raised = error
                raise
            finally:
                self._calls.end = time.monotonic()
                self.recording.end(number, step, result, raised)
            return result

        return recorded
