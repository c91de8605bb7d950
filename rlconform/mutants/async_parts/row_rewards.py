"""Rewards of rows: of other rows, of none, asked for twice, or with another row's metadata."""

from __future__ import annotations

import asyncio
from concurrent.futures import Future
from dataclasses import replace

from rlconform.events.schema import RewardFailureCause
from rlconform.grpo.rewards.base import Reward, RewardRequest
from rlconform.grpo.rewards.loop import RewardLoop
from rlconform.grpo.rewards.outcome import FailedReward, RewardOutcome
from rlconform.grpo.rollout.row_rewards import RowRewards
from rlconform.grpo.rollout.turn_loop import RolloutRow
from rlconform.grpo.tasks import PolicyTurn, Problem
from rlconform.mutants.async_parts.part_defect import part_defect
from rlconform.mutants.call import State


@part_defect("row_outcomes", evidence="expected", seen="verl zip(strict=False)")
class MissingRewardsZippedAway(RowRewards):
    """Pairs the rewards that there are with the first rows, and leaves the last rows out."""

    def wait(self, given_up: Future[None] | None = None) -> None:
        super().wait(given_up)
        rows = [row for row, _ in self._open]
        there = [row.outcome for row in rows if isinstance(row.outcome, Reward)]
        for row in rows:
            row.outcome = None
        for row, outcome in zip(rows, there, strict=False):
            row.outcome = outcome


@part_defect("row_outcomes", evidence="that the scorer gave to", seen="NeMo-RL#3923")
class NeighboursReward(RowRewards):
    """Pairs the rewards with the rows after these were put into another order."""

    def wait(self, given_up: Future[None] | None = None) -> None:
        super().wait(given_up)
        rows = [row for row, _ in self._open if isinstance(row.outcome, Reward)]
        outcomes = [row.outcome for row in rows]
        for row, outcome in zip(rows, [*outcomes[1:], *outcomes[:1]], strict=True):
            row.outcome = outcome


@part_defect("row_outcomes", evidence="expected no reward of", seen="NeMo-RL, verl default score")
class NoRewardIsZero(RewardLoop):
    """Takes 0 as the reward of a row that has none."""

    async def _outcome(self, request: RewardRequest) -> RewardOutcome:
        outcome = await super()._outcome(request)
        if isinstance(outcome, FailedReward):
            return Reward(request.sample_id, request.attempt, 0.0)
        return outcome


@part_defect("row_outcomes", evidence="expected a finite reward", seen="trl, verl NaN reward")
class AnswersUnchecked(RewardLoop):
    """Takes whatever a scorer answers."""

    async def _outcome(self, request: RewardRequest) -> RewardOutcome:
        try:
            return await asyncio.wait_for(self._scorer.score(request), self.options.timeout_s)
        except (ValueError, TimeoutError) as error:
            return FailedReward.of(error)


@part_defect("row_outcomes", evidence="expected a reward of", seen="verl, rllm")
class OneFailureFailsAll(RowRewards):
    """Fails all rows of a call when the scorer raises for one."""

    def wait(self, given_up: Future[None] | None = None) -> None:
        super().wait(given_up)
        failed = [row.outcome for row, _ in self._open if isinstance(row.outcome, FailedReward)]
        for row, _ in self._open:
            if failed and row.outcome is not None:
                row.outcome = failed[0]


@part_defect("row_outcomes", evidence="which is empty; got", seen="verl empty response")
class EmptyRowHasNoReward(RowRewards):
    """Gives a row without any text no reward, and so drops it from its group."""

    def done(self, row: RolloutRow) -> None:
        super().done(row)
        if not any(turn.text for turn in row.turns):
            row.outcome = FailedReward(RewardFailureCause.RAISED, "no text")


@part_defect(
    "row_requests", evidence="expected no request for", seen="verl empty response",
    may="row_outcomes",
)  # fmt: skip
class EmptyRowScored(RowRewards):
    """Asks the scorer for rows without any text."""

    def done(self, row: RolloutRow) -> None:
        super().done(row)
        if not any(turn.text for turn in row.turns):
            turns, row.turns = row.turns, [PolicyTurn(" ", ended=True)]
            super().done(row)
            row.turns = turns


@part_defect("row_requests", evidence="expected one request for", seen="rllm", may="row_outcomes")
class ScoredAtTwoPlaces(RowRewards):
    """Asks for the reward when a row is done, and again when its group is."""

    def done(self, row: RolloutRow) -> None:
        super().done(row)
        if row.outcome is None:
            row.scorings -= 1
            super().done(row)


@part_defect("row_requests", evidence="expected one request for", seen="AReaL", may="row_outcomes")
class AttemptNotCounted(RowRewards):
    """Asks for a row that goes on after an abort under the number of the first attempt."""

    def done(self, row: RolloutRow) -> None:
        super().done(row)
        row.scorings = 0


@part_defect("row_requests", evidence="expected problem", seen="verl extra_info[0]")
class MetadataOfTheFirstRow(RowRewards):
    """Sends the problem of the first row with all rows."""

    _first = State(list[Problem])

    def done(self, row: RolloutRow) -> None:
        self._first.append(row.problem)
        own, row.problem = row.problem, self._first[0]
        super().done(row)
        row.problem = own


@part_defect("row_requests", evidence="as one of train", seen="verl validate, trl")
class ValidationScoredAsTraining(RewardLoop):
    """Says of the rows of a validation that they belong to the training."""

    def submit(self, request: RewardRequest) -> Future[RewardOutcome]:
        return super().submit(replace(request, split="train"))
