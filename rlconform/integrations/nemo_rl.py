"""``EventSampler``: lets a NeMo-RL Single Controller write events, without a patch of NeMo-RL.

    rollout pump ── admit ─────────▶ EventSampler ──▶ the sampler that it wraps
    train pump   ── evict, select ─▶     │ before and after each call: what is new in the buffer
                                         ▼
                                    events-sampler-<pid>.jsonl

It is named in the configuration::

    async_rl:
      sampler:
        name: custom
        target: rlconform.integrations.nemo_rl:EventSampler
        inner: {name: in_order, max_lookahead_versions: 1}
        events: /shared/run/events
        run: my-run
        group_size: 16
        prompts_per_step: 32

``nemo_rl_plane`` has a client that writes the calls of the data plane. What these hooks use was
read from NeMo-RL at 7ea279abf.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any

from rlconform.events import EventWriter
from rlconform.events.schema import (
    Committed,
    DropCause,
    Dropped,
    Feature,
    PromptDispatched,
    RunStarted,
    Selected,
    StalenessBound,
    StalenessDefinition,
    Trained,
    Unlogged,
    WeightsPublished,
)
from rlconform.integrations.coverage import RuleCoverage
from rlconform.integrations.nemo_rl_buffer import BufferedGroup, buffered_groups, rows_by_group

COVERAGE = RuleCoverage(
    decided={
        "exactly_once": "each group is selected for one step; a step is done when the trainer's "
        "version has grown",
        "group_integrity": "from the rows that are committed and selected; rows that the advantage "
        "stage filters out count as trained on",
        "staleness": "from the version at the reservation, when a step takes the group",
        "plane_ops": "if the client is wrapped; calls of processes without the wrapper aren't seen",
    },
    undecided={
        "completeness": "the sampler isn't told that the run is over",
        "accounting": "as completeness, and the step at the end isn't seen as trained on; it finds "
        "groups that are selected twice or were never reserved",
        "versions": "no engine writes when it applies weights; it finds gaps between steps",
        "reward": "rewards aren't written",
        "after_end": "a clear is a call of the plane, not of a group; it finds groups that are "
        "used after they have left the buffer",
        "resume": "checkpoints aren't written",
        "liveness": "rollouts of single rows aren't written",
        "bias": "tokens of dropped groups aren't written",
    },
)

NEMO_SAMPLERS = "nemo_rl.algorithms.async_utils.staleness_sampler"
_CLASSES = {
    "in_order": "InOrderSampler",
    "windowed": "WindowedSampler",
    "ready_first": "ReadyFirstSampler",
    "weight_fifo": "WeightFifoSampler",
}


class EventSampler:
    """A sampler that wraps another one, with the same results, and writes what it sees.

    Args:
        buffer: The replay buffer, as NeMo-RL passes it.
        inner: ``name`` of a built-in sampler, with its options.
        events: The folder of the run's files.
        run: Name of the run.
        group_size: ``num_generations_per_prompt``.
        prompts_per_step: ``num_prompts_per_step``.
        samplers: The module that has the built-in samplers.
    """

    def __init__(
        self, buffer: Any, *, inner: Mapping[str, Any], events: str, run: str,
        group_size: int | None = None, prompts_per_step: int | None = None,
        samplers: str = NEMO_SAMPLERS,
    ) -> None:  # fmt: skip
        options = dict(inner)
        name = options.pop("name")
        if name not in _CLASSES:
            raise ValueError(f"expected inner.name to be one of {list(_CLASSES)}; got {name!r}")
        self._inner = getattr(importlib.import_module(samplers), _CLASSES[name])(buffer, **options)
        self._buffer = buffer
        self._open: dict[str, BufferedGroup] = {}  # dispatched, and neither selected nor dropped
        self._selected: dict[str, list[int]] = {}  # rows that this step trains on
        self._version: int | None = None
        self._aborting: set[int] = set()
        self._events = EventWriter(events, run=run, role="sampler")
        bound = None if name == "ready_first" else _bound(options)
        #: The bound that the wrapped sampler holds.
        self.max_staleness = bound
        self._events.write(
            RunStarted(
                group_size=group_size,
                prompts_per_step=prompts_per_step,
                staleness=None
                if bound is None
                else StalenessBound(definition=StalenessDefinition.START, bound=bound),
                features=[Feature.REWARD, Feature.PLANE, Feature.SYNC],
                unlogged=[Unlogged.ROLLOUT_FINISHED, Unlogged.CLEARED, Unlogged.CHECKPOINT_SAVED],
            )
        )

    async def admit(self, *, trainer_version_fn: Callable[[], int]) -> int | None:
        """Admit as the wrapped sampler does."""
        self._see(trainer_version_fn())
        step: int | None = await self._inner.admit(trainer_version_fn=trainer_version_fn)
        self._see(trainer_version_fn())
        return step

    async def select(
        self, *, current_train_weight: int, min_prompt_groups: int, max_prompt_groups: int
    ) -> tuple[Any, int]:
        """Select as the wrapped sampler does, and write what was selected."""
        self._see(current_train_weight)
        meta, count = await self._inner.select(
            current_train_weight=current_train_weight, min_prompt_groups=min_prompt_groups,
            max_prompt_groups=max_prompt_groups,
        )  # fmt: skip
        for group_id, rows in ({} if meta is None else rows_by_group(meta)).items():
            self._open.pop(group_id, None)
            self._selected[group_id] = self._selected.get(group_id, []) + rows
            self._events.write(
                Selected(
                    group_id=group_id, step=current_train_weight + 1, version=current_train_weight
                )
            )
        self._scan(DropCause.STALE)
        return meta, count

    async def evict(self, *, current_train_weight: int) -> int:
        """Evict as the wrapped sampler does, and write what is gone."""
        self._see(current_train_weight)
        count: int = await self._inner.evict(current_train_weight=current_train_weight)
        self._scan(DropCause.STALE)
        return count

    def should_abort_inflight(
        self, *, start_weight_version: int, current_train_weight: int
    ) -> bool:
        """Ask the wrapped sampler."""
        aborts: bool = self._inner.should_abort_inflight(
            start_weight_version=start_weight_version, current_train_weight=current_train_weight
        )
        if aborts:
            self._aborting.add(start_weight_version)
        return aborts

    @property
    def is_on_policy(self) -> bool:
        """Whether the wrapped sampler is."""
        return bool(self._inner.is_on_policy)

    def required_buffer_capacity(self, groups_per_step: int) -> int | None:
        """Return what the wrapped sampler requires."""
        capacity: int | None = self._inner.required_buffer_capacity(groups_per_step)
        return capacity

    def set_dispatch_index(self, resume_from_step: int) -> None:
        """Set the index of the wrapped sampler."""
        self._inner.set_dispatch_index(resume_from_step)

    def close(self) -> None:
        """Close the file of events."""
        self._events.close()

    def _see(self, version: int) -> None:
        """Write what has happened since the last call: the end of a step, and changed groups."""
        self._scan(DropCause.INFRA_FAILURE)
        if self._version is not None and version > self._version:
            for group_id, rows in self._selected.items():
                self._events.write(
                    Trained(
                        group_id=group_id, rows=rows, step=self._version + 1, version=self._version
                    )
                )
            self._selected = {}
            for new in range(self._version + 1, version + 1):
                self._events.write(WeightsPublished(version=new))
        self._version = version

    def _scan(self, cause: DropCause) -> None:
        """Write which groups are new, ready or gone; ``cause`` is that of ready ones that are."""
        now = buffered_groups(self._buffer)
        for group_id, group in now.items():
            if group_id in self._selected:
                continue
            before = self._open.get(group_id)
            if before is None:
                self._events.write(PromptDispatched(group_id=group_id, prompt_id=group_id))
            if group.rows is not None and (before is None or before.rows is None):
                end = group.end_version if group.end_version >= group.start_version else None
                self._events.write(
                    Committed(
                        group_id=group_id, rows=group.rows, start_version=group.start_version,
                        end_version=end,
                    )
                )  # fmt: skip
            self._open[group_id] = group
        for group_id in [one for one in self._open if one not in now]:
            self._write_gone(group_id, self._open.pop(group_id), cause)

    def _write_gone(self, group_id: str, group: BufferedGroup, cause: DropCause) -> None:
        """Write that a group was dropped; the sampler isn't told why an unfinished one is."""
        if group.rows is None:
            aborted = group.start_version in self._aborting
            cause = DropCause.ABORTED_STALE if aborted else DropCause.INFRA_FAILURE
        self._events.write(Dropped(group_id=group_id, cause=cause))


def _bound(options: Mapping[str, Any]) -> int | None:
    names = ("max_staleness_versions", "max_lookahead_versions", "window")
    return next((int(options[name]) for name in names if name in options), None)
