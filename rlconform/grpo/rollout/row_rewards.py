"""``RowRewards``: the rewards of the rows of one call, from the last token of each to its reward.

    thread that generates ── done(row) ──▶ RewardLoop      at once; the others go on
                          ── wait(given_up) ──▶ all rows have their outcome, or the call was aborted
    thread that aborts    ── sets ``given_up`` ─▶ wakes the waiting thread

A row that was given up keeps no outcome; it is scored anew, as the next attempt, when it goes on.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from concurrent.futures import Future
from types import TracebackType
from typing import Self

from rlconform.grpo.failures import RewardFailure
from rlconform.grpo.rewards.base import RewardRequest
from rlconform.grpo.rewards.loop import RewardLoop
from rlconform.grpo.rewards.outcome import FailedReward, RewardOutcome
from rlconform.grpo.rollout.turn_loop import RolloutRow
from rlconform.grpo.tasks import Split


class RowRewards:
    """Gets the rewards of rows; used by one thread, in a ``with`` block, which gives up the rest.

    ::

        with RowRewards(loop, split) as rewards:
            turn_loop.run(rows, should_stop, rewards.done)
            rewards.wait(given_up)
    """

    def __init__(self, loop: RewardLoop, split: Split) -> None:
        self._loop, self._split = loop, split
        self._changed = threading.Condition()
        self._open: list[tuple[RolloutRow, Future[RewardOutcome]]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for _, future in self._open:
            future.cancel()

    def done(self, row: RolloutRow) -> None:
        """Ask for the reward of a row that is done; without any text it is the configured one."""
        request = RewardRequest(
            row.sample_id,
            row.scorings,
            row.problem,
            tuple(row.turns),
            self._split,
            tuple(row.environment),
        )
        if not any(turn.text for turn in row.turns):
            row.outcome = self._loop.without_text(request)
            return
        row.scorings += 1
        future = self._loop.submit(request)
        self._open.append((row, future))
        future.add_done_callback(self._wake)

    def wait(self, given_up: Future[None] | None = None) -> None:
        """Wait until every row that is done has its outcome, or until ``given_up`` is done.

        ``RewardFailure`` if a row has none, and ``reward_loop.on_failure`` is ``raise``.
        """
        if given_up is not None:
            given_up.add_done_callback(self._wake)
        with self._changed:
            self._changed.wait_for(
                lambda: (
                    (given_up is not None and given_up.done())
                    or all(future.done() for _, future in self._open)
                )
            )
        for row, future in self._open:
            if future.done():
                row.outcome = future.result()
        if self._loop.options.on_failure == "raise":
            _raise_first(row for row, _ in self._open)

    def _wake(self, _: Future[RewardOutcome] | Future[None]) -> None:
        with self._changed:
            self._changed.notify_all()


def _raise_first(rows: Iterable[RolloutRow]) -> None:
    """Raise the first failure of the rows."""
    for row in rows:
        if isinstance(row.outcome, FailedReward):
            raise RewardFailure(
                f"row {row.sample_id!r} has no reward: {row.outcome.error} "
                "(reward_loop.on_failure: raise)",
                cause=row.outcome.cause,
            )
