"""``Reproducer``: the plane as a reproducer script holds it, and how the script ends."""

from __future__ import annotations

import itertools
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, NoReturn

from rlconform.certify.reproduce.supervisor import EVENTS, Supervisor
from rlconform.certify.reproduce.verdict import REPRODUCED, UNDECIDED

#: Seconds in which the roles of a race end.
ROLES_S = 60.0


class Reproducer:
    """The plane of a reproducer script.

    The process that is started as the script only supervises: it starts the script once more, as a
    child, and ends with exit code 1 while the defect is there, 0 when it is gone, and 2 where
    nothing could be judged. Lines behind this one run in the child.

    Example:
        plane = Reproducer("memory", requirement="GET-04", check="unit/contract/test_get.py::...")
        client = plane.open()
        r0 = plane.attempt(client.get_samples, sample_ids=["ghost"], ...)
        with plane.expecting("an error"):
            expect_rejection(lambda: plane.result_of(r0), "an id that was never put")
        plane.end()

    Args:
        spec: The target; the first argument on the command line takes its place.
        config: Its configuration, where it is not the target's own.
        check: Id of the check that the script was made from.
        requirement: The requirement that it checks.
        seed: What the check's generated examples start from.
        races: Whether chance decides if the defect shows.
    """

    def __init__(
        self,
        spec: str,
        config: Mapping[str, Any] | None = None,
        *,
        check: str,
        requirement: str,
        seed: int = 0,
        races: bool = False,
    ) -> None:
        asked = sys.argv[1:2]
        self._spec = asked[0] if asked else spec
        self._config = {} if asked else dict(config or {})
        self._check = check
        pipe = os.environ.pop(EVENTS, None)
        if pipe is None:
            supervisor = Supervisor(self._spec, self._config, check, requirement, seed, races)
            sys.exit(supervisor.run())
        self._events = os.fdopen(int(pipe), "w", encoding="utf-8")
        os.set_inheritable(int(pipe), False)
        self._session: Any = None
        self._telling = threading.Lock()
        self._numbers = itertools.count()
        self._began = 0.0
        self._differs = False
        self._expected = ""
        self._errors: list[Exception] = []
        self._attached: list[Any] = []

    # -- the plane -----------------------------------------------------------------------------

    def open(self) -> Any:
        """Open the plane as its owner; at level functional Ray runs, as in the certification."""
        from rlconform.certify.plugin.plane_session import PlaneSession  # noqa: PLC0415 - torch
        from rlconform.certify.reproduce.rerun_check import level_asked  # noqa: PLC0415 - torch
        from rlconform.certify.target import resolve_target  # noqa: PLC0415 - torch

        target = resolve_target(self._spec, level_asked(self._check))
        self._session = PlaneSession(self._spec, target, self._config, target.level)
        self._began = time.monotonic()
        return self._session.owner()

    def reopen(self) -> Any:
        """Close the plane and open a fresh one."""
        self._session.renew()
        return self._session.owner()

    def attach(self) -> Any:
        """A client that attaches with bootstrap=False in a process of its own, a Ray actor."""
        if not self._session.several_processes:
            said = f"{self._spec}, which declares level {self._session.level}"
            self._tell("verdict", code=UNDECIDED, expected="a plane to attach to", got=said)
            self._leave()
        (client,) = self._session.actors().start(1)
        self._attached.append(client)
        return client

    # -- calls ---------------------------------------------------------------------------------

    def attempt(self, call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Make a client call and print what came of it: a result, or the error as ``Raised``."""
        return self.finish(self._made(call, args, kwargs))

    def begin(self, call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Begin a client call in a thread; ``finish`` gives its result."""
        from rlconform.certify.threads import BackgroundCall  # noqa: PLC0415 - torch

        made = self._made(call, args, kwargs)
        made.thread = BackgroundCall(made, made.text)
        return made

    def _made(
        self, call: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> _Made:
        if any(isinstance(value, Raised) for value in (*args, *kwargs.values())):
            self.end()  # in the check that call returned: what follows can't be made here
        return _Made(self, call, args, kwargs)

    def finish(self, made: Any) -> Any:
        """Wait for the call; the supervisor ends a script whose call does not return."""
        from rlconform.certify.assertions.values import ContractViolation  # noqa: PLC0415 - torch
        from rlconform.certify.reproduce.render import show  # noqa: PLC0415 - torch

        print(made.name, end=" ", flush=True)  # noqa: T201 - first: it may hang, or end the process
        try:
            came = made() if made.thread is None else _joined(made.thread)
        except ContractViolation as late:  # a process that died, or that does not answer
            self.violated(late.expected, late.got)
        except Exception as error:  # noqa: BLE001 - a plane may raise anything
            came = Raised(made.name, error)
            self._errors.append(error)
        show(came.error if isinstance(came, Raised) else came)
        return came

    def not_before(self, seconds: float) -> None:
        """Wait until so many seconds after the opening, as in the check a thread was given time."""
        time.sleep(max(0.0, self._began + seconds - time.monotonic()))

    def tell_begin(self, text: str, call: Callable[..., Any], kwargs: Mapping[str, Any]) -> int:
        """Tell the supervisor of a call; its number."""
        from rlconform.certify.plugin.watchdog import allowance  # noqa: PLC0415 - torch
        from rlconform.certify.recording.recorder import OWNER, CallRecord  # noqa: PLC0415 - torch

        method = getattr(call, "__name__", "")
        remote = any(getattr(client, method, None) is call for client in self._attached)
        step = CallRecord("actor" if remote else OWNER, method, (), dict(kwargs))
        number = next(self._numbers)
        allowed_s = allowance(step, self._session.target.timeouts)
        self._tell("begin", number=number, text=text, allowed_s=allowed_s)
        return number

    def tell_end(self, number: int) -> None:
        """Tell the supervisor that the call returned."""
        self._tell("end", number=number)

    def start_role(self, role: Callable[[], None]) -> threading.Thread:
        """Play a role of a race in a thread; an error ends the role, and the check judges it."""

        def playing() -> None:
            try:
                role()
            except Exception as error:  # noqa: BLE001 - a plane may raise anything
                print(f"a role ended: {type(error).__name__}: {error}", flush=True)  # noqa: T201

        thread = threading.Thread(target=playing, daemon=True)
        thread.start()
        return thread

    def join(self, roles: Sequence[threading.Thread]) -> None:
        """Wait for the roles; where a call of them hangs, the check itself has to say so."""
        end = time.monotonic() + ROLES_S
        for thread in roles:
            thread.join(max(0.0, end - time.monotonic()))
        if any(thread.is_alive() for thread in roles):
            self.end()

    # -- the verdict ---------------------------------------------------------------------------

    def result_of(self, result: Any) -> Any:
        """Return what the call returned, or raise what it raised."""
        if isinstance(result, Raised):
            raise result.error
        return result

    def expect_same_claim(self, claimed: Any, ids: Sequence[str]) -> None:
        """What follows was expected after this claim; after another one the check decides."""
        came = None if isinstance(claimed, Raised) else getattr(claimed, "sample_ids", None)
        self._differs = self._differs or came != list(ids)

    @contextmanager
    def expecting(
        self, expected: str, returned: Sequence[Any] = (), raised: Sequence[Any] = ()
    ) -> Iterator[None]:
        """The block is what the check expected: a violation ends the script with exit code 1.

        Args:
            expected: The same in words.
            returned: Results of the earlier calls that returned in the check.
            raised: Results of those that raised. Where a call does otherwise than in the check,
                other things may be due, and the check decides.
        """
        from rlconform.certify.assertions.values import ContractViolation  # noqa: PLC0415 - torch

        self._expected = expected
        failed = [isinstance(result, Raised) for result in (*returned, *raised)]
        self._differs |= failed != [False] * len(returned) + [True] * len(raised)
        try:
            yield
        except ContractViolation as violation:
            if not self._differs:
                self.violated(violation.expected, violation.got)
        except Exception as error:
            if not any(error is raised for raised in self._errors):
                raise  # not the plane's: what is wrong is the script
            if not self._differs:
                self.violated(expected, f"{type(error).__name__}: {error}")

    def violated(self, expected: str, got: str) -> NoReturn:
        """End the script: the defect is there."""
        self._tell("verdict", code=REPRODUCED, expected=expected, got=got)
        self._leave()

    def end(self) -> NoReturn:
        """End the script: its calls showed nothing. The check itself decides."""
        self._tell("nothing", expected=self._expected)
        self._leave()

    def _leave(self) -> NoReturn:
        sys.stdout.flush()
        with suppress(Exception):  # the verdict is told; a broken plane may not close
            self._session.close()
        os._exit(0)  # a call that hangs in a thread would keep the interpreter

    def _tell(self, event: str, **body: Any) -> None:
        sys.stdout.flush()
        with self._telling:
            self._events.write(json.dumps({"event": event} | body) + "\n")
            self._events.flush()


class Raised:
    """An error in the place of a result. Whoever uses it as a result finds a violation."""

    def __init__(self, name: str, error: Exception) -> None:
        self._name, self.error = name, error

    def __getattr__(self, attribute: str) -> Any:
        from rlconform.certify.assertions.values import ContractViolation  # noqa: PLC0415 - torch

        if attribute.startswith("__"):
            raise AttributeError(attribute)
        raised = f"it raised {type(self.error).__name__}: {self.error}"
        raise ContractViolation(f"{self._name} to return", raised)


class _Made:
    """A client call on its way, told to the supervisor when it begins and when it returns."""

    def __init__(
        self,
        plane: Reproducer,
        call: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> None:
        from rlconform.certify.recording.text import brief  # noqa: PLC0415 - torch

        self._plane, self._call, self._args, self._kwargs = plane, call, args, kwargs
        self.name = getattr(call, "__name__", str(call))
        shown = [brief(value) for value in args]
        shown += [f"{key}={brief(value)}" for key, value in kwargs.items()]
        self.text = f"{self.name}({', '.join(shown)})"
        self.thread: Any = None

    def __call__(self) -> Any:
        number = self._plane.tell_begin(self.text, self._call, self._kwargs)
        came = None
        try:
            came = self._call(*self._args, **self._kwargs)
        finally:
            if not isinstance(sys.exception(), SystemExit | KeyboardInterrupt):
                self._plane.tell_end(number)
        return came


def _joined(thread: Any) -> Any:
    thread.finished.wait()  # the supervisor knows the deadline
    return thread.result(0.0)
