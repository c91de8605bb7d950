"""The events of a run, and the record in which each is written: one JSON line.

    {"schema":1,"run":"r1","seq":7,"clock":…,"mono_ns":…,"wall_ns":…,"source":{…},"event":{"type":…}}

A record says who wrote the event and when; the event says what happened. Events name a *group* (the
samples of one dispatch of one prompt) by ``group_id`` and a sample by its group and ``row``. A row
that is generated anew has a higher ``attempt``. A field that isn't known is left out; it is never
replaced by 0.

Version v of the weights is the policy after v steps; step k makes version k out of version k - 1.

    schema: Record, AnyEvent ─▶ group_events, process_events, plane_op ─▶ event_bases ─▶ vocabulary

This module has all of them.
"""

from __future__ import annotations

from inspect import cleandoc
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta, Struct

from rlconform.events.event_bases import GroupEvent, RowEvent, RunEvent
from rlconform.events.group_events import (
    Cleared,
    Committed,
    Dequeued,
    Dropped,
    PromptDispatched,
    Queued,
    RewardComputed,
    RewardFailed,
    RolloutAborted,
    RolloutFailed,
    RolloutFinished,
    RolloutStarted,
    Segment,
    Selected,
    Trained,
)
from rlconform.events.plane_op import PlaneOp
from rlconform.events.process_events import (
    CheckpointSaved,
    Idle,
    LogClosed,
    LogOpened,
    ProcessLost,
    Resumed,
    RolloutPaused,
    RolloutResumed,
    RunFinished,
    RunStarted,
    ScoringFinished,
    ScoringStarted,
    ServerFailed,
    WeightsApplied,
    WeightsPublished,
)
from rlconform.events.vocabulary import (
    MOST,
    DropCause,
    EventSource,
    Feature,
    GroupCounts,
    IdleCause,
    RewardFailureCause,
    StalenessBound,
    StalenessDefinition,
    Unlogged,
)

__all__ = [
    "SCHEMA_VERSION",
    "AnyEvent",
    "CheckpointSaved",
    "Cleared",
    "Committed",
    "Dequeued",
    "DropCause",
    "Dropped",
    "EventSource",
    "Feature",
    "GroupCounts",
    "GroupEvent",
    "Idle",
    "IdleCause",
    "LogClosed",
    "LogOpened",
    "PlaneOp",
    "ProcessLost",
    "PromptDispatched",
    "Queued",
    "Record",
    "Resumed",
    "RewardComputed",
    "RewardFailed",
    "RewardFailureCause",
    "RolloutAborted",
    "RolloutFailed",
    "RolloutFinished",
    "RolloutPaused",
    "RolloutResumed",
    "RolloutStarted",
    "RowEvent",
    "RunEvent",
    "RunFinished",
    "RunStarted",
    "ScoringFinished",
    "ScoringStarted",
    "Segment",
    "Selected",
    "ServerFailed",
    "StalenessBound",
    "StalenessDefinition",
    "Trained",
    "Unlogged",
    "WeightsApplied",
    "WeightsPublished",
    "json_schema",
]

#: The version of the schema that this module reads and writes.
SCHEMA_VERSION: Final = 1

AnyEvent = (
    RunStarted
    | LogOpened
    | PromptDispatched
    | RolloutStarted
    | Segment
    | RolloutFinished
    | RolloutFailed
    | RolloutAborted
    | RewardComputed
    | RewardFailed
    | ScoringStarted
    | ScoringFinished
    | Committed
    | Queued
    | Dequeued
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
    | ServerFailed
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
    seq: Annotated[
        int, Meta(ge=0, le=MOST, description="Number of the line in its file, without gaps.")
    ]
    clock: Annotated[
        int, Meta(ge=0, le=MOST, description="Microseconds of the hybrid logical clock.")
    ]
    mono_ns: Annotated[
        int, Meta(le=MOST, description="The process's monotonic time, in nanoseconds.")
    ]
    wall_ns: Annotated[int, Meta(le=MOST, description="Wall time since 1970, in nanoseconds.")]
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
