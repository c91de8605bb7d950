"""``RolloutEvents``: what a rollout worker writes into the event log.

    thread of a group ── started ─▶ tokens ─▶ ended: segments, ends ─▶ rewarded ┐ one lock
    refit             ── the engine's weights change, applied ──────────────────┘

The lock keeps the order of the log true: no line names weights before the line that says that the
engine has them. A refit holds it while it waits for the engine, between two tokens.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from hashlib import blake2b
from itertools import groupby

import torch

from rlconform.events import EventWriter
from rlconform.events.schema import (
    DropCause,
    RewardComputed,
    RewardFailed,
    RolloutAborted,
    RolloutFailed,
    RolloutFinished,
    RolloutStarted,
    RunEvent,
    Segment,
    WeightsApplied,
)
from rlconform.grpo.algorithm.advantages import group_of
from rlconform.grpo.rewards.base import Reward
from rlconform.grpo.rollout.turn_loop import RolloutRow

#: How a leg of a row ended, if it is not done.
Unfinished = tuple[type[RolloutAborted] | type[RolloutFailed], DropCause]
#: Rows that were aborted; the driver says later why, or goes on with them.
ABORTED: Unfinished = (RolloutAborted, DropCause.ABORTED_SYNC)


class RolloutEvents:
    """Writes starts, segments, ends and rewards of rows, and the weights that the engine has."""

    def __init__(self, writer: EventWriter) -> None:
        self._writer = writer
        self._engine = f"rollout-{writer.source.rank}"
        self._lock = threading.Lock()

    def stamp(self) -> int:
        """Return the clock for an answer to the driver."""
        return self._writer.stamp()

    def observe(self, stamp: int) -> None:
        """Take note of the clock of a call."""
        self._writer.observe(stamp)

    def begins_with(self, version: int) -> None:
        """Write which weights the engine has before any refit of the run."""
        self._writer.write(WeightsApplied(version=version, engine=self._engine))

    def applied(self, version: int, load: Callable[[], str]) -> str:
        """Change the engine's weights with ``load``, write that it has them; return the digest."""
        with self._lock:
            digest = load()
            self._writer.write(WeightsApplied(version=version, engine=self._engine, digest=digest))
        return digest

    def started(self, rows: Sequence[RolloutRow], version: Callable[[], int]) -> RolloutLegs:
        """Write that the engine takes these rows; the result writes how they end."""
        open_rows = [row for row in rows if not row.done]
        with self._lock:
            stamp = version()
            for row in open_rows:
                self._writer.write(
                    RolloutStarted(
                        group_id=group_of(row.sample_id),
                        row=_number(row),
                        weight_version=stamp,
                        engine=self._engine,
                    )
                )
        unrewarded = [row for row in rows if row.outcome is None]
        return RolloutLegs(open_rows, unrewarded, self._write_all)

    def _write_all(self, events: Iterator[RunEvent]) -> None:
        with self._lock:
            for event in events:
                self._writer.write(event)


class RolloutLegs:
    """Rows from their start in this worker until they are rewarded, aborted or failed."""

    def __init__(
        self,
        rows: Sequence[RolloutRow],
        unrewarded: Sequence[RolloutRow],
        write: Callable[[Iterator[RunEvent]], None],
    ) -> None:
        self._before = [(row, len(_versions(row))) for row in rows]
        self._unrewarded = unrewarded
        self._write = write

    def ended(self, unfinished: Unfinished = ABORTED) -> None:
        """Write the tokens of this leg and how each row ended."""
        self._write(self._events(unfinished))

    def rewarded(self) -> None:
        """Write the reward of each row that got one in this leg, or why it has none."""
        self._write(self._reward_events())

    def _reward_events(self) -> Iterator[RunEvent]:
        return (_reward_event(row) for row in self._unrewarded if row.outcome is not None)

    def _events(self, unfinished: Unfinished) -> Iterator[RunEvent]:
        for row, before in self._before:
            group_id, number = group_of(row.sample_id), _number(row)
            versions = _versions(row)
            for version, tokens in groupby(versions[before:]):
                yield Segment(
                    group_id=group_id, row=number, weight_version=version, tokens=len([*tokens])
                )
            if not row.done:
                kind, cause = unfinished
                yield kind(group_id=group_id, row=number, cause=cause, tokens=len(versions))
                continue
            yield RolloutFinished(
                group_id=group_id, row=number, tokens=len(versions), output=_digest(row)
            )


def _reward_event(row: RolloutRow) -> RunEvent:
    group_id, number, output = group_of(row.sample_id), _number(row), _digest(row)
    match row.outcome:
        case Reward(value=value):
            return RewardComputed(group_id=group_id, row=number, reward=value, output=output)
        case failed:
            assert failed is not None  # the caller leaves rows without an outcome out
            return RewardFailed(
                group_id=group_id, row=number, cause=failed.cause, error=failed.error, output=output
            )


def _number(row: RolloutRow) -> int:
    return int(row.sample_id.rpartition("_g")[2])


def _versions(row: RolloutRow) -> list[int]:
    """Return the version of each token that the policy has written so far."""
    parts = [response.versions for response in row.responses]
    versions: list[int] = torch.cat([*parts, row.cut.versions]).tolist()
    return versions


def _digest(row: RolloutRow) -> str:
    """Return the digest of what the policy has written."""
    digest = blake2b(digest_size=8)
    for response in row.responses:
        digest.update(response.token_ids.contiguous().numpy().data)
    return digest.hexdigest()
