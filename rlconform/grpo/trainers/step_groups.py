"""``StepGroups``: writes the groups of one synchronous step into the event log.

dispatched ── generation ──▶ committed ─┬─ chosen ──▶ selected ──▶ trained
                                        ├─ left out by dynamic sampling ──▶ dropped
                                        └─ too few of its rows have a reward ──▶ dropped

The rows of a group with too few rewards may stay in the step's batch, whose size is fixed; they are
masked there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rlconform.events.schema import DropCause
from rlconform.grpo.actors import RunActors
from rlconform.grpo.algorithm.advantages import group_of
from rlconform.grpo.algorithm.dynamic_sampling import STD
from rlconform.grpo.run_events import RunEvents
from rlconform.grpo.tasks import Problem
from rlconform.grpo.trainers.driver_step import StepRows, comparable


class StepGroups:
    """The groups of the step that makes ``version`` + 1, as they come to be.

    ::

        groups = StepGroups(events, actors, version, tolerance)
        groups.dispatched(problems)      # for each generation batch
        groups.generated(rows)
        groups.selected(rows)            # the rest is dropped
        groups.trained()
    """

    def __init__(
        self, events: RunEvents, actors: RunActors, version: int, tolerance: float
    ) -> None:
        self._events, self._actors, self._version = events, actors, version
        self._tolerance = tolerance
        self._causes: dict[str, DropCause] = {}  # by group, why it is dropped if it isn't chosen
        self._chosen: dict[str, list[int]] = {}  # rows to train on, in the order of the step's rows

    def dispatched(self, problems: Sequence[Problem]) -> None:
        """These problems are given to generation."""
        for problem in problems:
            self._events.dispatched(problem.uid, problem.uid, self._version)
        self._actors.exchange_stamps(self._events)

    def generated(self, rows: StepRows) -> None:
        """The rows of whole groups are there, scored."""
        if not self._events.enabled:
            return
        self._actors.exchange_stamps(self._events)
        tags: Sequence[Mapping[str, float]] = rows.meta.tags or []
        by_group: dict[str, list[str]] = {}
        for sample_id, row in zip(rows.meta.sample_ids, tags, strict=True):
            group_id = group_of(sample_id)
            by_group.setdefault(group_id, []).append(sample_id)
            uniform = row[STD] <= self._tolerance
            self._causes[group_id] = DropCause.FILTERED_UNIFORM if uniform else DropCause.SURPLUS
        for group_id in by_group.keys() - _rows_to_train(rows).keys():
            self._causes[group_id] = DropCause.REWARD_FAILURE
        for group_id, sample_ids in by_group.items():
            self._events.committed(group_id, [rows.summaries[one] for one in sample_ids])

    def selected(self, rows: StepRows) -> None:
        """The step trains on these rows."""
        if not self._events.enabled:
            return
        self._chosen = _rows_to_train(rows)
        self._events.selected(self._chosen, self._version)
        for group_id, cause in self._causes.items():
            if group_id not in self._chosen:
                self._events.dropped([group_id], cause.value)

    def trained(self) -> None:
        """The update is done."""
        self._events.trained(self._chosen, self._version)

    def cleared(self) -> None:
        """The step's rows are gone from the plane."""
        self._events.cleared(self._chosen)


def _rows_to_train(rows: StepRows) -> dict[str, list[int]]:
    """Return the numbers of the rows that have a reward to compare, by group."""
    numbers: dict[str, list[int]] = {}
    counted = comparable(rows.meta, rows.summaries).tolist()
    for sample_id, counts in zip(rows.meta.sample_ids, counted, strict=True):
        if counts:
            group_id, _, number = sample_id.rpartition("_g")
            numbers.setdefault(group_id, []).append(int(number))
    return numbers
