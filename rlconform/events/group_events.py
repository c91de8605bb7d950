"""Events about a group and its rows: from the dispatch of the prompt to the clear of the rows.

prompt_dispatched ─▶ rollout_started, segment, rollout_finished
                  ─▶ reward_computed or reward_failed ─▶ committed ─▶ queued, dequeued
                  ─▶ selected ─▶ trained, dropped ─▶ cleared
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from rlconform.events.event_bases import GroupEvent, RowEvent
from rlconform.events.vocabulary import (
    Attempt,
    Digest,
    DropCause,
    EngineName,
    RewardFailureCause,
    Rows,
    StepNumber,
    Tokens,
    Version,
)


class PromptDispatched(GroupEvent, tag="prompt_dispatched", frozen=True, kw_only=True):
    """A prompt is given to generation as a new group, or again as the next attempt of one."""

    prompt_id: str
    attempt: Attempt = 0
    step: StepNumber | None = None
    version: Version | None = None


class RolloutStarted(RowEvent, tag="rollout_started", frozen=True, kw_only=True):
    """An engine takes a sample; ``weight_version`` is what the engine has at this moment."""

    weight_version: Version | None = None
    engine: EngineName | None = None
    sample_id: str | None = None


class Segment(RowEvent, tag="segment", frozen=True, kw_only=True):
    """Tokens of a sample that were generated with one version of the weights."""

    weight_version: Version
    tokens: Tokens


class RolloutFinished(RowEvent, tag="rollout_finished", frozen=True, kw_only=True):
    """A sample is complete; ``output`` is the digest of what was generated."""

    tokens: Tokens | None = None
    weight_version: Version | None = None
    output: Digest | None = None


class RolloutFailed(RowEvent, tag="rollout_failed", frozen=True, kw_only=True):
    """The generation of a sample failed; it may be tried again with a higher attempt."""

    cause: DropCause
    tokens: Tokens | None = None


class RolloutAborted(RowEvent, tag="rollout_aborted", frozen=True, kw_only=True):
    """The framework ended a sample; it may go on or be tried again with a higher attempt."""

    cause: DropCause
    tokens: Tokens | None = None


class RewardComputed(RowEvent, tag="reward_computed", frozen=True, kw_only=True):
    """A sample has its reward; ``output`` is the digest of what was scored."""

    reward: float | None = None
    output: Digest | None = None


class RewardFailed(RowEvent, tag="reward_failed", frozen=True, kw_only=True):
    """A sample has no reward: it stays in its group, and is not trained on."""

    cause: RewardFailureCause
    error: Annotated[str, Meta(description="What went wrong.")] | None = None
    output: Digest | None = None


class Committed(GroupEvent, tag="committed", frozen=True, kw_only=True):
    """A group is ready to be trained on: rows, rewards and versions are where the trainer reads."""

    rows: Rows
    start_version: Version | None = None
    end_version: Version | None = None
    rewards: (
        Annotated[
            list[float | None],
            Meta(description="Rewards in the order of rows; null for a row whose reward failed."),
        ]
        | None
    ) = None


class Queued(GroupEvent, tag="queued", frozen=True, kw_only=True):
    """A trajectory queue has accepted a group, or has it back from a get that was cancelled."""


class Dequeued(GroupEvent, tag="dequeued", frozen=True, kw_only=True):
    """A trajectory queue gives a group to the trainer."""


class Selected(GroupEvent, tag="selected", frozen=True, kw_only=True):
    """A step takes a group; ``version`` is the trainer's at this moment."""

    step: StepNumber
    version: Version | None = None


class Trained(GroupEvent, tag="trained", frozen=True, kw_only=True):
    """The gradient of these rows is in the step's update, made from ``version``."""

    rows: Rows
    step: StepNumber
    version: Version | None = None
    loss_tokens: Tokens | None = None


class Dropped(GroupEvent, tag="dropped", frozen=True, kw_only=True):
    """A group will never be trained on under this attempt."""

    cause: DropCause


class Cleared(GroupEvent, tag="cleared", frozen=True, kw_only=True):
    """The rows of a group are deleted from where the trainer reads."""
