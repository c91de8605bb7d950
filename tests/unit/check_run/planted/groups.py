"""Defects of groups: lost, repeated and incomplete ones."""

from __future__ import annotations

from collections import Counter
from random import Random

import msgspec

from rlconform.events.schema import (
    CheckpointSaved,
    Committed,
    DropCause,
    Dropped,
    GroupCounts,
    ProcessLost,
    PromptDispatched,
    Resumed,
    RolloutFailed,
    RolloutFinished,
    RunStarted,
    Trained,
)

from .defect import (
    Lines,
    changed,
    committed_later,
    found_by,
    inserted,
    lasting,
    pick,
    places_of,
    without,
)


@found_by("accounting")
def group_is_lost(lines: Lines, random: Random) -> Lines | None:
    """A committed group is evicted and nobody says so."""
    place = pick(random, lasting(lines, Trained))
    if place is None:
        return None
    name = lines[place].event.group_id
    gone = [p for p in lasting(lines, Trained) if lines[p].event.group_id == name]
    return without(lines, gone)


@found_by("accounting")
def group_is_dispatched_twice(lines: Lines, random: Random) -> Lines | None:
    """The pump dispatches a prompt again that is in flight."""
    place = pick(random, lasting(lines, PromptDispatched))
    return None if place is None else inserted(lines, place + 1, lines[place].event)


@found_by("accounting")
def group_was_never_dispatched(lines: Lines, random: Random) -> Lines | None:
    """A group comes from nowhere."""
    dispatched = places_of(lines, PromptDispatched)
    times = Counter(lines[place].event.group_id for place in dispatched)
    once = [
        place
        for place in lasting(lines, PromptDispatched)
        if times[lines[place].event.group_id] == 1
    ]
    place = pick(random, once)
    return None if place is None or len(dispatched) < 2 else without(lines, [place])


@found_by("accounting")
def drop_is_not_reported(lines: Lines, random: Random) -> Lines | None:
    """A failed group disappears without a reason."""
    dropped = [p for p in lasting(lines, Dropped) if not _replaced(lines, p)]
    place = pick(random, dropped)
    return None if place is None else without(lines, [place])


def _replaced(lines: Lines, place: int) -> bool:
    """Whether the loss of a process accounts for the group too, as it is dispatched again."""
    lost = any(isinstance(line.event, ProcessLost) for line in lines[:place])
    return lost and any(
        isinstance(line.event, PromptDispatched)
        and line.event.group_id == lines[place].event.group_id
        for line in lines[place:]
    )


@found_by("accounting")
def trained_is_counted_wrongly_after_resume(lines: Lines, _: Random) -> Lines | None:
    """A counter begins at 0 again."""
    places = places_of(lines, Resumed)
    if not places or lines[places[0]].event.counts.trained == 0:
        return None
    return changed(lines, places[0], counts=GroupCounts(trained=0))


@found_by("accounting")
def counts_do_not_add_up(lines: Lines, random: Random) -> Lines | None:
    """A permit leaks: a group counts as in flight that is not."""
    place = pick(random, places_of(lines, CheckpointSaved))
    if place is None:
        return None
    counts = lines[place].event.counts
    more = msgspec.structs.replace(counts, in_flight=counts.in_flight + 1)
    return changed(lines, place, counts=more)


@found_by("accounting")
def capacity_is_exceeded(lines: Lines, _: Random) -> Lines | None:
    """The gate lets more groups in than there is room."""
    waiting: set[str] = set()
    most = 0
    for line in lines:
        event = line.event
        if isinstance(event, PromptDispatched):
            waiting.add(event.group_id)
        elif isinstance(event, Dropped | Trained):
            waiting.discard(event.group_id)
        elif isinstance(event, Resumed):
            waiting = set(event.restored)
        most = max(most, len(waiting) if isinstance(event, PromptDispatched) else 0)
    selected_first = len(places_of(lines, RunStarted)) > 1 or most < 2
    return None if selected_first else changed(lines, 0, capacity=1)


@found_by("exactly_once")
def group_is_trained_twice(lines: Lines, random: Random) -> Lines | None:
    """A step that is tried again trains on the same group."""
    place = pick(random, lasting(lines, Trained))
    return None if place is None else inserted(lines, place + 1, lines[place].event)


@found_by("exactly_once")
def group_is_trained_again_much_later(lines: Lines, random: Random) -> Lines | None:
    """A group that was cleared is trained on at the end of the run."""
    places = lasting(lines, Trained)
    place = pick(random, places)
    if place is None:
        return None
    return inserted(lines, places[-1] + 1, lines[place].event)


@found_by("exactly_once")
def row_is_twice_in_an_update(lines: Lines, random: Random) -> Lines | None:
    """A padded batch repeats its last row."""
    place = pick(random, places_of(lines, Trained))
    if place is None:
        return None
    rows = lines[place].event.rows
    return changed(lines, place, rows=[*rows, rows[-1]])


@found_by("exactly_once")
def epoch_repeats_a_name(lines: Lines, random: Random) -> Lines | None:
    """The second epoch dispatches under the ids of the first."""
    place = pick(random, lasting(lines, Trained))
    if place is None:
        return None
    name = lines[place].event.group_id
    end = lasting(lines, Trained)[-1] + 1
    lines = inserted(lines, end, Dropped(group_id=name, cause=DropCause.SHUTDOWN))
    return inserted(lines, end, PromptDispatched(group_id=name, prompt_id="of epoch 2"))


@found_by("exactly_once")
def prompt_is_trained_twice(lines: Lines, _: Random) -> Lines | None:
    """A prompt comes again under another name."""
    trained = [lines[place].event.group_id for place in lasting(lines, Trained)]
    dispatched = {lines[p].event.group_id: p for p in lasting(lines, PromptDispatched)}
    names = list(dict.fromkeys(name for name in trained if name in dispatched))
    if len(names) < 2:
        return None
    first = lines[dispatched[names[0]]].event.prompt_id
    return changed(lines, dispatched[names[-1]], prompt_id=first)


@found_by("group_integrity")
def group_is_trained_in_part(lines: Lines, random: Random) -> Lines | None:
    """A filter of single rows leaves a part of a group."""
    places = [p for p in lasting(lines, Trained) if len(lines[p].event.rows) > 1]
    place = pick(random, places)
    if place is None:
        return None
    return changed(lines, place, rows=lines[place].event.rows[1:])


@found_by("group_integrity")
def group_is_short(lines: Lines, random: Random) -> Lines | None:
    """A group without one of its rows is committed."""
    place = pick(random, places_of(lines, Committed))
    if place is None:
        return None
    rows, rewards = lines[place].event.rows[:-1], lines[place].event.rewards[:-1]
    return changed(lines, place, rows=rows, rewards=rewards)


@found_by("group_integrity")
def failed_row_is_committed(lines: Lines, random: Random) -> Lines | None:
    """A failure is taken for an answer with reward 0."""
    place = pick(random, lasting(lines, RolloutFinished))
    if place is None:
        return None
    line = lines[place]
    event: RolloutFinished = line.event
    if not committed_later(lines, place, event.group_id):
        return None
    failed = RolloutFailed(
        group_id=event.group_id, row=event.row, attempt=event.attempt,
        cause=DropCause.INFRA_FAILURE,
    )  # fmt: skip
    return [*lines[:place], line._replace(event=failed), *lines[place + 1 :]]


@found_by("group_integrity")
def group_is_committed_twice(lines: Lines, random: Random) -> Lines | None:
    """A late answer of an earlier attempt commits again."""
    place = pick(random, places_of(lines, Committed))
    return None if place is None else inserted(lines, place + 1, lines[place].event)


@found_by("group_integrity")
def group_is_split_over_two_steps(lines: Lines, random: Random) -> Lines | None:
    """A step takes half of a group, the next one the rest."""
    places = lasting(lines, Trained)
    places = [p for p in places if len(lines[p].event.rows) > 1]
    place = pick(random, places)
    if place is None:
        return None
    event: Trained = lines[place].event
    rest = msgspec.structs.replace(event, rows=event.rows[1:], step=event.step + 1)
    later = [p for p in lasting(lines, Trained) if lines[p].event.step > event.step]
    if not later:
        return None
    lines = inserted(lines, later[0], rest)
    return changed(lines, place, rows=event.rows[:1])


@found_by("group_integrity")
def uncommitted_group_is_trained(lines: Lines, random: Random) -> Lines | None:
    """The trainer reads rows that are still written."""
    places = lasting(lines, Committed)
    trained = {lines[p].event.group_id for p in lasting(lines, Trained)}
    places = [p for p in places if lines[p].event.group_id in trained]
    place = pick(random, places)
    if place is None or place == places_of(lines, Committed)[0]:
        return None
    return without(lines, [place])


@found_by("group_integrity")
def step_is_empty(lines: Lines, random: Random) -> Lines | None:
    """A step drops all of its samples, and updates all the same."""
    steps = sorted({lines[p].event.step for p in lasting(lines, Trained)})
    if len(steps) < 2:
        return None
    step = random.choice(steps[1:])
    return without(lines, [p for p in lasting(lines, Trained) if lines[p].event.step == step])
