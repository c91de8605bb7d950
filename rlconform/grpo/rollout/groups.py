"""Prompt groups that are generated one per call: their results, and those that are in flight.

    trainer ── generate_group, one thread per group ──▶ worker: ``GroupsInFlight.enter``
            ── abort(group_ids) ──────────────────────▶ sets the groups' flags, returns at once
               generate_group: looks at its flag between two tokens ──▶ ``AbortedGroup``

Nobody waits here but the end of a run, for calls that are not over; the lock is held only to look
up a flag.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass

from rlconform.contract import KVBatchMeta
from rlconform.grpo.rollout.turn_loop import RolloutRow
from rlconform.grpo.rollout.worker import RowSummary


@dataclass(frozen=True)
class GroupRollout:
    """A group whose G rows are in the plane."""

    meta: KVBatchMeta  # ids <group_id>_g<i>, lengths, tags with both versions
    summaries: list[RowSummary]  # in the order of ``meta.sample_ids``
    start_version: int  # lowest version of the weights that wrote a token of the group
    end_version: int  # highest version
    stamp: int = 0  # the worker's clock of the event log


@dataclass(frozen=True)
class PartialGroup:
    """The G rows of an aborted group, finished and unfinished, with all tokens so far.

    ``generate_group`` of any worker of the same configuration goes on from them. It works on a
    copy, so a partial group can be used more than once. It is picklable.
    """

    group_id: str
    rows: tuple[RolloutRow, ...]


@dataclass(frozen=True)
class AbortedGroup:
    """The result of a group that was aborted; none of its rows is in the plane."""

    partial: PartialGroup
    stamp: int = 0  # the worker's clock of the event log


class GroupsInFlight:
    """The groups that are being generated in this process, each with a flag to abort it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._aborted: dict[str, Future[None]] = {}
        self._calls = 0
        self._call_ended = threading.Condition(self._lock)

    @contextmanager
    def call(self) -> Iterator[None]:
        """Count a call that generates a group and puts it, for the length of the block."""
        with self._lock:
            self._calls += 1
        try:
            yield
        finally:
            with self._call_ended:
                self._calls -= 1
                self._call_ended.notify_all()

    def wait_for_calls(self, timeout_s: float) -> bool:
        """Wait until no call is left; return whether that is so."""
        with self._call_ended:
            return self._call_ended.wait_for(lambda: not self._calls, timeout_s)

    @contextmanager
    def enter(self, group_id: str) -> Iterator[Future[None]]:
        """Yield the group's flag, a future that is done once the group is aborted.

        The group is in flight for the length of the ``with`` block.

        ``ValueError`` if a group with this id is in flight already.
        """
        flag: Future[None] = Future()
        with self._lock:
            if group_id in self._aborted:
                raise ValueError(f"group {group_id!r} is already in flight")
            self._aborted[group_id] = flag
        try:
            yield flag
        finally:
            with self._lock:
                del self._aborted[group_id]

    def abort(self, group_ids: Sequence[str] | None) -> None:
        """Set the flags of the groups that are in flight, of all if None; ignore other ids."""
        with self._lock:
            names = (
                self._aborted.keys() if group_ids is None else self._aborted.keys() & set(group_ids)
            )
            flags = [self._aborted[name] for name in names if not self._aborted[name].done()]
            for flag in flags:
                flag.set_result(None)
