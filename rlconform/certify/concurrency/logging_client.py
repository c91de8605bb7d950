"""``LoggingClient`` logs each call of a workload as it is invoked and as it completes."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from tensordict import TensorDict

from rlconform.certify.assertions.values import ContractViolation
from rlconform.certify.concurrency.events import Operation
from rlconform.certify.recording.text import shorten
from rlconform.certify.scenarios.row_versions import Dtypes, batch, values_of
from rlconform.contract import DataPlaneClient, Tags

#: A put that only has to be made: what is written down of it, and its columns.
Put = tuple[Operation, TensorDict | None]

#: Versions of one role; those of the next begin above them.
_VERSIONS = 1_000_000
#: Refused calls after which a role gives up: the history has what it needs.
MOST_REFUSALS = 20
#: Turns for each second that a role has: what they catch depends on them, not on the time.
LEAST_PER_S = 20
#: How many times its seconds a role may take for them, on a slow plane or a busy machine.
PATIENCE = 3


class WorkloadStopped(Exception):
    """Nobody waits for this role any more: it ends at its next call."""


class LoggingClient:
    """A role at work.

    Attributes:
        who: Its name in the history.
        number: Its place among the roles, which makes its versions its own.
        rng: Its own source of chance.
        refusals: Calls of its that raised although no call of theirs may.
    """

    def __init__(
        self, client: DataPlaneClient, partition_id: str, who: str, number: int, seed: str
    ) -> None:
        self.who, self.number = who, number
        self.rng = random.Random(f"{seed}:{number}")
        self.refusals = 0
        self._client, self._partition_id = client, partition_id
        self._version = number * _VERSIONS
        self._events: list[Operation] = []
        self._stop = threading.Event()
        self._given_up = False

    # -- for whoever watches -------------------------------------------------------------------

    @property
    def events(self) -> list[Operation]:
        """What was done so far; a call under way has no end."""
        return list(self._events)

    def stop(self) -> None:
        """Let the role come to its end."""
        self._stop.set()

    def give_up(self) -> None:
        """Let the role make no more calls; it may never come to its end by itself."""
        self._given_up = True
        self._stop.set()

    def overdue(self, seconds: float) -> bool:
        """Whether a call has been under way for longer."""
        last = self._events[-1] if self._events else None
        return last is not None and last.end is None and time.monotonic() - last.start > seconds

    # -- for the role --------------------------------------------------------------------------

    @property
    def stopping(self) -> bool:
        """Whether the role is to come to its end."""
        return self._stop.is_set()

    def until_stopped(self, most: int, apart_s: float = 0.0) -> Iterator[int]:
        """Numbers of turns until the leading roles are over; no more of them than ``most``.

        They lie ``apart_s`` seconds apart, so that those of a call that costs nothing last as well.
        """
        for turn in range(most):
            if self.stopping:
                return
            yield turn
            if apart_s:
                self.pause(apart_s)
        self.wait_for_stop()

    def pause(self, seconds: float) -> None:
        """Wait so long, or until the leading roles are over."""
        self._stop.wait(seconds)

    def wait_for_stop(self) -> None:
        """Wait until the leading roles are over."""
        self._stop.wait()

    def turns(self, seconds: float, most: int) -> Iterator[int]:
        """Numbers of turns, for so long, and no more of them.

        Where they are slow it takes longer, up to ``PATIENCE`` times, for ``LEAST_PER_S`` a second.
        """
        begun = time.monotonic()
        for turn in range(most):
            enough = turn >= LEAST_PER_S * seconds
            over = time.monotonic() - begun > seconds * (1 if enough else PATIENCE)
            if over or self.stopping or self.refusals > MOST_REFUSALS:
                return
            yield turn

    def prepared(
        self,
        ids: Sequence[str],
        fields: Sequence[str],
        tags: list[Tags] | None = None,
        *,
        ragged: bool = False,
        dtypes: Dtypes | None = None,
    ) -> Put:
        """A put of self-describing rows of a new version, and of tags, that only has to be made."""
        self._version += 1
        event = Operation(
            who=self.who,
            op="put",
            start=0.0,
            ids=tuple(ids),
            fields=tuple(fields),
            version=self._version if fields else None,
            tags=None if tags is None else tuple(tags),
        )
        columns = batch(
            self._partition_id, ids, fields, self._version, ragged=ragged, dtypes=dtypes
        )
        return event, columns if fields else None

    def put(self, prepared: Put) -> None:
        """Make a put."""
        event, columns = prepared
        extra = {} if event.tags is None else {"tags": list(event.tags)}
        self._done(
            event,
            lambda: self._client.put_samples(
                sample_ids=list(event.ids),
                partition_id=self._partition_id,
                fields=columns,
                **extra,
            ),
            lambda _: {},
        )

    def claim(self, task: str, fields: Sequence[str], batch_size: int) -> list[Any]:
        """Claim without waiting; the ids that came."""
        begun = Operation(
            who=self.who, op="claim", start=0.0, task=task, asked=batch_size, fields=tuple(fields)
        )
        done = self._done(
            begun,
            lambda: self._client.claim_meta(
                partition_id=self._partition_id,
                task_name=task,
                required_fields=list(fields),
                batch_size=batch_size,
                blocking=False,
            ),
            lambda meta: {
                "ids": tuple(map(_id, meta.sample_ids)),
                "tags": None if meta.tags is None else tuple(map(dict, meta.tags)),
            },
        )
        return [i for i in done.ids if isinstance(i, str)]

    def get(
        self, ids: Sequence[str], fields: Sequence[str], *, dtypes: Dtypes | None = None
    ) -> None:
        """Read rows."""
        begun = Operation(who=self.who, op="get", start=0.0, ids=tuple(ids), fields=tuple(fields))
        self._done(
            begun,
            lambda: self._client.get_samples(
                sample_ids=list(ids), partition_id=self._partition_id, select_fields=list(fields)
            ),
            lambda came: {"values": values_of(came, self._partition_id, ids, fields, dtypes)},
        )

    def clear(self, ids: Sequence[str]) -> None:
        """Clear rows."""
        begun = Operation(who=self.who, op="clear", start=0.0, ids=tuple(ids))
        self._done(
            begun,
            lambda: self._client.clear_samples(
                sample_ids=list(ids), partition_id=self._partition_id
            ),
            lambda _: {},
        )

    def status(self, task: str) -> None:
        """Ask whether the task has claimed everything."""
        begun = Operation(who=self.who, op="status", start=0.0, task=task)
        self._done(
            begun,
            lambda: self._client.check_consumption_status(
                partition_id=self._partition_id, task_names=[task]
            ),
            lambda answer: {"answer": bool(answer)},
        )

    def register(self, fields: Sequence[str], tasks: Sequence[str]) -> None:
        """Register the partition."""
        begun = Operation(who=self.who, op="register", start=0.0, fields=tuple(fields))
        self._done(
            begun,
            lambda: self._client.register_partition(
                partition_id=self._partition_id,
                fields=list(fields),
                num_samples=64,
                consumer_tasks=list(tasks),
            ),
            lambda _: {},
        )

    def _done(
        self,
        begun: Operation,
        call: Callable[[], Any],
        outcome: Callable[[Any], dict[str, Any]],
    ) -> Operation:
        """Make the call between two readings of the clock; the event as it is written down."""
        if self._given_up:
            raise WorkloadStopped(f"{begun.op} of {self.who}")
        index = len(self._events)
        begun = replace(begun, start=time.monotonic())
        self._events.append(begun)
        try:
            came = call()
        except Exception as error:  # noqa: BLE001 - whatever the plane raises is data
            done = replace(begun, end=time.monotonic(), error=_said(error))
        else:
            done = replace(begun, end=time.monotonic())
            try:
                done = replace(done, **outcome(came))
            except (ContractViolation, AttributeError, TypeError) as error:
                done = replace(done, error=f"{shorten(repr(came), 80)}: {_said(error)}")
        self._events[index] = done
        self.refusals += bool(done.error) and done.op != "get"
        return done


def _id(came: Any) -> str | None:
    """An id as it came; what is no text, and may be anything, as None."""
    return came if isinstance(came, str) else None


def _said(error: Exception) -> str:
    return f"{type(error).__name__}: {shorten(str(error), 160)}"
