"""Staleness samplers: which prompts may be dispatched, and which ready groups a step trains on.

    rollout pump ── admit ───▶ waits until another step's prompts may be dispatched
    train pump   ── evict, select ──▶ ready groups, none staler than ``max_staleness``
    weight sync  ── should_abort_inflight ──▶ groups that would be too old when they are ready

The protocol is NeMo-RL's (``staleness_sampler.py``); ``max_staleness`` is added, the bound on
``consumed - start`` that a sampler holds. Each ``select`` first drops what is too old, so the
bound is held when a group is consumed, however long it waited. What to admit and to select
follows from versions and counts alone, by the functions ``admits``, ``oldest_first`` and
``freshest_first``.

With a gate, the prompts of step k are dispatched once the trainer has version k - window. So there
are at most (window + 1) steps of prompts at once, and the buffer needs as many slots.
"""

from __future__ import annotations

import importlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Protocol, runtime_checkable

from rlconform.contract import ConfigError, KVBatchMeta
from rlconform.grpo.config.async_rl import (
    CustomSamplerConfig,
    InOrderConfig,
    ReadyFirstConfig,
    SamplerConfig,
    WeightFifoConfig,
    WindowedConfig,
)
from rlconform.grpo.replay.buffer import ReplayBuffer
from rlconform.grpo.replay.slots import DropReason, Slot
from rlconform.grpo.replay.versions import is_stale

Selected = tuple[KVBatchMeta | None, int]


@runtime_checkable
class StalenessSampler(Protocol):
    """What the pumps ask of a sampler; ``max_staleness`` is None if it holds no bound."""

    max_staleness: int | None

    async def admit(self, *, trainer_version_fn: Callable[[], int]) -> int | None:
        """Wait until another step's prompts may be dispatched; return their step or None."""
        ...

    async def select(
        self, *, current_train_weight: int, min_prompt_groups: int, max_prompt_groups: int
    ) -> Selected:
        """Take ready groups for the trainer: (None, 0) if fewer than the minimum are ready."""
        ...

    async def evict(self, *, current_train_weight: int) -> int:
        """Drop ready groups that are too old; return their number."""
        ...

    def should_abort_inflight(
        self, *, start_weight_version: int, current_train_weight: int
    ) -> bool:
        """Whether a group being generated will be too old."""
        ...

    @property
    def is_on_policy(self) -> bool:
        """Whether every group is trained on at the version that it started with."""
        ...

    def required_buffer_capacity(self, groups_per_step: int) -> int | None:
        """Return the least number of slots with which the run goes on; None for any."""
        ...

    def set_dispatch_index(self, resume_from_step: int) -> None:
        """Set the number of steps whose prompts were dispatched, when a run is resumed."""
        ...


def admits(dispatch_index: int, trainer_version: int, window: int) -> bool:
    """Whether the prompts of step ``dispatch_index`` may be dispatched at this version."""
    return dispatch_index <= trainer_version + window


def oldest_first(ready: Sequence[tuple[int, int]], most: int) -> list[tuple[int, int]]:
    """Divide ``most`` groups over (version, number of ready groups), from the oldest version on.

    A step may get groups of several versions. To wait until one version has enough would be to
    wait for ever when a weight sync or a retry has divided a step's prompts over two versions.
    """
    chosen = []
    for version, count in sorted(ready):
        taken = min(count, most)
        if taken:
            chosen.append((version, taken))
        most -= taken
    return chosen


def freshest_first(ready: Sequence[tuple[int, int]], most: int) -> list[tuple[int, int]]:
    """Divide ``most`` groups over the versions as ``oldest_first`` does, from the newest on."""
    chosen = []
    for version, count in sorted(ready, reverse=True):
        taken = min(count, most)
        if taken:
            chosen.append((version, taken))
        most -= taken
    return chosen


class Sampler(ABC):
    """What the samplers have in common: the gate, the sweep, and taking groups."""

    #: Whether dispatch waits for training.
    gated = True

    def __init__(self, buffer: ReplayBuffer, window: int) -> None:
        self._buffer = buffer
        self._dispatch_index = 0
        #: Bound on ``consumed - start`` of every selected group.
        self.max_staleness: int | None = window
        self._window = window

    async def admit(self, *, trainer_version_fn: Callable[[], int]) -> int | None:
        """Wait until the gate admits the next step's prompts; return None: they are for any step.

        The wait is apart from the count, so a cancelled wait changes nothing.
        """
        if self.gated:
            await self._buffer.changed.until(
                lambda: admits(self._dispatch_index, trainer_version_fn(), self._window)
            )
        self._dispatch_index += 1
        return None

    async def evict(self, *, current_train_weight: int) -> int:
        """Drop ready groups older than the window; groups being generated are never dropped."""
        stale = [
            group_id
            for version, count in self._buffer.ready_by_start()
            if is_stale(version, current_train_weight, self._window)
            for group_id in self._buffer.ready_of_start(version, count)
        ]
        if stale:
            await self._buffer.remove(stale, DropReason.STALE)
        return len(stale)

    async def select(
        self, *, current_train_weight: int, min_prompt_groups: int, max_prompt_groups: int
    ) -> Selected:
        """Drop what is too old, then take the groups that ``_choose`` names."""
        await self.evict(current_train_weight=current_train_weight)
        chosen = self._choose(current_train_weight, max_prompt_groups)
        if not chosen or len(chosen) < min_prompt_groups:
            return None, 0
        return joined_meta(self._buffer.take(chosen)), len(chosen)

    def should_abort_inflight(
        self,
        *,
        start_weight_version: int,  # noqa: ARG002 - an argument of the protocol
        current_train_weight: int,  # noqa: ARG002
    ) -> bool:
        """Return False: these groups are swept when they are ready."""
        return False

    @property
    def is_on_policy(self) -> bool:
        """Whether the window is 0."""
        return self._window == 0

    def required_buffer_capacity(self, groups_per_step: int) -> int | None:
        """Return the slots of the steps that the gate admits at once."""
        return groups_per_step * (self._window + 1 if self.gated else 1)

    def set_dispatch_index(self, resume_from_step: int) -> None:
        """Set the number of steps whose prompts were dispatched."""
        self._dispatch_index = resume_from_step

    @abstractmethod
    def _choose(self, version: int, most: int) -> list[str]:
        """Name at most ``most`` ready groups to train on at this version."""

    def _of_versions(self, chosen: Sequence[tuple[int, int]]) -> list[str]:
        return [
            group_id
            for version, count in chosen
            for group_id in self._buffer.ready_of_start(version, count)
        ]


class InOrderSampler(Sampler):
    """Each prompt is for one step. Bound: ``max_lookahead_versions``.

    A prompt for step k is dispatched at version k - lookahead or later, and trained on at version
    k; a group that is promoted to an earlier step is trained on even sooner. So the bound holds
    without a sweep, which is made nevertheless.
    """

    async def admit(self, *, trainer_version_fn: Callable[[], int]) -> int | None:
        """Wait for the gate; return the step that the prompts are for."""
        await super().admit(trainer_version_fn=trainer_version_fn)
        return self._dispatch_index - 1

    def _choose(self, version: int, most: int) -> list[str]:
        return self._buffer.ready_of_step(version)[:most]


class WindowedSampler(Sampler):
    """Dispatches without a gate, as long as slots are free. Bound: ``max_staleness_versions``.

    What is too old is dropped, also while it is generated; its prompt is dispatched again.
    """

    gated = False

    def __init__(self, buffer: ReplayBuffer, window: int, freshest: bool = False) -> None:
        super().__init__(buffer, window)
        self._order = freshest_first if freshest else oldest_first

    def should_abort_inflight(
        self, *, start_weight_version: int, current_train_weight: int
    ) -> bool:
        """Whether the group is older than the window already."""
        return is_stale(start_weight_version, current_train_weight, self._window)

    def _choose(self, version: int, most: int) -> list[str]:  # noqa: ARG002
        return self._of_versions(self._order(self._buffer.ready_by_start(), most))


class ReadyFirstSampler(Sampler):
    """A step trains on the groups that were ready first. Bound: ``max_staleness_versions``.

    The gate alone does not hold the bound: a slow group may be overtaken by any number of steps.
    The sweep holds it.
    """

    def _choose(self, version: int, most: int) -> list[str]:  # noqa: ARG002
        return self._buffer.ready_first(most)


class WeightFifoSampler(Sampler):
    """A step trains on the ready groups of the oldest weights. Bound: ``max_staleness_versions``.

    A step may straddle versions, see ``oldest_first``.
    """

    def _choose(self, version: int, most: int) -> list[str]:  # noqa: ARG002
        return self._of_versions(oldest_first(self._buffer.ready_by_start(), most))


def joined_meta(slots: Sequence[Slot]) -> KVBatchMeta:
    """Join the metas of groups in their order."""
    first, *others = (slot.record.meta for slot in slots if slot.record is not None)
    return first.concat(*others)


def build_sampler(config: SamplerConfig, buffer: ReplayBuffer) -> StalenessSampler:
    """Create the configured sampler; ``ConfigError`` if a custom one can't be used."""
    match config:
        case InOrderConfig():
            return InOrderSampler(buffer, config.max_lookahead_versions)
        case WindowedConfig():
            window, freshest = config.max_staleness_versions, config.sample_freshest_first
            return WindowedSampler(buffer, window, freshest)
        case ReadyFirstConfig():
            return ReadyFirstSampler(buffer, config.max_staleness_versions)
        case WeightFifoConfig():
            return WeightFifoSampler(buffer, config.max_staleness_versions)
        case CustomSamplerConfig():
            return _load_sampler(config, buffer)


def _load_sampler(config: CustomSamplerConfig, buffer: ReplayBuffer) -> StalenessSampler:
    module_name, _, class_name = config.target.partition(":")
    try:
        sampler = getattr(importlib.import_module(module_name), class_name)
        built = sampler(buffer, **config.options)
    except (ImportError, AttributeError, TypeError) as error:
        raise ConfigError(f"async_rl.sampler.target {config.target}: {error}") from error
    if not isinstance(built, StalenessSampler):
        raise ConfigError(
            f"async_rl.sampler.target {config.target} lacks a method of "
            "rlconform.grpo.replay.samplers.StalenessSampler"
        )
    return built
