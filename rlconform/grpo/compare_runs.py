"""Compares two training runs bit by bit, without tolerances.

    left, right = run_to_end(LegacyTrainer(...)), run_to_end(PlaneTrainer(...))
    differences(left, right)   # [] or ["step 3: train/loss is 0.25 and 0.2500001", ...]

A metric that is NaN in both runs counts as equal.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from torch import Tensor

from rlconform.grpo.trainers.base import Trainer
from rlconform.grpo.training_loop import StepReport, fit, resume
from rlconform.grpo.workers.policy_worker import PolicyWorker
from rlconform.wire import same_rows

#: Prefixes of the compared metrics; times and the plane's traffic differ between any two runs.
_COMPARED = ("train/", "val/")


@dataclass(frozen=True)
class TrainingRecord:
    """The reports of a run, step by step, and the policy's final weights by name."""

    reports: list[StepReport]
    weights: Mapping[str, Tensor]

    def series(self, name: str) -> list[float]:
        """Return a metric's values in the order of steps; ``KeyError`` if a step lacks it."""
        return [report.metrics[name] for report in self.reports]


def run_to_end(trainer: Trainer) -> TrainingRecord:
    """Train from the newest checkpoint, or the start, to the end; return reports and weights."""
    resume(trainer)
    reports = list(fit(trainer))
    weights, *_ = trainer.actors.workers.all(PolicyWorker.weights)
    return TrainingRecord(reports, weights)


def differences(left: TrainingRecord, right: TrainingRecord) -> list[str]:
    """List every difference between two runs, one line each; equal runs give an empty list.

    Compared bit by bit are the final weights and, for each step that both runs have, the metrics
    ``train/...`` and ``val/...``, the order of rows and the advantages.
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
        yield "rows or their order differ"
    if not same_rows(left.result.advantages, right.result.advantages):
        yield "advantages differ"


def _weight_differences(left: Mapping[str, Tensor], right: Mapping[str, Tensor]) -> Iterator[str]:
    for name in sorted({*left, *right}):
        if name not in left or name not in right:
            yield f"only one run has weights {name}"
        elif not same_rows(left[name], right[name]):
            yield f"last weights {name} differ"
