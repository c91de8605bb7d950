"""What a run came to, and where two runs part: bit for bit, nothing rounded.

    left, right = record(LegacyTrainer(...)), record(PlaneTrainer(...))
    differences(left, right)   # [] or ["step 3: train/loss is 0.25 and 0.2500001", ...]

A metric that was NaN in both runs is one that both runs agree on, and is no difference.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from torch import Tensor

from rlconform.grpo.run import StepReport, fit, resume
from rlconform.grpo.trainers.base import Trainer
from rlconform.wire import same_rows

#: Metrics that two runs of one algorithm share; seconds and the plane's bytes are their own.
_COMPARED = ("train/", "val/")


@dataclass(frozen=True)
class TrainingRecord:
    """A run's steps and its last weights.

    Attributes:
        reports: One for each step taken, in order.
        weights: The policy's, by name.
    """

    reports: list[StepReport]
    weights: Mapping[str, Tensor]

    def series(self, name: str) -> list[float]:
        """A metric's values, step by step. ``KeyError`` where a step has none."""
        return [report.metrics[name] for report in self.reports]


def run_to_end(trainer: Trainer) -> TrainingRecord:
    """Run on from the newest checkpoint, if there is one, to the end; keep what came of it."""
    resume(trainer)
    reports = list(fit(trainer))
    weights, *_ = trainer.crew.workers.all("weights")
    return TrainingRecord(reports, weights)


def differences(left: TrainingRecord, right: TrainingRecord) -> list[str]:
    """Where two runs differ in a bit, in one line each; steps by number, whoever took fewer.

    Compared are the metrics ``train/...`` and ``val/...``, the rows of each step in their order,
    their advantages, and the last weights.
    """
    rights = {report.step: report for report in right.reports}
    found = [
        f"step {report.step}: {line}"
        for report in left.reports
        if report.step in rights
        for line in _step_differences(report, rights[report.step])
    ]
    if not any(report.step in rights for report in left.reports):
        found.append("the runs have no step in common")
    return [*found, *_weight_differences(left.weights, right.weights)]


def _step_differences(left: StepReport, right: StepReport) -> Iterator[str]:
    names = {name for name in {**left.metrics, **right.metrics} if name.startswith(_COMPARED)}
    for name in sorted(names):
        one, other = left.metrics.get(name), right.metrics.get(name)
        if one is None or other is None or struct.pack("d", one) != struct.pack("d", other):
            yield f"{name} is {one!r} and {other!r}"
    if left.result is None or right.result is None:
        return
    if list(left.result.sample_ids) != list(right.result.sample_ids):
        yield "other rows, or in another order"
    if not same_rows(left.result.advantages, right.result.advantages):
        yield "advantages differ"


def _weight_differences(left: Mapping[str, Tensor], right: Mapping[str, Tensor]) -> Iterator[str]:
    for name in sorted({*left, *right}):
        if name not in left or name not in right:
            yield f"only one run has weights {name}"
        elif not same_rows(left[name], right[name]):
            yield f"last weights {name} differ"
