"""The sections ``reward_model:`` and ``custom_reward_function:``, under verl's names.

Without them a task's own rule rewards its rows, at once and in the rollout worker.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import (
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    model_validator,
)

from rlconform.grpo.config.base import ConfigModel


class CustomRewardFunctionConfig(ConfigModel):
    """A reward function of your own, sync or async, see ``rewards.functions``."""

    path: Annotated[str, Field(min_length=1)]  # a Python file, or the name of a module
    name: Annotated[str, Field(min_length=1)] = "compute_score"
    #: Keyword arguments of every call.
    reward_kwargs: dict[str, Any] = Field(default_factory=dict)


class RewardServiceConfig(ConfigModel):
    """A reward model behind HTTP, see ``rewards.service``."""

    base_url: Annotated[str, Field(pattern=r"^https?://")]
    model: str = "reward"
    request_timeout_s: PositiveFloat = 30.0  # of one try
    max_retries: NonNegativeInt = 2  # after a timeout, a lost connection, 429 or 5xx
    backoff_s: NonNegativeFloat = 0.5  # before the first retry; doubled for each further one


class RewardModelConfig(ConfigModel):
    """Options of a reward model: its workers, its resource pool and its batches."""

    enable: bool = False
    #: Folder of a sequence classification model of transformers, or ``tiny-reward-llama``, created
    #: in code from ``grpo.seed``; not used with ``service``.
    model_name: str = "tiny-reward-llama"
    #: A reward model that is served elsewhere, instead of workers of this run.
    service: RewardServiceConfig | None = None
    #: Whether the workers have a pool of their own; otherwise they share that of the rollout
    #: workers, and sleep while those generate if ``sleep_while_generating``.
    enable_resource_pool: bool = False
    n_gpus_per_node: PositiveInt = 1  # workers per node; on CPU a worker takes a core
    nnodes: PositiveInt = 1
    dp_size: PositiveInt = 1  # workers, each with the whole model
    sleep_while_generating: bool = False
    max_batch_size: PositiveInt = 32  # rows that a worker scores at once
    max_wait_ms: NonNegativeFloat = 10.0  # for which the first row of a batch waits for others
    max_queue: PositiveInt = 1024  # rows that wait; further ones wait to be queued

    @property
    def has_workers(self) -> bool:
        """Whether the run starts workers for the model; a service has its own."""
        return self.enable and self.service is None

    @model_validator(mode="after")
    def _check_sleep(self) -> Self:
        if self.sleep_while_generating and self.enable_resource_pool:
            raise ValueError(
                "reward_model.sleep_while_generating needs enable_resource_pool: false; workers on "
                "a pool of their own never make room for others"
            )
        return self


class RewardLoopConfig(ConfigModel):
    """Options of the loop in each rollout worker that calls the scorer."""

    timeout_s: PositiveFloat = 60.0  # of one row; a later reward fails the row
    max_concurrent: PositiveInt = 256  # rows that are being scored at once
    #: The reward of a row without any text, which no scorer is asked for.
    empty_response_reward: float = 0.0
    #: A row without a reward leaves its group, with its reason in the accounting (``drop_row``),
    #: or ends the run.
    on_failure: Literal["drop_row", "raise"] = "drop_row"
