"""``ClientActor``: a Ray actor that holds one attached client and runs calls and workloads on it.

RemoteClient ──call(method, arguments)──▶ actor's thread ──▶ client
RemoteWorkload ──begin, stop, finish────▶ actor's thread ──▶ a WorkloadThread ──▶ client
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from rlconform._preload import preload
from rlconform.contract import DataPlaneClient, Target

if TYPE_CHECKING:
    from rlconform.certify.concurrency.operation import Operation
    from rlconform.certify.concurrency.workload_thread import (
        WorkloadResult,
        WorkloadSpec,
        WorkloadThread,
    )
    from rlconform.wire.serialization import RayArgument

#: What calls and workloads need. This module imports none of it: Ray imports this module before any
#: of its code can run, and ``preload`` is faster.
NEEDED_BY_CLIENTS = (
    "rlconform.certify.concurrency.workload_thread",
    "rlconform.wire.serialization",
)

#: True with a result; or False with name, bases and message of the error, as a vendor's class may
#: not unpickle in another process.
Answer = tuple[bool, Any]


class ClientActor:
    """One attached client, and the workloads that it runs, by name."""

    def __init__(self) -> None:
        self._client: DataPlaneClient | None = None
        self._target: Target | None = None
        self._workloads: dict[str, WorkloadThread] = {}

    def get_ready(self, spec: str) -> Answer:
        """Import the target and what a client needs, so that ``attach`` only opens it."""
        from rlconform.certify.target import resolve_target  # noqa: PLC0415 - in the actor only

        def resolve() -> None:
            preload(NEEDED_BY_CLIENTS)
            self._target = resolve_target(spec)

        return answer_of(resolve)

    def pid(self) -> int:
        """Return the process id, for a check that kills or stops this process."""
        return os.getpid()

    def attach(self, config: Mapping[str, Any]) -> tuple[Answer, float]:
        """Open the client; return the answer, and how long opening took in seconds."""
        from rlconform.certify.target import open_client  # noqa: PLC0415 - in the actor only

        def attach() -> None:
            assert self._target is not None
            _seed_as_ranks_do()
            self._client = open_client(self._target, config, False)

        start = time.monotonic()
        return answer_of(attach), time.monotonic() - start

    def now(self) -> float:
        """Return this process's clock, by which calls are timed."""
        return time.monotonic()

    def leave(self) -> None:
        """Close the client, if it can be closed; drop it and its workloads."""
        client, self._client = self._client, None
        for who in list(self._workloads):  # left by a run that was cut short
            self.give_up(who)
        if client is not None:
            with suppress(Exception):  # its plane may have ended, or be invalid
                client.close()

    def begin(self, spec: WorkloadSpec) -> None:
        """Start a workload in a thread, so that a call that hangs does not block the actor."""
        from rlconform.certify.concurrency.workload_thread import (  # noqa: PLC0415 - preloaded
            WorkloadThread,
        )

        assert self._client is not None
        self._workloads[spec.who] = WorkloadThread(self._client)
        self._workloads[spec.who].begin(spec)

    def stop(self, who: str) -> None:
        """Ask the workload to end."""
        self._workloads[who].stop()

    def drain(self, who: str) -> tuple[list[Operation], bool]:
        """Return the workload's calls since the last ``drain``, and whether it still runs."""
        running = self._workloads[who].running
        return self._workloads[who].drain(), running

    def grant(self, who: str, ids: list[str]) -> None:
        """Let the workload put these ids."""
        self._workloads[who].grant(ids)

    def give_up(self, who: str) -> None:
        """Forbid the workload ``who`` to make more calls, if there is such a workload."""
        if workload := self._workloads.pop(who, None):
            workload.give_up()

    def finish(self, who: str, call_s: float, all_s: float) -> WorkloadResult:
        """Wait for the workload to end and return its result, see ``WorkloadThread.finish``."""
        return self._workloads.pop(who).finish(call_s, all_s)

    def make_steps(self, steps: range) -> None:
        """Make these steps with the client, see ``earlier_steps``."""
        from rlconform.certify.scenarios import earlier_steps  # noqa: PLC0415 - in the actor only

        assert self._client is not None
        earlier_steps.make_steps(self._client, steps)

    def call(self, method: str, arguments: tuple[tuple[Any, ...], dict[str, Any]]) -> RayArgument:
        """Call the client; return an ``Answer`` and the call's (start, end), monotonic seconds."""
        from rlconform.wire.serialization import RayArgument  # noqa: PLC0415 - preloaded

        args, kwargs = arguments
        start = time.monotonic()
        answer = answer_of(lambda: getattr(self._client, method)(*args, **kwargs))
        return RayArgument((answer, (start, time.monotonic())))


def _seed_as_ranks_do() -> None:
    """Seed random numbers equally in all attached processes.

    The ranks of a job seed equally before they attach, so what a plane draws from these numbers
    tells no process from another.
    """
    import numpy as np  # noqa: PLC0415 - preloaded
    import torch  # noqa: PLC0415 - preloaded

    random.seed(0)
    np.random.seed(0)
    torch.manual_seed(0)


def answer_of(call: Callable[[], Any]) -> Answer:
    """Make the call; return its result, or the error that it raised, for the check."""
    try:
        return True, call()
    except BaseException as error:  # noqa: BLE001 - a plane may raise anything
        bases = [base.__name__ for base in type(error).__mro__]
        return False, (type(error).__name__, bases, str(error))
