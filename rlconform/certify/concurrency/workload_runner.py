"""``WorkloadRunner`` runs workloads concurrently, in processes or threads, and returns one history.

run ──begin──▶ handles                          all at the same time
    ◀─finish── handles of leading workloads     which end without a stop
    ──stop───▶ the others ──finish──▶
History: the operations of all workloads, ordered by one clock
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Protocol

from rlconform.certify.assertions.expect import ContractViolation
from rlconform.certify.concurrency.history import History
from rlconform.certify.concurrency.operation import Operation
from rlconform.certify.concurrency.workload_thread import WorkloadResult, WorkloadSpec
from rlconform.certify.concurrency.workloads import Workload
from rlconform.certify.recording.recorder import MethodGivenUp
from rlconform.contract import Timeouts


class WorkloadHandle(Protocol):
    """Runs a workload in this process or in another one; see ``WorkloadThread``."""

    def begin(self, spec: WorkloadSpec) -> None:
        """Start the workload."""

    def stop(self) -> None:
        """Ask the workload to end."""

    def give_up(self) -> None:
        """Stop the workload, if it was begun, from making more calls."""

    def finish(self, call_s: float, all_s: float) -> WorkloadResult:
        """Wait until the workload ends; return its operations."""


def run_lengths(seconds: float) -> Iterator[float]:
    """Yield the seconds of a short and a long run of a race; the short run finds most defects."""
    yield seconds / 4
    yield seconds - seconds / 4


class WorkloadRunner:
    """Runs workloads on one partition.

    Args:
        handles: ``handles(n)`` returns n handles.
        partition_id, timeouts: The partition, and the target's timeouts.
        seed: Seeds the random choices of the workloads.
        on_operations: Called with the operations of each run, also of a run that ends in an error.
        given_up: Kinds of calls that are no longer made, with the reason.
    """

    def __init__(
        self,
        handles: Callable[[int], Sequence[WorkloadHandle]],
        partition_id: str,
        timeouts: Timeouts,
        seed: str,
        on_operations: Callable[[list[Operation]], None],
        given_up: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self._given_up = given_up
        self._handles, self._partition_id = handles, partition_id
        self._timeouts, self._seed, self._on_operations = timeouts, seed, on_operations
        self._started = 0
        self._operations: list[Operation] = []

    def run(self, *workloads: Workload) -> History:
        """Run the workloads until all have ended or hang; return the history of all runs so far.

        A call that takes longer than the target's operation timeout has no end in the history.

        Raises:
            ContractViolation: The workloads did not end within half of the target's check timeout,
                though their calls returned; or the process of a workload ended.
            RuntimeError: A workload itself raised, which is an error of rlconform.
            MethodGivenUp: A workload needs a kind of call that hung too often.
        """
        for kind in (kind for workload in workloads for kind in workload.needs):
            if why := self._given_up.get(kind):
                raise MethodGivenUp(why)
        handles = self._handles(len(workloads))
        try:
            results = self._run_all(handles, workloads)
        except ContractViolation:  # one process ended; the others must be stopped here
            for handle in handles:
                handle.give_up()
            raise
        return self._collect(results)

    def _run_all(
        self, handles: Sequence[WorkloadHandle], workloads: Sequence[Workload]
    ) -> list[WorkloadResult]:
        pairs = list(zip(handles, workloads, strict=True))
        for number, (handle, workload) in enumerate(pairs, self._started):
            who = f"{type(workload).__name__.lower()}{number}"
            handle.begin(WorkloadSpec(workload, self._partition_id, who, number, self._seed))
        self._started += len(workloads)
        followers = [handle for handle, workload in pairs if not workload.leads]
        results = [self._finish(handle) for handle, workload in pairs if workload.leads]
        for handle in followers:
            handle.stop()
        return results + [self._finish(handle) for handle in followers]

    def _finish(self, handle: WorkloadHandle) -> WorkloadResult:
        return handle.finish(self._timeouts.operation, self._timeouts.check / 2)

    def _collect(self, results: list[WorkloadResult]) -> History:
        operations = [op for result in results for op in result.operations]
        self._on_operations(operations)
        self._operations += operations
        history = History(self._operations)
        for trace in (result.traceback for result in results if result.traceback):
            raise RuntimeError(f"a workload raised:\n{trace}")
        if any(not result.finished and not result.hangs for result in results):
            raise ContractViolation(
                f"all rows to be claimed within {self._timeouts.check / 2:g} s",
                f"{len(history.operations)} calls, and claims still return rows",
            )
        return history
