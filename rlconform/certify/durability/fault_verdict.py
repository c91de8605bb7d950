"""The verdict on a run with faults: pass, fail or indeterminate. Pure functions.

history ── checkers ──▶ anomalies ──▶ FAIL with the shortest
faults  ── missed? ───▶ INDETERMINATE: what should have been tried did not happen
callers ── silent after the last fault? ──▶ INDETERMINATE
                                          else PASS
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from rlconform.certify.concurrency.anomaly import Anomaly, Checker, shortest_first
from rlconform.certify.concurrency.explain import HistoryViolation
from rlconform.certify.concurrency.history import History
from rlconform.certify.durability.nemeses import ProcessFault
from rlconform.certify.recording.recorder import Skipped


class DurabilityAnswer(StrEnum):
    """What a run with faults, or under load, shows of the plane."""

    PASS = "pass"
    FAIL = "fail"
    INDETERMINATE = "indeterminate"


@dataclass(frozen=True)
class FaultVerdict:
    """The answer, why, and on a failure the anomalies of the checker that found any."""

    answer: DurabilityAnswer
    reason: str
    anomalies: tuple[Anomaly, ...] = ()
    checker: str = ""


class Indeterminate(Skipped):
    """A skip: the run shows neither that the plane kept the requirement nor that it broke it."""


def judge_faults(
    history: History,
    faults: Sequence[ProcessFault],
    survivors: Sequence[str],
    checkers: Sequence[Checker],
) -> FaultVerdict:
    """Judge a run: an anomaly is a failure even if a fault missed.

    ``survivors`` are the callers that must have made calls after the last fault.
    """
    for checker in checkers:
        if found := shortest_first(checker(history)):
            name = getattr(checker, "__name__", "")
            return FaultVerdict(DurabilityAnswer.FAIL, found[0].description, tuple(found), name)
    missed = [fault.missed for fault in faults if fault.missed]
    if not faults:
        missed = ["no fault happened"]
    last = max((fault.end for fault in faults), default=0.0)
    heard = {op.who for op in history.operations if op.start > last and op.end is not None}
    missed += [f"{who} made no call after the last fault" for who in survivors if who not in heard]
    if missed:
        return FaultVerdict(DurabilityAnswer.INDETERMINATE, "; ".join(missed))
    counts = Counter(op.outcome for op in history.operations)
    text = ", ".join(f"{counts[one]} {one}" for one in ("ok", "failed", "unknown"))
    return FaultVerdict(DurabilityAnswer.PASS, f"{len(faults)} faults; calls: {text}")


def expect_durable(verdict: FaultVerdict, history: History) -> None:
    """Raise the history's violation on a failure, and a skip if the run decides nothing."""
    if verdict.answer is DurabilityAnswer.FAIL:
        raise HistoryViolation(verdict.anomalies, history, "", verdict.checker)
    if verdict.answer is DurabilityAnswer.INDETERMINATE:
        raise Indeterminate(f"indeterminate: {verdict.reason}")
