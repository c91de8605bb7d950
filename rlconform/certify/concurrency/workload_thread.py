"""``WorkloadThread`` runs a workload in a thread and reports on it even while it hangs.

    begin(role) ──▶ thread ──calls──▶ client       returns at once
    finish()    ──▶ waits for its end, or for a call that is overdue, and then gives it up
    stop()      ──▶ the role comes to its end by itself

A Ray actor has one for each role; its calls arrive on the actor's own thread, which stays free for
them.
"""

from __future__ import annotations

import threading
import time
import traceback
from dataclasses import dataclass

from rlconform.certify.concurrency.events import Operation
from rlconform.certify.concurrency.logging_client import LoggingClient, WorkloadStopped
from rlconform.certify.concurrency.workloads import Workload
from rlconform.contract import DataPlaneClient


@dataclass(frozen=True)
class WorkloadSpec:
    """What a performer is to play: the role, on which partition, under which name and number."""

    role: Workload
    partition_id: str
    who: str
    number: int
    seed: str


@dataclass(frozen=True)
class WorkloadResult:
    """What a performer did.

    Attributes:
        events: Its calls.
        over: Whether the part is over.
        hangs: Whether a call of it is overdue.
        fault: Our own error that ended it, or "".
    """

    events: list[Operation]
    over: bool
    hangs: bool
    fault: str = ""


class WorkloadThread:
    """Plays one part at a time on one client."""

    def __init__(self, client: DataPlaneClient) -> None:
        self._client = client
        self._act: LoggingClient | None = None
        self._thread = threading.Thread()
        self._fault = ""

    def begin(self, part: WorkloadSpec) -> None:
        """Start playing."""
        act = LoggingClient(self._client, part.partition_id, part.who, part.number, part.seed)
        self._act, self._fault = act, ""
        self._thread = threading.Thread(
            target=self._play, args=(part.role, act), name=part.who, daemon=True
        )
        self._thread.start()

    def _play(self, role: Workload, act: LoggingClient) -> None:
        try:
            role.play(act)
        except WorkloadStopped:
            return
        except Exception:  # noqa: BLE001 - the plane's errors are caught by the act: this is ours
            self._fault = traceback.format_exc()

    def stop(self) -> None:
        """Let the part come to its end."""
        if self._act is not None:
            self._act.stop()

    def give_up(self) -> None:
        """Let the part make no call after the one under way; nobody waits for its end."""
        if self._act is not None:
            self._act.give_up()

    def finish(self, call_s: float, all_s: float) -> WorkloadResult:
        """Wait until the part is over, a call takes longer than ``call_s``, or ``all_s`` go by.

        A part that is not over by then is given up: on a plane whose claims never end it would go
        on for ever.
        """
        assert self._act is not None
        deadline = time.monotonic() + all_s
        hangs = False
        while self._thread.is_alive() and not hangs and time.monotonic() < deadline:
            self._thread.join(min(call_s / 4, all_s))
            hangs = self._act.overdue(call_s)
        over = not self._thread.is_alive()
        if not over:
            self.give_up()
        return WorkloadResult(self._act.events, over, hangs, self._fault)
