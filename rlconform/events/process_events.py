"""Events about the run and its processes: what is declared, weights, checkpoints, losses, ends."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, field

from rlconform.events.event_bases import RunEvent
from rlconform.events.vocabulary import (
    Digest,
    EngineName,
    EventSource,
    Feature,
    GroupCounts,
    IdleCause,
    Seconds,
    StalenessBound,
    StepNumber,
    Unlogged,
    Version,
)


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
    steps: (
        Annotated[int, Meta(ge=1, description="Steps of a run that completes, restarts included.")]
        | None
    ) = None
    final_sync: Annotated[
        bool,
        Meta(description="Whether the weights of the last step are published and applied too."),
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
    features: list[Feature] = field(default_factory=list)
    stamped: Annotated[
        bool, Meta(description="Whether messages between hosts carry the writer's clock.")
    ] = True
    split_groups: Annotated[
        bool, Meta(description="Whether several steps may train on the rows of one group.")
    ] = False
    unlogged: Annotated[
        list[Unlogged], Meta(description="Types of events that happen and are not written.")
    ] = field(default_factory=list)


class LogOpened(RunEvent, tag="log_opened", frozen=True, kw_only=True):
    """A process other than the driver begins to write: the first line of its file."""


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
    restored: Annotated[list[str], Meta(description="Groups that are back with their rows.")] = (
        field(default_factory=list)
    )
    counts: GroupCounts | None = None


class ScoringStarted(RunEvent, tag="scoring_started", frozen=True, kw_only=True):
    """A reward worker takes a batch of samples of any split; it runs one batch at a time."""

    sample_ids: list[str]


class ScoringFinished(RunEvent, tag="scoring_finished", frozen=True, kw_only=True):
    """A reward worker has scored its batch, or failed to; who asked says what each sample got."""

    scored: Annotated[int, Meta(ge=0, description="Samples that have a score.")]


class ServerFailed(RunEvent, tag="server_failed", frozen=True, kw_only=True):
    """A server outside the run has failed a request, or has not taken new weights.

    Others get its requests for a while. It is no process of the run, so it has an address only.
    """

    server: Annotated[str, Meta(description="Its URL.")]
    reason: str | None = None


class ProcessLost(RunEvent, tag="process_lost", frozen=True, kw_only=True):
    """The driver has found that a process is dead; it writes this in the dead process's place."""

    lost: EventSource
    reason: str | None = None


class Idle(RunEvent, tag="idle", frozen=True, kw_only=True):
    """Something has waited for ``seconds``, until now."""

    who: Literal["trainer", "generation"]
    seconds: Seconds
    cause: IdleCause


class RunFinished(RunEvent, tag="run_finished", frozen=True, kw_only=True):
    """The run is over; after ``completed`` nothing is open any more."""

    reason: Literal["completed", "failed", "cancelled"]
    counts: GroupCounts | None = None


class LogClosed(RunEvent, tag="log_closed", frozen=True, kw_only=True):
    """The last line of a file; ``lost`` counts events that could not be written."""

    lost: Annotated[int, Meta(ge=0)] = 0
    last_error: str | None = None
