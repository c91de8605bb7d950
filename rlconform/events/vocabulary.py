"""The words of the schema: causes, features, and the types that several events share."""

from __future__ import annotations

from enum import Enum
from typing import Annotated, Final

from msgspec import Meta, Struct

GroupId = Annotated[str, Meta(min_length=1, description="Name of the group, unique in the run.")]
#: The largest number in a record; greater ones are no floats, in which means are computed.
MOST: Final = 2**63 - 1

Row = Annotated[int, Meta(ge=0, le=MOST, description="Number of the sample in its group, from 0.")]
Rows = Annotated[list[int], Meta(description="Numbers of samples in the group, from 0.")]
Attempt = Annotated[
    int,
    Meta(ge=0, le=MOST, description="How often this was tried before; grows with each try."),
]
Version = Annotated[
    int, Meta(ge=0, le=MOST, description="Version of the weights: steps trained so far.")
]
StepNumber = Annotated[int, Meta(ge=0, le=MOST, description="Number of the training step.")]
Tokens = Annotated[int, Meta(ge=0, le=MOST, description="Number of tokens.")]
EngineName = Annotated[str, Meta(description="Name of the engine that generates.")]
Digest = Annotated[str, Meta(description="Digest of the content, equal if and only if it is.")]
Seconds = Annotated[float, Meta(ge=0, description="Duration in seconds.")]


class DropCause(Enum):
    """Why a group or a rollout ends without being trained on; the only causes that there are."""

    STALE = "stale"  # ready, but too old
    ABORTED_STALE = "aborted_stale"  # too old while it was generated
    ABORTED_SYNC = "aborted_sync"  # cut for a weight sync
    FILTERED_UNIFORM = "filtered_uniform"  # all rewards of the group are equal
    FILTERED_USER = "filtered_user"  # another filter of the user's
    INFRA_FAILURE = "infra_failure"  # a process, an engine or the plane was lost, or was too late
    DATA_FAILURE = "data_failure"  # the task refused the prompt, or raised
    MODEL_FAILURE = "model_failure"  # the policy wrote nothing, or NaN
    REWARD_FAILURE = "reward_failure"  # too few of its rows have a reward
    OVERLOAD = "overload"  # no room, or no time
    SURPLUS = "surplus"  # more than needed were generated
    RESTART = "restart"  # lost with the process that had it
    SHUTDOWN = "shutdown"  # the run ended first


class RewardFailureCause(Enum):
    """Why a row has no reward; the only causes that there are."""

    RAISED = "raised"  # the scorer raised
    NOT_FINITE = "not_finite"  # NaN or infinite
    TIMEOUT = "timeout"  # later than allowed
    WRONG_ROW = "wrong_row"  # the answer is that of another row, or of another attempt
    MALFORMED = "malformed"  # the answer is not of the shape that was agreed on
    UNAVAILABLE = "unavailable"  # the service or the worker that scores was lost, or refused


class StalenessDefinition(Enum):
    """What a run's bound on staleness bounds; each is a number of versions or steps."""

    START = "start"  # consumed version - version of the first token
    NEWEST = "newest"  # consumed version - version of the last token
    DISPATCH = "dispatch"  # step - step at dispatch + 1
    ADMISSION = "admission"  # consumed version - trainer's version at dispatch


class Feature(Enum):
    """What a run has and writes events about; a rule that needs more does not apply to it."""

    REWARD = "reward"  # reward_computed and reward_failed
    PLANE = "plane"  # plane_op
    SYNC = "sync"  # weights_published and weights_applied


class Unlogged(Enum):
    """Types of events that a run may have and not write; no rule that rests on them passes."""

    ROLLOUT_FINISHED = "rollout_finished"
    DROPPED = "dropped"
    CLEARED = "cleared"
    CHECKPOINT_SAVED = "checkpoint_saved"


class IdleCause(Enum):
    """Why the trainer or the generation waits."""

    NO_READY_GROUPS = "no_ready_groups"
    WEIGHT_SYNC = "weight_sync"
    BUFFER_FULL = "buffer_full"
    GATE = "gate"  # the bound on staleness allows no further prompt yet
    BACKOFF = "backoff"  # waits before it tries again
    ALL_DISPATCHED = "all_dispatched"  # no prompt is left
    CHECKPOINT = "checkpoint"
    VALIDATION = "validation"
    OTHER = "other"


class EventSource(Struct, frozen=True, forbid_unknown_fields=True, gc=False):
    """The process that writes a file of events; ``incarnation`` counts its restarts."""

    role: str
    rank: int
    host: str
    pid: int
    incarnation: int = 0


class StalenessBound(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The bound that a run declares: no sample that is trained on exceeds it."""

    definition: StalenessDefinition
    bound: Annotated[int, Meta(ge=0)]


class GroupCounts(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The framework's own counts of the run's groups, all restarts included."""

    dispatched: int | None = None
    trained: int | None = None
    dropped: int | None = None
    in_flight: int | None = None  # dispatched and neither committed nor dropped
    buffered: int | None = None  # committed and neither trained nor dropped
