"""``StepSummaries``: staleness over the steps of a run, in bounded memory."""

from __future__ import annotations

from dataclasses import dataclass

#: Steps, or ranges of steps, that are kept.
MOST_SUMMARIES = 512


@dataclass
class StepSummary:
    """Staleness (consumed - start) of the groups of one step, or of a range of steps."""

    step: int  # the first of the range
    groups: int = 0
    known: int = 0  # groups with a staleness
    total: int = 0
    worst: int = 0

    @property
    def mean(self) -> float | None:
        """Mean staleness of its groups."""
        return self.total / self.known if self.known else None


class StepSummaries:
    """Adds groups to the summaries of their steps; very many steps share summaries."""

    def __init__(self) -> None:
        self.by_step: dict[int, StepSummary] = {}
        self.steps_each = 1

    def add(self, step: int, staleness: int | None) -> None:
        """Add one group."""
        first = step - step % self.steps_each
        summary = self.by_step.get(first)
        if summary is None:
            summary = self.by_step[first] = StepSummary(first)
            if len(self.by_step) > MOST_SUMMARIES:
                self._merge()
                summary = self.by_step[step - step % self.steps_each]
        summary.groups += 1
        if staleness is not None:
            summary.known += 1
            summary.total += staleness
            summary.worst = max(summary.worst, staleness)

    def _merge(self) -> None:
        self.steps_each *= 2
        merged: dict[int, StepSummary] = {}
        for one in self.by_step.values():
            first = one.step - one.step % self.steps_each
            into = merged.setdefault(first, StepSummary(first))
            into.groups += one.groups
            into.known += one.known
            into.total += one.total
            into.worst = max(into.worst, one.worst)
        self.by_step = merged

    def in_order(self) -> list[StepSummary]:
        """Return the summaries by step."""
        return sorted(self.by_step.values(), key=lambda summary: summary.step)
