"""Exports a log as a Chrome trace, which Perfetto (ui.perfetto.dev) and chrome://tracing show.

groups       in flight, ready, in a step, from dispatch to the end
processes    rollouts by row, idle times, and instants: weights, drops, checkpoints, losses
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import IO, Any

import msgspec

from rlconform.events.schema import (
    CheckpointSaved,
    Committed,
    Dropped,
    EventSource,
    GroupEvent,
    Idle,
    ProcessLost,
    PromptDispatched,
    Record,
    Resumed,
    RolloutAborted,
    RolloutFailed,
    RolloutFinished,
    RolloutStarted,
    RowEvent,
    RunFinished,
    Selected,
    Trained,
    WeightsApplied,
    WeightsPublished,
)

_GROUPS = 1  # the process id of the track of groups
_INSTANTS = (
    WeightsPublished, WeightsApplied, Dropped, CheckpointSaved, Resumed, ProcessLost, RunFinished,
)  # fmt: skip
_ROLLOUT_ENDS = (RolloutFinished, RolloutFailed, RolloutAborted)
_PHASES = {PromptDispatched: "in flight", Committed: "ready", Selected: "in a step"}

TraceEvent = dict[str, Any]


def trace_events(records: Iterable[Record]) -> Iterator[TraceEvent]:
    """Yield the events of the trace; times are microseconds of the wall time."""
    processes: dict[EventSource, int] = {}
    phases: dict[str, str] = {}
    yield _named(_GROUPS, "groups")
    for record in records:
        number = processes.get(record.source)
        if number is None:
            number = processes[record.source] = _GROUPS + 1 + len(processes)
            source = record.source
            yield _named(number, f"{source.role} {source.rank} ({source.host}, pid {source.pid})")
        event, at = record.event, record.wall_ns / 1000
        if isinstance(event, RowEvent):
            yield from _rollout(event, at, number)
        elif isinstance(event, GroupEvent):
            yield from _phase(event, at, phases)
        if isinstance(event, Idle):
            name = f"{event.who} idle: {event.cause.value}"
            began, took = at - event.seconds * 1e6, event.seconds * 1e6
            yield {"ph": "X", "name": name, "pid": number, "tid": 0, "ts": began, "dur": took}
        if isinstance(event, _INSTANTS):
            tag = str(event.__struct_config__.tag)
            detail = msgspec.to_builtins(event)
            yield {
                "ph": "i", "s": "p", "name": tag, "pid": number, "tid": 0, "ts": at, "args": detail,
            }  # fmt: skip


def _named(process: int, name: str) -> TraceEvent:
    return {"ph": "M", "name": "process_name", "pid": process, "tid": 0, "args": {"name": name}}


def _rollout(event: RowEvent, at: float, process: int) -> Iterator[TraceEvent]:
    name = f"{event.group_id}/{event.row}/{event.attempt}"
    common = {"cat": "rollout", "id": name, "name": name, "pid": process, "tid": 0, "ts": at}
    if isinstance(event, RolloutStarted):
        yield {"ph": "b", **common, "args": {"weight_version": event.weight_version}}
    elif isinstance(event, _ROLLOUT_ENDS):
        yield {"ph": "e", **common, "args": {"end": str(event.__struct_config__.tag)}}


def _phase(event: GroupEvent, at: float, phases: dict[str, str]) -> Iterator[TraceEvent]:
    begins = _PHASES.get(type(event))
    if begins is None and not isinstance(event, Trained | Dropped):
        return
    common = {"cat": "group", "id": event.group_id, "pid": _GROUPS, "tid": 0, "ts": at}
    ends = phases.pop(event.group_id, None)
    if ends is not None:
        yield {"ph": "e", "name": ends, **common}
    if begins is not None:
        phases[event.group_id] = begins
        yield {"ph": "b", "name": begins, **common, "args": {"group_id": event.group_id}}


def write_trace(records: Iterable[Record], file: IO[bytes]) -> int:
    """Write the trace as JSON, and return the number of its events."""
    encode = msgspec.json.Encoder().encode
    count = 0
    file.write(b'{"displayTimeUnit":"ms","traceEvents":[')
    for event in trace_events(records):
        file.write((b",\n" if count else b"\n") + encode(event))
        count += 1
    file.write(b"\n]}\n")
    return count
