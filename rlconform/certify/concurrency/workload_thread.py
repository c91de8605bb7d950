"""``WorkloadThread`` runs a workload in a thread and reports on it even while a call hangs.

    begin(spec) ──▶ thread ──calls──▶ client    returns immediately
    stop()      ──▶ the workload ends after what it still has to do
    finish()    ──▶ waits for the end, or until a call is overdue; then gives the workload up

A Ray actor has one ``WorkloadThread`` for each workload, so the actor's own thread stays free to
answer these calls.
"""

from __future__ import annotations

import threading
import time
import traceback
from dataclasses import dataclass
from pathlib import Path

from rlconform.certify.concurrency.journal import Journal
from rlconform.certify.concurrency.logging_client import LoggingClient, WorkloadStopped
from rlconform.certify.concurrency.operation import Operation
from rlconform.certify.concurrency.workloads import Workload
from rlconform.contract import DataPlaneClient


@dataclass(frozen=True)
class WorkloadSpec:
    """A workload, the partition that it runs on, and its name, number and seed."""

    workload: Workload
    partition_id: str
    who: str
    number: int
    seed: str
    journal: str = ""  # file that receives each call, and survives the process; "" for none


@dataclass(frozen=True)
class WorkloadResult:
    """The calls of a workload, and how it ended."""

    operations: list[Operation]
    finished: bool  # whether it ended
    hangs: bool  # whether one of its calls is overdue
    traceback: str = ""  # of an error of the workload itself that ended it


class WorkloadThread:
    """Runs one workload at a time on one client."""

    def __init__(self, client: DataPlaneClient) -> None:
        self._client = client
        self._log: LoggingClient | None = None
        self._thread = threading.Thread()
        self._traceback = ""

    def begin(self, spec: WorkloadSpec) -> None:
        """Start the workload."""
        journal = Journal(Path(spec.journal)) if spec.journal else None
        log = LoggingClient(
            self._client, spec.partition_id, spec.who, spec.number, spec.seed, journal
        )
        self._log, self._traceback = log, ""
        self._thread = threading.Thread(
            target=self._run, args=(spec.workload, log), name=spec.who, daemon=True
        )
        self._thread.start()

    def _run(self, workload: Workload, client: LoggingClient) -> None:
        try:
            workload.run(client)
        except WorkloadStopped:
            return
        except Exception:  # noqa: BLE001 - the client catches the plane's errors: this one is ours
            self._traceback = traceback.format_exc()

    def stop(self) -> None:
        """Ask the workload to end."""
        if self._log is not None:
            self._log.stop()

    def drain(self) -> list[Operation]:
        """Return the calls since the last ``drain``; a call under way has no end, and comes again.

        An error of the workload itself is raised here.
        """
        if self._traceback:
            raise RuntimeError(f"a workload raised:\n{self._traceback}")
        return self._log.drain() if self._log is not None else []

    def grant(self, ids: list[str]) -> None:
        """Let the workload put these ids."""
        if self._log is not None:
            self._log.grant(ids)

    @property
    def running(self) -> bool:
        """Whether the workload has not ended."""
        return self._thread.is_alive()

    def give_up(self) -> None:
        """Let the workload make no call after the call under way; don't wait for it to end."""
        if self._log is not None:
            self._log.give_up()

    def finish(self, call_s: float, all_s: float) -> WorkloadResult:
        """Wait until the workload ends, a call takes longer than ``call_s``, or ``all_s`` are over.

        A workload that has not ended by then is given up; on a plane whose claims always return
        rows it would never end.
        """
        assert self._log is not None
        deadline = time.monotonic() + all_s
        hangs = False
        while self._thread.is_alive() and not hangs and time.monotonic() < deadline:
            self._thread.join(min(call_s / 4, all_s))
            hangs = self._log.overdue(call_s)
        finished = not self._thread.is_alive()
        if not finished:
            self.give_up()
        return WorkloadResult(self._log.operations, finished, hangs, self._traceback)
