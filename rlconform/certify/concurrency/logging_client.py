"""``LoggingClient`` makes the calls of a workload and logs the start and end of each."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from queue import SimpleQueue
from typing import Any

from tensordict import TensorDict

from rlconform.certify.assertions.expect import ContractViolation
from rlconform.certify.concurrency.journal import Journal
from rlconform.certify.concurrency.operation import Op, Operation
from rlconform.certify.recording.shorten import shorten
from rlconform.certify.scenarios.labeled_rows import Dtypes, versioned_batch, versions_in
from rlconform.contract import DataPlaneClient, Tags

#: A put that is ready to be made: the attributes of its operation, and its columns.
PreparedPut = tuple[dict[str, Any], TensorDict | None]

#: Versions reserved for each workload, so that no two workloads use the same version.
_VERSIONS = 1_000_000
#: Most rounds of a leading workload, as a fast plane could do very many in its time.
MOST_ROUNDS = 1500
#: Most rounds of a workload that runs until stopped; after them it only waits.
MOST_FOLLOWER_ROUNDS = 6000
#: Refused calls after which a workload ends: the history has enough of them.
MOST_REFUSALS = 20
#: Rounds per second that a workload should reach; more rounds find more defects.
LEAST_PER_S = 20
#: On a slow plane a workload may take this many times its seconds to reach these rounds.
PATIENCE = 3


class WorkloadStopped(Exception):
    """The workload was given up and ends at its next call."""


class LoggingClient:
    """Makes and logs the calls of one workload.

    Attributes:
        who: The workload's name in the history.
        number: The workload's number, which keeps its versions apart from those of others.
        rng: The workload's own random generator.
        refusals: Number of calls other than reads that raised.
    """

    def __init__(
        self,
        client: DataPlaneClient,
        partition_id: str,
        who: str,
        number: int,
        seed: str,
        journal: Journal | None = None,
    ) -> None:
        self.who, self.number = who, number
        self._journal = journal
        self.rng = random.Random(f"{seed}:{number}")
        self.refusals = 0
        self._client, self._partition_id = client, partition_id
        self._version = number * _VERSIONS
        self._operations: list[Operation] = []
        self._granted: SimpleQueue[list[str]] = SimpleQueue()
        self._made = 0  # calls
        self._stop = threading.Event()
        self._given_up = False

    # -- for the thread that watches the workload ----------------------------------------------

    @property
    def operations(self) -> list[Operation]:
        """The calls made so far; a call under way has no end time."""
        return list(self._operations)

    def stop(self) -> None:
        """Ask the workload to end."""
        self._stop.set()

    def give_up(self) -> None:
        """Let the workload make no more calls; otherwise it might never end."""
        self._given_up = True
        self._stop.set()

    def drain(self) -> list[Operation]:
        """Return the calls so far, and forget those that have ended: a long run has millions."""
        calls = self.operations  # only its end grows meanwhile, and the last call's state changes
        ended = [op for op in calls if op.end is not None]
        del self._operations[: len(ended)]
        return calls

    def grant(self, ids: list[str]) -> None:
        """Let the workload put these ids."""
        self._granted.put(ids)

    def overdue(self, seconds: float) -> bool:
        """Whether the call under way has taken longer than ``seconds``."""
        last = self._operations[-1] if self._operations else None
        return last is not None and last.end is None and time.monotonic() - last.start > seconds

    # -- for the workload: when to continue -------------------------------------------------------

    @property
    def stopping(self) -> bool:
        """Whether the workload was asked to end."""
        return self._stop.is_set()

    def rounds(self, seconds: float, most: int = MOST_ROUNDS) -> Iterator[int]:
        """Yield the numbers of rounds for ``seconds``, at most ``most`` of them.

        Slow rounds may take ``PATIENCE`` times as long, until ``LEAST_PER_S`` per second are done.
        """
        begun = time.monotonic()
        for number in range(most):
            enough = number >= LEAST_PER_S * seconds
            late = time.monotonic() - begun > seconds * (1 if enough else PATIENCE)
            if late or self.stopping or self.refusals > MOST_REFUSALS:
                return
            yield number

    def rounds_until_stopped(self, pause_s: float = 0.0) -> Iterator[int]:
        """Yield the numbers of rounds until the leading workloads, which need no stop, have ended.

        A pause after each round keeps fast calls from reaching ``MOST_FOLLOWER_ROUNDS`` early.
        """
        for number in range(MOST_FOLLOWER_ROUNDS):
            if self.stopping:
                return
            yield number
            if pause_s:
                self.pause(pause_s)
        self.wait_for_stop()

    def take_granted(self) -> list[str]:
        """Return the ids that were granted since the last call."""
        ids: list[str] = []
        while not self._granted.empty():
            ids += self._granted.get()
        return ids

    def pause(self, seconds: float) -> None:
        """Wait for ``seconds``, or until the leading workloads have ended."""
        self._stop.wait(seconds)

    def wait_for_stop(self) -> None:
        """Wait until the leading workloads have ended."""
        self._stop.wait()

    # -- for the workload: calls ---------------------------------------------------------------

    def prepare_put(
        self,
        ids: Sequence[str],
        fields: Sequence[str],
        tags: list[Tags] | None = None,
        *,
        ragged: bool = False,
        dtypes: Dtypes | None = None,
        width: int = 0,
    ) -> PreparedPut:
        """Build the rows of a new version for ``put``, so that building them delays no put.

        A row has at least ``width`` bytes.
        """
        self._version += 1
        written: dict[str, Any] = {"ids": tuple(ids), "fields": tuple(fields)}
        if tags is not None:
            written["tags"] = tuple(tags)
        if not fields:
            return written, None
        written["version"] = self._version
        return written, versioned_batch(
            self._partition_id,
            ids,
            fields,
            self._version,
            ragged=ragged,
            dtypes=dtypes,
            width=width,
        )

    def put(self, prepared: PreparedPut) -> None:
        """Make a put that ``prepare_put`` returned."""
        written, columns = prepared
        extra: dict[str, Any] = {"tags": list(written["tags"])} if "tags" in written else {}
        put = partial(
            self._client.put_samples, sample_ids=list(written["ids"]), fields=columns, **extra
        )
        self._log("put", put, **written)

    def claim(
        self, task: str, fields: Sequence[str], batch_size: int, wait_s: float = 0.0
    ) -> list[Any]:
        """Claim, waiting up to ``wait_s`` for rows; return the claimed ids that are strings."""
        waiting: dict[str, Any] = {"timeout_s": wait_s} if wait_s else {}
        claim = partial(
            self._client.claim_meta,
            task_name=task,
            required_fields=list(fields),
            batch_size=batch_size,
            blocking=wait_s > 0,
            **waiting,
        )
        known = {"task": task, "asked": batch_size, "fields": tuple(fields), "waits": wait_s}
        ids = self._log("claim", claim, _claimed, **known).ids
        return [i for i in ids if isinstance(i, str)]

    def get(
        self, ids: Sequence[str], fields: Sequence[str], *, dtypes: Dtypes | None = None
    ) -> None:
        """Read fields of rows."""
        get = partial(self._client.get_samples, sample_ids=list(ids), select_fields=list(fields))

        def values(got: Any) -> dict[str, Any]:
            return {"values": versions_in(got, self._partition_id, ids, fields, dtypes)}

        self._log("get", get, values, ids=tuple(ids), fields=tuple(fields))

    def clear(self, ids: Sequence[str]) -> None:
        """Clear rows."""
        clear = partial(self._client.clear_samples, sample_ids=list(ids))
        self._log("clear", clear, ids=tuple(ids))

    def status(self, task: str) -> None:
        """Ask whether the task has claimed every row."""
        ask = partial(self._client.check_consumption_status, task_names=[task])
        self._log("status", ask, lambda answer: {"answer": bool(answer)}, task=task)

    def register(self, fields: Sequence[str], tasks: Sequence[str]) -> None:
        """Register the partition."""
        register = partial(
            self._client.register_partition,
            fields=list(fields),
            num_samples=64,
            consumer_tasks=list(tasks),
        )
        self._log("register", register, fields=tuple(fields))

    def _log(
        self,
        kind: Op,
        call: Callable[..., Any],
        result_of: Callable[[Any], dict[str, Any]] = lambda _: {},
        **known: Any,
    ) -> Operation:
        """Make the call on the partition; return the logged operation with its start and end time.

        ``known`` holds attributes that are known before the call; ``result_of`` returns further
        attributes from what the call returned.
        """
        if self._given_up:
            raise WorkloadStopped(f"{kind} of {self.who}")
        index = self._made
        self._made += 1
        op = Operation(who=self.who, op=kind, start=time.monotonic(), **known)
        self._operations.append(op)
        self._note(index, op)
        try:
            returned = call(partition_id=self._partition_id)
        except BaseException as error:  # noqa: BLE001 - whatever the plane raises is data
            bases = tuple(base.__name__ for base in type(error).__mro__)
            ended = time.monotonic()
            done = replace(op, end=ended, error=_error_text(error), error_bases=bases)
        else:
            done = replace(op, end=time.monotonic())
            try:
                done = replace(done, **result_of(returned))
            except (ContractViolation, AttributeError, TypeError) as error:
                done = replace(done, error=f"{shorten(repr(returned), 80)}: {_error_text(error)}")
        self._operations[-1] = done  # a workload makes one call at a time
        self._note(index, done)
        self.refusals += bool(done.error) and done.op != "get"
        return done

    def _note(self, index: int, op: Operation) -> None:
        if self._journal is not None:
            self._journal.write(index, op)


def _error_text(error: BaseException) -> str:
    return f"{type(error).__name__}: {shorten(str(error), 160)}"


def _claimed(meta: Any) -> dict[str, Any]:
    return {
        "ids": tuple(i if isinstance(i, str) else None for i in meta.sample_ids),
        "tags": None if meta.tags is None else tuple(map(dict, meta.tags)),
    }
