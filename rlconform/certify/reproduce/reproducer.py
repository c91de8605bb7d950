"""``Reproducer``: opens the plane for a reproducer script, makes its calls and ends the script.

    script ──Supervisor──▶ child: the same script
                             main thread ──attempt, finish──▶ plane
                             threads ─────begin, roles──────▶ plane
           ◀──EVENTS pipe──  begin, end of each call; verdict or nothing

Methods import the modules that import torch, because only the child needs them.
"""

from __future__ import annotations

import itertools
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

from rlconform.certify.reproduce.render import Origin, show
from rlconform.certify.reproduce.supervisor import EVENTS, Supervisor
from rlconform.certify.reproduce.verdict import REPRODUCED, UNDECIDED

if TYPE_CHECKING:
    from rlconform.certify.threads import BackgroundCall

#: The roles of a race have this many seconds to end.
ROLES_S = 60.0


class Reproducer:
    """Opens a plane for a reproducer script and makes the script's client calls.

    The process that the user starts only supervises: the constructor starts the script again as a
    child, waits for it and exits, with 1 if the defect is there, 0 if it is not, and 2 if the
    script can't decide. The lines after the constructor run in the child.

    The arguments are those of ``Origin``; the first argument on the command line replaces the
    target ``spec``. ``races`` says that the defect is a race, which does not occur in every run.
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
        if asked := sys.argv[1:2]:
            spec, config = asked[0], None
        self._origin = Origin(requirement, check, spec, config or {}, seed)
        pipe = os.environ.pop(EVENTS, None)
        if pipe is None:
            sys.exit(Supervisor(self._origin, races).run())
        self._events = os.fdopen(int(pipe), "w", encoding="utf-8")
        os.set_inheritable(int(pipe), False)
        self._session: Any = None
        self._send_lock = threading.Lock()
        self._numbers = itertools.count()
        self._opened_at = 0.0
        self._differs = False
        self._expected = ""
        self._errors: list[Exception] = []
        self._attached: list[Any] = []

    # -- the plane -----------------------------------------------------------------------------

    def open(self) -> Any:
        """Open the plane and return the owner's client; for a functional check, start Ray first."""
        from rlconform.certify.plugin.plane_session import PlaneSession  # noqa: PLC0415 - torch
        from rlconform.certify.reproduce.rerun_check import level_asked  # noqa: PLC0415 - torch
        from rlconform.certify.target import resolve_target  # noqa: PLC0415 - torch

        spec, config = self._origin.spec, self._origin.config
        target = resolve_target(spec, level_asked(self._origin.check))
        self._session = PlaneSession(spec, target, config, target.level)
        self._opened_at = time.monotonic()
        return self._session.owner()

    def reopen(self) -> Any:
        """Close the plane, open a fresh one and return its owner's client."""
        self._session.renew()
        return self._session.owner()

    def attach(self) -> Any:
        """Return a client that attaches to the plane in another process, a Ray actor."""
        if not self._session.several_processes:
            got = f"{self._origin.spec}, which declares level {self._session.level}"
            self._send("verdict", code=UNDECIDED, expected="a plane to attach to", got=got)
            self._leave()
        (client,) = self._session.actors().start(1)
        self._attached.append(client)
        return client

    # -- calls ---------------------------------------------------------------------------------

    def attempt(self, call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Make a client call and print its outcome; return the result, or a ``Raised`` error."""
        return self.finish(self._call(call, args, kwargs))

    def begin(self, call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Begin a client call in a thread, and return it; ``finish`` returns its result."""
        from rlconform.certify.threads import BackgroundCall  # noqa: PLC0415 - torch

        begun = self._call(call, args, kwargs)
        begun.thread = BackgroundCall(begun.make, begun.name)
        return begun

    def _call(
        self, call: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> _ClientCall:
        if any(isinstance(value, Raised) for value in (*args, *kwargs.values())):
            self.end()  # that call returned in the check: without its result no call can follow
        return _ClientCall(self, call, args, kwargs)

    def finish(self, call: _ClientCall) -> Any:
        """Wait for the call and return its result. The supervisor ends the script if it hangs."""
        from rlconform.certify.assertions.expect import ContractViolation  # noqa: PLC0415 - torch

        print(call.name, end=" ", flush=True)  # noqa: T201 - first, as the call may hang or crash
        try:
            if call.thread is None:
                result = call.make()
            else:
                call.thread.finished.wait()  # the supervisor enforces the deadline
                result = call.thread.result(0.0)
        except ContractViolation as lost:  # the actor died or does not answer
            self.violated(lost.expected, lost.got)
        except Exception as error:  # noqa: BLE001 - a plane may raise anything
            result = Raised(call.name, error)
            self._errors.append(error)
        show(result.error if isinstance(result, Raised) else result)
        return result

    def not_before(self, seconds: float) -> None:
        """Wait until ``seconds`` after the opening, to repeat a pause of the check."""
        time.sleep(max(0.0, self._opened_at + seconds - time.monotonic()))

    @contextmanager
    def reporting(self, call: _ClientCall) -> Iterator[None]:
        """Report the call's begin to the supervisor, and its end unless the script ends."""
        from rlconform.certify.plugin.call_watchdog import allowance  # noqa: PLC0415 - torch
        from rlconform.certify.recording.recorder import OWNER, CallRecord  # noqa: PLC0415 - torch
        from rlconform.certify.recording.shorten import call_text  # noqa: PLC0415 - torch

        remote = any(getattr(client, call.name, None) is call.function for client in self._attached)
        record = CallRecord("actor" if remote else OWNER, call.name, call.args, call.kwargs)
        number, text = next(self._numbers), call_text(call.name, call.args, call.kwargs)
        allowed_s = allowance(record, self._session.target.timeouts)
        self._send("begin", number=number, text=text, allowed_s=allowed_s)
        try:
            yield
        finally:
            if not isinstance(sys.exception(), SystemExit | KeyboardInterrupt):
                self._send("end", number=number)

    def run_roles(self, roles: Sequence[Callable[[], None]]) -> None:
        """Run a race's roles in threads. An error ends its role; after a hang, the check runs."""

        def run(role: Callable[[], None]) -> None:
            try:
                role()
            except Exception as error:  # noqa: BLE001 - a plane may raise anything
                print(f"a role ended: {type(error).__name__}: {error}", flush=True)  # noqa: T201

        threads = [threading.Thread(target=run, args=[role], daemon=True) for role in roles]
        for thread in threads:
            thread.start()
        end = time.monotonic() + ROLES_S
        for thread in threads:
            thread.join(max(0.0, end - time.monotonic()))
        if any(thread.is_alive() for thread in threads):
            self.end()

    # -- the verdict ---------------------------------------------------------------------------

    def result_of(self, result: Any) -> Any:
        """Return what the call returned, or raise what it raised."""
        if isinstance(result, Raised):
            raise result.error
        return result

    def expect_same_claim(self, claimed: Any, ids: Sequence[str]) -> None:
        """Compare a claim's rows with the check's; if they differ, ignore later violations."""
        got = None if isinstance(claimed, Raised) else getattr(claimed, "sample_ids", None)
        self._differs = self._differs or got != list(ids)

    @contextmanager
    def expecting(
        self, expected: str, returned: Sequence[Any] = (), raised: Sequence[Any] = ()
    ) -> Iterator[None]:
        """Report a violation that the block raises, and end the script.

        ``expected`` is what the block expects, in words. In the check, earlier calls ``returned``
        and ``raised``. If one of them does otherwise here, the expectation may not hold:
        violations are then ignored, and the check runs instead.
        """
        from rlconform.certify.assertions.expect import ContractViolation  # noqa: PLC0415 - torch

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
                raise  # not an error of the plane: the script is wrong
            if not self._differs:
                self.violated(expected, f"{type(error).__name__}: {error}")

    def violated(self, expected: str, got: str) -> NoReturn:
        """Report a violation (the plane has the defect), and end the script."""
        self._send("verdict", code=REPRODUCED, expected=expected, got=got)
        self._leave()

    def end(self) -> NoReturn:
        """End the script without a violation; the supervisor then runs the failed check."""
        self._send("nothing", expected=self._expected)
        self._leave()

    def _leave(self) -> NoReturn:
        sys.stdout.flush()
        with suppress(Exception):  # the verdict has been sent; a broken plane may not close
            self._session.close()
        os._exit(0)  # a call that hangs in a thread would keep the interpreter

    def _send(self, event: str, **body: Any) -> None:
        sys.stdout.flush()
        with self._send_lock:
            self._events.write(json.dumps({"event": event} | body) + "\n")
            self._events.flush()


class Raised:
    """Replaces the result of a call that raised. Reading an attribute raises a violation."""

    def __init__(self, name: str, error: Exception) -> None:
        self._name, self.error = name, error

    def __getattr__(self, attribute: str) -> Any:
        from rlconform.certify.assertions.expect import ContractViolation  # noqa: PLC0415 - torch

        if attribute.startswith("__"):
            raise AttributeError(attribute)
        raised = f"it raised {type(self.error).__name__}: {self.error}"
        raise ContractViolation(f"{self._name} to return", raised)


@dataclass
class _ClientCall:
    """A client call of the script; ``thread`` runs it if it was begun in a thread."""

    plane: Reproducer
    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    thread: BackgroundCall | None = None

    @property
    def name(self) -> str:
        return getattr(self.function, "__name__", str(self.function))

    def make(self) -> Any:
        with self.plane.reporting(self):
            return self.function(*self.args, **self.kwargs)
