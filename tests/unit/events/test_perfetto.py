"""The export is a Chrome trace in which every slice that begins ends."""

from __future__ import annotations

from collections import Counter
from io import BytesIO

import msgspec

from rlconform.events.perfetto import trace_events, write_trace
from rlconform.events.schema import (
    Committed,
    DropCause,
    Dropped,
    EventSource,
    Idle,
    IdleCause,
    PromptDispatched,
    Record,
    RolloutFinished,
    RolloutStarted,
    RunEvent,
    Selected,
    Trained,
    WeightsApplied,
)


def records(*events: RunEvent) -> list[Record]:
    return [
        Record(
            run="r", seq=n, clock=n, mono_ns=1000 * n, wall_ns=1000 * n,
            source=EventSource("trainer", 0, "a", 1), event=event,
        )
        for n, event in enumerate(events)
    ]  # fmt: skip


LOG = records(
    PromptDispatched(group_id="g", prompt_id="p"),
    RolloutStarted(group_id="g", row=0, weight_version=2),
    RolloutFinished(group_id="g", row=0),
    Committed(group_id="g", rows=[0]),
    Idle(who="trainer", seconds=1, cause=IdleCause.GATE),
    Selected(group_id="g", step=1),
    Trained(group_id="g", rows=[0], step=1),
    WeightsApplied(version=1, engine="e"),
    PromptDispatched(group_id="h", prompt_id="q"),
    Dropped(group_id="h", cause=DropCause.SHUTDOWN),
)


def test_slices_of_groups_and_rollouts_begin_and_end() -> None:
    events = list(trace_events(LOG))
    slices = Counter((event["cat"], event["ph"]) for event in events if event["ph"] in "be")
    assert slices["group", "b"] == slices["group", "e"] == 4
    assert slices["rollout", "b"] == slices["rollout", "e"] == 1
    phases = [e["name"] for e in events if e["ph"] == "b" and e.get("id") == "g"]
    assert phases == ["in flight", "ready", "in a step"]


def test_idle_times_and_instants_are_shown() -> None:
    events = list(trace_events(LOG))
    (idle,) = [event for event in events if event["ph"] == "X"]
    assert (idle["dur"], idle["ts"]) == (1e6, 4 - 1e6)
    assert [e["name"] for e in events if e["ph"] == "i"] == ["weights_applied", "dropped"]


def test_the_file_is_json() -> None:
    file = BytesIO()
    count = write_trace(LOG, file)
    trace = msgspec.json.decode(file.getvalue())
    assert len(trace["traceEvents"]) == count
    assert trace["displayTimeUnit"] == "ms"
