"""Defects at the end of something: after drops and clears, at resumes, of waits."""

from __future__ import annotations

from random import Random

from rlconform.events.schema import (
    CheckpointSaved,
    Cleared,
    Dropped,
    Idle,
    IdleCause,
    ProcessLost,
    PromptDispatched,
    Resumed,
    RewardComputed,
    RolloutFinished,
    RunFinished,
    RunStarted,
    Trained,
    WeightsApplied,
    WeightsPublished,
)

from ..log_builder import Line
from .defect import (
    Lines,
    changed,
    found_by,
    inserted,
    lasting,
    pick,
    places_of,
    without,
)


@found_by("accounting")
def run_is_a_step_short(lines: Lines, _: Random) -> Lines | None:
    """The loop runs to the last step, and not through it."""
    for place in places_of(lines, RunStarted):
        declared = lines[place].event.steps
        lines = changed(lines, place, steps=declared + 1)
    return lines


@found_by("versions")
def last_weights_are_not_published(lines: Lines, _: Random) -> Lines | None:
    """Nothing is generated after the last step, so nobody brings its weights to the engines."""
    last = max(line.event.version for line in lines if isinstance(line.event, WeightsPublished))
    published = places_of(lines, WeightsPublished, version=last)
    return without(lines, published + places_of(lines, WeightsApplied, version=last))


@found_by("versions")
def one_engine_does_not_get_the_last_weights(lines: Lines, _: Random) -> Lines | None:
    """An engine that is busy until the end is left out of the last sync."""
    if places_of(lines, ProcessLost):  # engines that begin anew apply the same version again
        return None
    return without(lines, places_of(lines, WeightsApplied)[-1:])


@found_by("after_end")
def dropped_group_is_trained(lines: Lines, random: Random) -> Lines | None:
    """A group that was dropped as stale is in the step's list already."""
    end = (places_of(lines, Resumed) or [0])[-1]
    again = {
        line.event.group_id for line in lines[end:] if isinstance(line.event, PromptDispatched)
    }
    dropped = [p for p in lasting(lines, Dropped) if lines[p].event.group_id in again]
    place = pick(random, dropped)
    if place is None:
        return None
    step = max((lines[p].event.step for p in places_of(lines, Trained) if p < place), default=1)
    name = lines[place].event.group_id
    return inserted(lines, place + 1, Trained(group_id=name, rows=[0], step=step, version=0))


@found_by("after_end")
def group_is_cleared_before_it_is_trained(lines: Lines, random: Random) -> Lines | None:
    """A clean-up runs while the step is still reading."""
    place = pick(random, lasting(lines, Trained))
    if place is None:
        return None
    name = lines[place].event.group_id
    return inserted(lines, place, Cleared(group_id=name))


@found_by("after_end")
def judge_goes_on_after_the_run(lines: Lines, random: Random) -> Lines | None:
    """Reward processes are not stopped with the run."""
    place = pick(random, places_of(lines, RewardComputed))
    return None if place is None else [*lines, lines[place]._replace(wall_ns=lines[-1].wall_ns)]


@found_by("resume")
def checkpoint_forgets_a_group(lines: Lines, random: Random) -> Lines | None:
    """Groups in flight are not saved."""
    places = [p for p in places_of(lines, CheckpointSaved) if lines[p].event.in_flight]
    place = pick(random, places)
    if place is None:
        return None
    own = [
        name
        for name in lines[place].event.in_flight
        if any(
            lines[p].event.group_id == name and lines[p].source == lines[place].source
            for p in places_of(lines, PromptDispatched)
        )
    ]
    if not own:
        return None
    left = [name for name in lines[place].event.in_flight if name != own[0]]
    return changed(lines, place, in_flight=left)


@found_by("resume")
def trained_group_comes_back(lines: Lines, _: Random) -> Lines | None:
    """The buffer is restored from an older state than the weights."""
    places = places_of(lines, Resumed)
    if not places:
        return None
    step = lines[places[0]].event.step
    trained = [
        line.event.group_id
        for line in lines[: places[0]]
        if isinstance(line.event, Trained) and line.event.step <= step
    ]
    if not trained:
        return None
    restored = [*lines[places[0]].event.restored, trained[0]]
    return changed(lines, places[0], restored=restored)


@found_by("resume")
def saved_prompt_is_skipped(lines: Lines, _: Random) -> Lines | None:
    """The state of the data loader is ahead of what was trained on."""
    places = places_of(lines, Resumed)
    if not places:
        return None
    after, resumed = lines[places[0] :], lines[places[0]].event
    saves = [
        place
        for place in places_of(lines, CheckpointSaved)
        if place < places[0] and lines[place].event.step == resumed.step
    ]
    saved = lines[saves[-1]].event
    held = {*(saved.buffered or ()), *(saved.in_flight or ())}
    before = {  # a prompt that was dropped before the checkpoint may be given up
        line.event.prompt_id
        for place, line in enumerate(lines[: places[0]])
        if isinstance(line.event, PromptDispatched)
        and (place > saves[-1] or line.event.group_id in held)
    }
    dispatched = [line.event for line in after if isinstance(line.event, PromptDispatched)]
    again = [event for event in dispatched if event.prompt_id in before]
    new = [event for event in dispatched if event.prompt_id not in before and event.attempt == 0]
    if not again or not new:
        return None
    names = {event.group_id for event in dispatched if event.prompt_id == again[0].prompt_id}
    return [*lines[: places[0]], *(line for line in after if _name(line) not in names)]


@found_by("liveness")
def run_stalls(lines: Lines, random: Random) -> Lines | None:
    """The trainer waits for a group that nobody generates."""
    place = pick(random, lasting(lines, Trained))
    if place is None:
        return None
    later = [line._replace(wall_ns=line.wall_ns + 10**13) for line in lines[place:]]
    return [*lines[:place], *later]


@found_by("liveness")
def rollout_is_late(lines: Lines, _: Random) -> Lines | None:
    """A deadline is not enforced."""
    ends = places_of(lines, RolloutFinished)
    if not ends or places_of(lines, Resumed):
        return None
    return changed(lines, 0, rollout_deadline_s=1e-6)


@found_by("liveness")
def permit_leaks(lines: Lines, _: Random) -> Lines | None:
    """Generation waits for room although there is some."""
    last = lines[-1]
    event = Idle(who="generation", seconds=50, cause=IdleCause.BUFFER_FULL)
    if not isinstance(last.event, RunFinished):
        return None
    waited = last._replace(event=event, wall_ns=last.wall_ns + 100 * 10**9)
    return [*lines[:-1], waited, last._replace(wall_ns=waited.wall_ns + 10**6)]


def _name(line: Line) -> str | None:
    return getattr(line.event, "group_id", None)
