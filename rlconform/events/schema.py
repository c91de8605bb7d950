"""The events of a run, and the record in which each is written: one JSON line.

    {"schema":1,"run":"r1","seq":7,"clock":…,"mono_ns":…,"wall_ns":…,"source":{…},"event":{"type":…}}

A record says who wrote the event and when; the event says what happened. Events name a *group* (the
samples of one dispatch of one prompt) by ``group_id`` and a sample by its group and ``row``. A row
that is generated anew has a higher ``attempt``. A field that isn't known is left out; it is never
replaced by 0.

Version v of the weights is the policy after v steps; step k makes version k out of version k - 1.
"""

from __future__ import annotations

from inspect import cleandoc
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta, Struct

from rlconform.events.vocabulary import (
    Attempt,
    Digest,
    DropCause,
    EngineName,
    EventSource,
    Feature,
    GroupCounts,
    GroupId,
    IdleCause,
    RewardFailureCause,
    Row,
    Rows,
    Seconds,
    StalenessBound,
    StalenessDefinition,
    StepNumber,
    Tokens,
    Unlogged,
    Version,
)

#: Names of ``vocabulary`` that belong to the schema; events are exported as well.
__all__ = [
    "DropCause", "EventSource", "Feature", "GroupCounts", "IdleCause", "RewardFailureCause",
    "StalenessBound", "StalenessDefinition", "Unlogged",
]  # fmt: skip

#: The version of the schema that this module reads and writes.
SCHEMA_VERSION: Final = 1


class RunEvent(
    Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, tag_field="type", gc=False
):
    """The base class of all events."""


class RunStarted(RunEvent, tag="run_started", frozen=True, kw_only=True):
    """The run begins, or goes on after a restart; it declares what holds for the whole run."""

    algorithm: str | None = None
    group_size: Annotated[int, Meta(ge=1, description="Rows of a whole group.")] | None = None
    prompts_per_step: Annotated[int, Meta(ge=1, description="Groups of a step.")] | None = None
    staleness: StalenessBound | None = None
    mixed_versions: (
        Annotated[bool, Meta(description="Whether a sample may have tokens of several versions.")]
        | None
    ) = None
    prompts_once: Annotated[
        bool, Meta(description="Whether each prompt_id is trained on at most once.")
    ] = False
    prompts_for_step: Annotated[
        bool,
        Meta(description="Whether a step waits for its own prompts while later ones are ready."),
    ] = False
    partial_groups: Annotated[
        bool, Meta(description="Whether a group may be committed without some of its rows.")
    ] = False
    capacity: (
        Annotated[int, Meta(ge=1, description="Groups that may be dispatched and not yet taken.")]
        | None
    ) = None
    rollout_deadline_s: (
        Annotated[Seconds, Meta(description="Longest time from the start of a rollout to its end.")]
        | None
    ) = None
    step_deadline_s: (
        Annotated[Seconds, Meta(description="Longest time from one training step to the next.")]
        | None
    ) = None
    features: list[Feature] = []
    stamped: Annotated[
        bool, Meta(description="Whether messages between hosts carry the writer's clock.")
    ] = True
    split_groups: Annotated[
        bool, Meta(description="Whether several steps may train on the rows of one group.")
    ] = False
    unlogged: Annotated[
        list[Unlogged], Meta(description="Types of events that happen and are not written.")
    ] = []


class GroupEvent(RunEvent, frozen=True, kw_only=True):
    """The base class of all events that are about one group."""

    group_id: GroupId


class RowEvent(GroupEvent, frozen=True, kw_only=True):
    """The base class of all events that are about one row of a group."""

    row: Row
    attempt: Attempt = 0


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


class WeightsPublished(RunEvent, tag="weights_published", frozen=True, kw_only=True):
    """The trainer's update is done: it has a new version of the weights."""

    version: Version
    digest: Digest | None = None


class WeightsApplied(RunEvent, tag="weights_applied", frozen=True, kw_only=True):
    """An engine generates with this version from now on."""

    version: Version
    engine: EngineName
    digest: Digest | None = None


class RolloutPaused(RunEvent, tag="rollout_paused", frozen=True, kw_only=True):
    """Generation stops until ``rollout_resumed``; without ``engine`` it is that of all engines."""

    engine: EngineName | None = None


class RolloutResumed(RunEvent, tag="rollout_resumed", frozen=True, kw_only=True):
    """Generation goes on."""

    engine: EngineName | None = None


class CheckpointSaved(RunEvent, tag="checkpoint_saved", frozen=True, kw_only=True):
    """A checkpoint holds the state after ``step`` steps, with the groups that are still open."""

    step: StepNumber
    buffered: Annotated[list[str], Meta(description="Groups saved with their rows.")] | None = None
    in_flight: (
        Annotated[list[str], Meta(description="Groups whose prompts are dispatched again.")] | None
    ) = None
    counts: GroupCounts | None = None


class Resumed(RunEvent, tag="resumed", frozen=True, kw_only=True):
    """The run goes on from the checkpoint of ``step``; what was trained later is undone."""

    step: StepNumber
    restored: Annotated[list[str], Meta(description="Groups that are back with their rows.")] = []
    counts: GroupCounts | None = None


class ProcessLost(RunEvent, tag="process_lost", frozen=True, kw_only=True):
    """The driver has found that a process is dead; it writes this in the dead process's place."""

    lost: EventSource
    reason: str | None = None


class Idle(RunEvent, tag="idle", frozen=True, kw_only=True):
    """Something has waited for ``seconds``, until now."""

    who: Literal["trainer", "generation"]
    seconds: Seconds
    cause: IdleCause


class PlaneOp(RunEvent, tag="plane_op", frozen=True, kw_only=True):
    """A call of the data plane: written when it is invoked, and again with its outcome.

    ``unknown`` is the outcome of a call that may have had an effect, such as one that timed out.
    """

    op: Literal["put", "get", "claim", "clear", "list"]
    op_id: Annotated[int, Meta(description="Number of the call, unique in its process.")]
    status: Literal["invoked", "ok", "failed", "unknown"]
    partition: str = ""
    task: str | None = None
    keys: (
        Annotated[list[str], Meta(description="Invoked: keys asked for. ok: keys returned.")] | None
    ) = None
    error: Literal["not_found", "timeout", "other"] | None = None


class RunFinished(RunEvent, tag="run_finished", frozen=True, kw_only=True):
    """The run is over; after ``completed`` nothing is open any more."""

    reason: Literal["completed", "failed", "cancelled"]
    counts: GroupCounts | None = None


class LogClosed(RunEvent, tag="log_closed", frozen=True, kw_only=True):
    """The last line of a file; ``lost`` counts events that could not be written."""

    lost: Annotated[int, Meta(ge=0)] = 0
    last_error: str | None = None


AnyEvent = (
    RunStarted
    | PromptDispatched
    | RolloutStarted
    | Segment
    | RolloutFinished
    | RolloutFailed
    | RolloutAborted
    | RewardComputed
    | RewardFailed
    | Committed
    | Selected
    | Trained
    | Dropped
    | Cleared
    | WeightsPublished
    | WeightsApplied
    | RolloutPaused
    | RolloutResumed
    | CheckpointSaved
    | Resumed
    | ProcessLost
    | Idle
    | PlaneOp
    | RunFinished
    | LogClosed
)


class Record(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, gc=False):
    """One line of a file of events.

    ``clock`` is a Lamport clock that never lags behind the wall time (a hybrid logical clock): it
    is higher than that of every event that can have caused this one.
    """

    schema: Literal[1] = SCHEMA_VERSION
    run: Annotated[str, Meta(description="Name of the run, the same in all files.")]
    seq: Annotated[int, Meta(ge=0, description="Number of the line in its file, without gaps.")]
    clock: Annotated[int, Meta(ge=0, description="Microseconds of the hybrid logical clock.")]
    mono_ns: Annotated[int, Meta(description="The process's monotonic time, in nanoseconds.")]
    wall_ns: Annotated[int, Meta(description="Wall time since 1970, in nanoseconds.")]
    source: EventSource
    event: AnyEvent


def json_schema() -> dict[str, Any]:
    """Return the JSON schema of a line."""
    schema = msgspec.json.schema(Record)
    for definition in schema["$defs"].values():
        if "description" in definition:
            definition["description"] = cleandoc(definition["description"])
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"rlconform events, version {SCHEMA_VERSION}",
        **schema,
    }
