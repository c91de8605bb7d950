"""The verdict on a soak run: pass, fail or indeterminate. Pure functions.

rows       anything lost, doubled, torn, wrong, refused or without an answer      fails
growth     a process that grows steadily, by more than it may over the run        fails
time       too few samples of a process, or rows, to tell                         indeterminate
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from rlconform.certify.durability.cost_growth import Trend, growth
from rlconform.certify.durability.fault_verdict import DurabilityAnswer
from rlconform.soak.ledger import SoakLedger
from rlconform.soak.samples import ProcessSeries

#: What a process may grow by over a run, however short: buffers that it fills, in bytes and
#: descriptors; and the share of its usual size.
FREE_BYTES, FREE_DESCRIPTORS, FREE_SHARE = 64 << 20, 24, 0.10
#: Share of pairs of samples that must rise for a growth to count as steady.
STEADY = 0.7
#: Seconds of a run from which slopes say something, and rows from which there was load.
LEAST_S, LEAST_ROWS = 30.0, 500


@dataclass(frozen=True)
class ProcessJudgement:
    """How one process grew over the run."""

    name: str
    bytes_grown: float
    descriptors_grown: float
    leaks: bool
    text: str


@dataclass(frozen=True)
class SoakVerdict:
    """The answer and its reasons, and the judgement of each process."""

    answer: DurabilityAnswer
    reasons: list[str]
    processes: list[ProcessJudgement] = field(default_factory=list)


def judge_soak(
    ledger: SoakLedger,
    processes: Sequence[ProcessSeries],
    seconds: float,
    notes: Sequence[str] = (),
) -> SoakVerdict:
    """Judge a run of ``seconds``; ``notes`` say what kept it from being a whole run."""
    judged = [judge_process(series) for series in processes]
    failures = [f"{count} times {kind}" for kind, count in ledger.problems.most_common()]
    failures += [one.text for one in judged if one and one.leaks]
    whole = [one for one in judged if one]
    if failures:
        return SoakVerdict(DurabilityAnswer.FAIL, failures, whole)
    unsure = list(notes)
    if seconds < LEAST_S:
        unsure.append(f"{seconds:.0f} s are too short to judge slopes: at least {LEAST_S:g}")
    if ledger.delivered < LEAST_ROWS:
        unsure.append(f"{ledger.delivered} rows are no load: at least {LEAST_ROWS}")
    unsure += [
        f"too few samples of {series.name}"
        for series, one in zip(processes, judged, strict=True)
        if one is None
    ]
    if unsure:
        return SoakVerdict(DurabilityAnswer.INDETERMINATE, unsure, whole)
    text = f"{ledger.delivered:,} rows, each delivered once with its bytes; no process leaks"
    return SoakVerdict(DurabilityAnswer.PASS, [text], whole)


def judge_process(series: ProcessSeries) -> ProcessJudgement | None:
    """Judge the growth of a process over its samples; ``None`` if there are too few."""
    held = growth(series.seconds, list(map(float, series.bytes_held)))
    opened = growth(series.seconds, list(map(float, series.descriptors)))
    if held is None or opened is None:
        return None
    span = series.seconds[-1] - series.seconds[0]
    grown, more = held.over(span), opened.over(span)
    leaks = []
    if _leaks(held, grown, FREE_BYTES):
        leaks.append(f"{grown / (1 << 20):.0f} MiB")
    if _leaks(opened, more, FREE_DESCRIPTORS):
        leaks.append(f"{more:.0f} descriptors")
    verb = "grew steadily by" if leaks else "did not leak:"
    size = " and ".join(leaks) or f"{grown / (1 << 20):+.1f} MiB, {more:+.0f} descriptors"
    text = f"{series.name} {verb} {size} in {span:.0f} s"
    return ProcessJudgement(series.name, grown, more, bool(leaks), text)


def _leaks(found: Trend, grown: float, free: float) -> bool:
    allowed = max(free, FREE_SHARE * found.typical)
    return grown > allowed and found.share_rising > STEADY
