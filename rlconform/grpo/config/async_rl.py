"""The section ``async_rl:``: options of asynchronous training, under NeMo-RL's names.

With this section rollouts and training run at the same time, see ``trainers.async_plane``. Without
it, or with ``async_rl: null``, a step generates its rows first and trains on them afterwards.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Annotated, Any, Literal

from pydantic import (
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    model_validator,
)

from rlconform.grpo.config.base import ConfigModel

#: Keys of other versions and frameworks, and where their meaning is set here.
RENAMED = {
    "enabled": "leave the section out, or set async_rl: null, to train synchronously",
    "max_trajectory_age_steps": "use sampler.max_staleness_versions",
    "max_staleness_versions": "use sampler.max_staleness_versions",
    "max_lookahead_versions": "use sampler.max_lookahead_versions",
    "max_off_policy_steps": "use sampler.max_staleness_versions",
    "max_generation_failures": "use rollout_failure.max_infra_attempts_per_prompt",
    "partial_rollout": "use partial_rollouts",
    "staleness_threshold": "use sampler.max_staleness_versions, or queue.staleness_threshold",
    "trigger_parameter_sync_step": "use queue.trigger_parameter_sync_step",
}


class InOrderConfig(ConfigModel):
    """``in_order``: each prompt is for one step, and a step trains on its own prompts."""

    name: Literal["in_order"] = "in_order"
    max_lookahead_versions: NonNegativeInt = 1  # steps that generation may be ahead of training


class WindowedConfig(ConfigModel):
    """``windowed``: generation never waits for training; rows that get too old are dropped."""

    name: Literal["windowed"]
    max_staleness_versions: NonNegativeInt = 1
    sample_freshest_first: bool = False


class ReadyFirstConfig(ConfigModel):
    """``ready_first``: a step trains on the groups that were ready first."""

    name: Literal["ready_first"]
    max_staleness_versions: NonNegativeInt = 1


class WeightFifoConfig(ConfigModel):
    """``weight_fifo``: a step trains on the ready groups of the oldest weights."""

    name: Literal["weight_fifo"]
    max_staleness_versions: NonNegativeInt = 1


class CustomSamplerConfig(ConfigModel):
    """``custom``: a class of your own, ``module:Class``, see ``replay.samplers``."""

    name: Literal["custom"]
    target: Annotated[str, Field(pattern=r"^[\w.]+:\w+$")]
    #: Keyword arguments of the class, after the buffer.
    options: dict[str, Any] = Field(default_factory=dict)


#: Sections of the samplers by name.
SAMPLERS: dict[str, type[ConfigModel]] = {
    "in_order": InOrderConfig,
    "windowed": WindowedConfig,
    "ready_first": ReadyFirstConfig,
    "weight_fifo": WeightFifoConfig,
    "custom": CustomSamplerConfig,
}

SamplerConfig = Annotated[
    InOrderConfig | WindowedConfig | ReadyFirstConfig | WeightFifoConfig | CustomSamplerConfig,
    Field(discriminator="name"),
]


class QueueConfig(ConfigModel):
    """Options of ``transport: queue``, under the names of rllm and verl, see ``grpo.queue``.

    T is ``trigger_parameter_sync_step``, P the prompts of a step.
    """

    #: Groups in the queue; null for as many as may exist, so that the queue is never full.
    capacity: PositiveInt | None = None
    #: Of a full queue: whether a group waits for room, or is dropped and its prompt retried.
    on_full: Literal["wait", "refuse"] = "wait"
    #: By how much generation may be ahead: (1 + threshold) T P groups start between two syncs.
    staleness_threshold: NonNegativeFloat = 1.0
    trigger_parameter_sync_step: PositiveInt = 1  # steps from one weight sync to the next
    #: The oldest weights that are trained on; null for the bound that follows from the quota.
    max_staleness_versions: NonNegativeInt | None = None

    def quota(self, prompts: int) -> int:
        """Return the groups that may be open at once, those trained on since the sync included."""
        ahead = 1 + Fraction(str(self.staleness_threshold))
        return int(ahead * self.trigger_parameter_sync_step * prompts)

    def bound(self, prompts: int) -> int:
        """Return the bound on ``consumed - start``.

        By default it is what a group has that no later one overtakes: at most ``quota - 1`` groups
        are trained on between the sync before its start and itself.
        """
        if self.max_staleness_versions is not None:
            return self.max_staleness_versions
        return (self.quota(prompts) - 1) // prompts


class RolloutFailureConfig(ConfigModel):
    """Budgets of failed rollouts, by the class of the failure, see ``rollout.failures``."""

    max_infra_attempts_per_prompt: PositiveInt = 5  # lost actors and planes, deadlines
    max_data_attempts_per_prompt: PositiveInt = 2  # the task refused the prompt or raised
    max_model_attempts_per_prompt: PositiveInt = 2  # empty rows, NaN
    max_reward_attempts_per_prompt: PositiveInt = 2  # too few of its rows got a reward
    max_stale_attempts_per_prompt: PositiveInt = 5  # its rows got too old before training
    backoff_base_s: PositiveFloat = 1.0  # before the second attempt; doubled for each further one
    max_backoff_s: PositiveFloat = 30.0
    #: Whether a prompt without attempts left is replaced by a new one, or its step gets smaller.
    on_dropped_prompt: Literal["shrink", "replace"] = "shrink"
    max_skipped_prompts: NonNegativeInt = 0  # dropped prompts of a run; one more ends it
    max_consecutive_dropped_prompts: NonNegativeInt = 0  # without a success in between; 0 for any
    min_step_batch_fraction: Annotated[float, Field(gt=0, le=1)] = 0.9  # of a step's prompts
    generation_timeout_s: PositiveFloat = 600.0  # deadline of one attempt of a group


class StallWatchdogConfig(ConfigModel):
    """Options of the watchdog that ends, or only reports, a run without progress."""

    interval: PositiveFloat = 30.0  # seconds between two looks
    stall_timeout: PositiveFloat = 600.0  # seconds without progress
    action: Literal["warn", "abort"] = "abort"


class AsyncRLConfig(ConfigModel):
    """Options of asynchronous training."""

    #: What is between rollouts and training: the replay buffer with a sampler, or a queue.
    transport: Literal["buffer", "queue"] = "buffer"
    sampler: SamplerConfig = InOrderConfig()  # of ``transport: buffer``
    queue: QueueConfig = QueueConfig()  # of ``transport: queue``
    #: Ready groups with which a step begins to train; a step's prompts at most.
    min_groups_for_streaming_train: PositiveInt = 32
    max_inflight_prompts: PositiveInt = 32  # groups being generated at once
    #: Groups that exist at once: being generated, ready, in training, or trained on while the
    #: generation engines don't have the new weights yet.
    max_buffered_rollouts: PositiveInt = 64
    #: Whether weights change under generations in flight, between two tokens.
    in_flight_weight_updates: bool = False
    #: Without ``in_flight_weight_updates``: whether generations in flight are aborted and go on
    #: from their tokens with the new weights; else the update waits until they have ended.
    partial_rollouts: bool = False
    recompute_kv_cache_after_weight_updates: bool = False  # of generations in flight
    #: Whether a checkpoint holds the rows of the ready groups; else their prompts are generated
    #: anew after a restart.
    checkpoint_rows: bool = True
    rollout_failure: RolloutFailureConfig = RolloutFailureConfig()
    stall_watchdog: StallWatchdogConfig = StallWatchdogConfig()

    @model_validator(mode="before")
    @classmethod
    def _refuse_renamed_keys(cls, block: Any) -> Any:
        if isinstance(block, Mapping):
            for key in block:
                if key in RENAMED:
                    raise ValueError(f"there is no key {key} here: {RENAMED[key]}")
        return block

    @model_validator(mode="after")
    def _check_updates(self) -> AsyncRLConfig:
        recompute = self.recompute_kv_cache_after_weight_updates
        if recompute and not self.in_flight_weight_updates:
            raise ValueError(
                "recompute_kv_cache_after_weight_updates needs in_flight_weight_updates: true: "
                "otherwise no generation spans an update"
            )
        if self.partial_rollouts and self.in_flight_weight_updates:
            raise ValueError(
                "partial_rollouts needs in_flight_weight_updates: false, because with it no "
                "generation is aborted for an update"
            )
        return self

    @model_validator(mode="after")
    def _check_transport(self) -> AsyncRLConfig:
        if self.transport == "buffer" and self.queue != QueueConfig():
            raise ValueError("queue is a section of transport: queue: set it, or leave queue out")
        if self.transport == "queue" and self.sampler != InOrderConfig():
            raise ValueError(
                "transport: queue has no sampler, it is first in, first out: leave sampler out, "
                "and set queue.staleness_threshold"
            )
        return self

    @property
    def arrangement(self) -> str:
        """What is between rollouts and training: ``queue``, or the sampler's name."""
        return "queue" if self.transport == "queue" else self.sampler.name

    def slots(self, prompts: int) -> int:
        """Return the groups that may exist at once, for steps of ``prompts`` prompts."""
        if self.transport == "queue":
            return self.queue.quota(prompts)
        return self.max_buffered_rollouts

    def max_staleness(self, prompts: int) -> int | None:
        """Return the bound on ``consumed - start``; None if only a custom sampler knows it."""
        if self.transport == "queue":
            return self.queue.bound(prompts)
        match self.sampler:
            case CustomSamplerConfig():
                return None
            case InOrderConfig() as sampler:
                return sampler.max_lookahead_versions
            case sampler:
                return sampler.max_staleness_versions


def check_async(block: AsyncRLConfig, prompts: int, updates_per_step: int) -> None:
    """Check the section against the step's size; ``ValueError`` says what to change.

    A buffer that can't hold what the sampler needs would stop the run for ever.
    """
    if updates_per_step != 1:
        raise ValueError(
            "asynchronous training makes one optimizer step per step: set "
            "policy.train_global_batch_size to null"
        )
    if block.transport == "queue":
        _check_queue(block, prompts)
        return
    window = _window(block.sampler)
    if window is None:
        return
    needed = prompts * (window + 1)
    if block.max_buffered_rollouts < needed:
        raise ValueError(
            f"async_rl.max_buffered_rollouts is {block.max_buffered_rollouts}, and sampler "
            f"{block.sampler.name} needs at least {needed} for grpo.num_prompts_per_step {prompts}"
        )


def check_periods(block: AsyncRLConfig, periods: Mapping[str, int]) -> None:
    """Check that what is due every so many steps is due after a weight sync.

    The engines validate with the weights that they have, and a checkpoint has no half quota.
    """
    every = block.queue.trigger_parameter_sync_step
    for name, period in periods.items():
        if period % every:
            raise ValueError(
                f"{name} is {period}, not a multiple of async_rl.queue.trigger_parameter_sync_step "
                f"{every}: validations and checkpoints are made after a weight sync"
            )


def _check_queue(block: AsyncRLConfig, prompts: int) -> None:
    """Check that the queue can hold a chunk, and the slots a quota: else the run stops for ever."""
    quota, capacity = block.queue.quota(prompts), block.queue.capacity
    if block.max_buffered_rollouts < quota:
        raise ValueError(
            f"async_rl.max_buffered_rollouts is {block.max_buffered_rollouts}, and the queue's "
            f"quota needs {quota}: (1 + staleness_threshold) x trigger_parameter_sync_step x "
            "grpo.num_prompts_per_step"
        )
    chunk = min(block.min_groups_for_streaming_train, prompts)
    if capacity is not None and capacity < chunk:
        raise ValueError(
            f"async_rl.queue.capacity is {capacity}, and a step takes {chunk} groups at once: "
            "raise it, or lower async_rl.min_groups_for_streaming_train"
        )


def _window(sampler: Any) -> int | None:
    """Steps of prompts that the sampler keeps beside the current one; None if it is not known."""
    match sampler:
        case InOrderConfig():
            return sampler.max_lookahead_versions
        case ReadyFirstConfig() | WeightFifoConfig():
            return sampler.max_staleness_versions
        case WindowedConfig():
            return 0
        case _:
            return None
