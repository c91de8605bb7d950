"""``judge_rows``: what the reward loop owes each row, judged from what it asked and answered.

    rows that are done ── requests ──▶ scorer of a script ── answers, errors, silence ──▶ outcomes
            └──────────────────────── ScoredRow, one each ── judge_rows ──▶ findings

The judge is a pure function. It knows what the scorer did for each row, and so which outcome is
right: a row has the answer to its own request, or it alone has the failure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import chain
from math import isfinite

from rlconform.events.schema import RewardFailureCause
from rlconform.grpo.history_finding import HistoryFinding
from rlconform.grpo.rewards.base import Reward, RewardRequest
from rlconform.grpo.rewards.outcome import FailedReward, RewardOutcome
from rlconform.grpo.tasks import Problem, Split

OUTCOMES, REQUESTS = "row_outcomes", "row_requests"
#: The rules, each with what it holds.
ROW_RULES = {
    OUTCOMES: "each row has the reward that its scorer gave to it, or alone the failure",
    REQUESTS: "a scorer is asked once per row and attempt, with the row's own problem and split",
}


class ScorerDoes(StrEnum):
    """What the scorer does when it is asked for a row."""

    REWARDS = "rewards it"
    RAISES = "raises"
    NOT_FINITE = "gives NaN"
    OTHER_ROW = "gives the reward of another row"
    MALFORMED = "gives too many turn values"
    HANGS = "gives no answer"


_CAUSES = {
    ScorerDoes.RAISES: RewardFailureCause.RAISED,
    ScorerDoes.NOT_FINITE: RewardFailureCause.NOT_FINITE,
    ScorerDoes.OTHER_ROW: RewardFailureCause.WRONG_ROW,
    ScorerDoes.MALFORMED: RewardFailureCause.MALFORMED,
    ScorerDoes.HANGS: RewardFailureCause.TIMEOUT,
}


@dataclass
class ScoredRow:
    """One row: what it is, what the scorer does for it, and its result."""

    sample_id: str
    problem: Problem
    split: Split
    has_text: bool
    does: ScorerDoes
    #: How often the row was given up before it had its outcome; it is asked for again then.
    given_up: int = 0
    asked: list[RewardRequest] = field(default_factory=list)
    given: list[Reward] = field(default_factory=list)  # by the scorer, right or not
    outcome: RewardOutcome | None = None


def judge_rows(rows: Sequence[ScoredRow], empty_reward: float) -> list[HistoryFinding]:
    """Return what the loop did wrong, [] if nothing."""
    return list(
        chain(
            chain.from_iterable(_judge_outcome(row, empty_reward) for row in rows),
            chain.from_iterable(_judge_requests(row) for row in rows),
        )
    )


def _judge_outcome(row: ScoredRow, empty_reward: float) -> Iterator[HistoryFinding]:
    match row.outcome:
        case None:
            wrong = f"expected an outcome of {row.sample_id}; got none"
        case Reward(value=value) if not isfinite(value):
            wrong = f"expected a finite reward of {row.sample_id}; got {value}"
        case Reward(value=value) if not row.has_text and value != empty_reward:
            wrong = f"expected {empty_reward} for {row.sample_id}, which is empty; got {value}"
        case Reward(value=value) if row.has_text and row.does is not ScorerDoes.REWARDS:
            wrong = f"expected no reward of {row.sample_id}, as its scorer {row.does}; got {value}"
        case Reward() as got if row.has_text and not _is_last_given(row, got):
            wrong = (
                f"expected the reward that the scorer gave to {row.sample_id} last; got "
                f"{got.value} of {got.sample_id}, attempt {got.attempt}"
            )
        case FailedReward(cause=cause) if not row.has_text:
            wrong = (
                f"expected {empty_reward} for {row.sample_id}, which is empty; got {cause.value}"
            )
        case FailedReward(cause=cause) if row.does not in _CAUSES:
            wrong = (
                f"expected a reward of {row.sample_id}, as its scorer {row.does}; got {cause.value}"
            )
        case FailedReward(cause=cause) if cause is not _CAUSES[row.does]:
            wrong = (
                f"expected {_CAUSES[row.does].value} as why {row.sample_id} has no reward; got "
                f"{cause.value}"
            )
        case _:
            return
    yield HistoryFinding(OUTCOMES, wrong, (row,))


def _is_last_given(row: ScoredRow, got: Reward) -> bool:
    return bool(row.given) and got == row.given[-1]


def _judge_requests(row: ScoredRow) -> Iterator[HistoryFinding]:
    attempts = [request.attempt for request in row.asked]
    expected = list(range(row.given_up + 1)) if row.has_text else []
    twice = [attempt for attempt, count in Counter(attempts).items() if count > 1]
    if not row.has_text and row.asked:
        wrong = f"expected no request for {row.sample_id}, which is empty; got {len(row.asked)}"
    elif twice:
        wrong = (
            f"expected one request for {row.sample_id} and attempt {twice[0]}; got "
            f"{attempts.count(twice[0])}"
        )
    elif attempts != expected:
        wrong = f"expected requests for attempts {expected} of {row.sample_id}; got {attempts}"
    else:
        yield from _judge_metadata(row)
        return
    yield HistoryFinding(REQUESTS, wrong, (row,))


def _judge_metadata(row: ScoredRow) -> Iterator[HistoryFinding]:
    """Each request says what this row is."""
    for request in row.asked:
        if request.split != row.split:
            wrong = f"expected a row of {row.split}; got {request.sample_id} as one of " + (
                request.split
            )
            yield HistoryFinding(REQUESTS, wrong, (row,))
        if request.problem != row.problem:
            wrong = (
                f"expected problem {row.problem.uid!r} for {row.sample_id}; got "
                f"{request.problem.uid!r}"
            )
            yield HistoryFinding(REQUESTS, wrong, (row,))
