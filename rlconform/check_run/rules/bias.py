"""The rule ``bias``: what is dropped is not longer, or slower, than what is trained on."""

from __future__ import annotations

from collections import Counter
from math import frexp, inf, sqrt

from rlconform.check_run.ledger import Ledger
from rlconform.check_run.lives import GroupLife
from rlconform.check_run.rule import Rule
from rlconform.events.schema import DropCause, Dropped, Record, Trained, Unlogged

#: Causes that choose by what a group is (its rewards), or that end the run.
_CHOSEN = {
    DropCause.FILTERED_UNIFORM,
    DropCause.FILTERED_USER,
    DropCause.DATA_FAILURE,
    DropCause.RESTART,
    DropCause.SHUTDOWN,
}
#: Drops fewer than these decide nothing, and do no harm either.
LEAST_DROPS, LEAST_SHARE = 30, 0.05
#: Probability that a dropped group is longer than a trained one, and its distance from 1/2.
WORST_PROBABILITY, LEAST_SIGMAS = 0.7, 4.0
#: Steps of the logarithmic scale for each doubling.
_PER_DOUBLING = 8


class DropsUnbiased(Rule):
    """Compares tokens and seconds of dropped groups with those of trained ones.

    A dropped group is cut short, so what is known of it is a lower bound. If even this is longer,
    the policy learns from short and easy prompts. The test is Mann and Whitney's, over buckets.
    """

    name = "bias"
    title = "What is dropped is not longer or slower than what is trained on"
    rests_on = (Unlogged.DROPPED, Unlogged.ROLLOUT_FINISHED)

    def __init__(self, ledger: Ledger) -> None:
        super().__init__(ledger)
        self.trained: dict[str, Counter[int]] = {"tokens": Counter(), "seconds": Counter()}
        self.dropped: dict[str, Counter[int]] = {"tokens": Counter(), "seconds": Counter()}
        self._drops: list[Record] = []

    def on_trained(self, _: Trained, __: Record, group: GroupLife | None) -> None:
        """Measure a group that is trained on."""
        if group is not None and not group.trained:
            _measure(group, self.trained)

    def on_dropped(self, event: Dropped, record: Record, group: GroupLife | None) -> None:
        """Measure a group that is dropped for other reasons than what it is."""
        if group is not None and event.cause not in _CHOSEN:
            _measure(group, self.dropped)
            if len(self._drops) < 5:
                self._drops.append(record)

    def at_end(self) -> None:
        """Compare."""
        for what, dropped in self.dropped.items():
            trained = self.trained[what]
            n, m = dropped.total(), trained.total()
            if n < LEAST_DROPS or not m or n / (n + m) < LEAST_SHARE:
                continue
            probability = probability_longer(dropped, trained)
            sigmas = (probability - 0.5) / sqrt((n + m + 1) / (12 * n * m))
            if probability > WORST_PROBABILITY and sigmas > LEAST_SIGMAS:
                self.report(
                    f"expected dropped groups to have no more {what} than trained ones; got "
                    f"more in {100 * probability:.0f} % of all pairs ({n} dropped, {m} trained)",
                    "The policy learns mostly from prompts with short or fast answers.",
                    *self._drops,
                )  # fmt: skip


def probability_longer(dropped: Counter[int], trained: Counter[int]) -> float:
    """Return the probability that one of ``dropped`` is above one of ``trained``; ties count half.

    Both map buckets, in ascending order of what they hold, to counts that are not all 0.
    """
    below = twice = 0
    for bucket in sorted({*dropped, *trained}):
        twice += dropped[bucket] * (2 * below + trained[bucket])
        below += trained[bucket]
    return twice / (2 * dropped.total() * trained.total())


def _measure(group: GroupLife, into: dict[str, Counter[int]]) -> None:
    """Count a group by the tokens and the seconds of its rows; nothing if neither is known."""
    tokens = rows = 0
    begun, ended = inf, -inf
    for row in group.rows.values():
        if row.started is not None:
            rows += 1
            tokens += row.tokens
            begun = min(begun, row.started.wall_ns)
            ended = max(ended, (row.ended or row.started).wall_ns)
    if tokens:
        into["tokens"][_bucket(tokens / rows)] += 1
    if ended > begun:
        into["seconds"][_bucket((ended - begun) / 1e9)] += 1


def _bucket(value: float) -> int:
    """Return a number that grows by ``_PER_DOUBLING`` when the value doubles."""
    mantissa, exponent = frexp(value)  # the mantissa is at least 1/2
    return exponent * _PER_DOUBLING + int((2 * mantissa - 1) * _PER_DOUBLING)
