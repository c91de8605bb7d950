"""Defects that a log of a right run gets, one at a time, each with the rule that must find it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

import msgspec

from rlconform.events.schema import (
    CheckpointSaved,
    Cleared,
    Committed,
    DropCause,
    Dropped,
    GroupCounts,
    Idle,
    IdleCause,
    PlaneOp,
    PromptDispatched,
    Resumed,
    RewardComputed,
    RolloutFailed,
    RolloutFinished,
    RolloutStarted,
    RunEvent,
    RunFinished,
    RunStarted,
    Segment,
    StalenessBound,
    StalenessDefinition,
    Trained,
    WeightsApplied,
    WeightsPublished,
)

from .log_builder import DRIVER, Line

Lines = list[Line]
Plant = Callable[[Lines, Random], Lines | None]


@dataclass(frozen=True)
class Defect:
    """A defect; ``plant`` returns None if the log offers no place for it."""

    plant: Plant
    rule: str

    @property
    def name(self) -> str:
        """Name of the function that plants it."""
        return self.plant.__name__


DEFECTS: list[Defect] = []


def found_by(rule: str) -> Callable[[Plant], Plant]:
    """Register a defect that this rule must find."""

    def register(plant: Plant) -> Plant:
        DEFECTS.append(Defect(plant, rule))
        return plant

    return register


def _places(lines: Lines, kind: type[RunEvent], **fields: Any) -> list[int]:
    return [
        place
        for place, line in enumerate(lines)
        if isinstance(line.event, kind)
        and all(getattr(line.event, name) == value for name, value in fields.items())
    ]


def _pick(random: Random, places: list[int]) -> int | None:
    return random.choice(places) if places else None


def _changed(lines: Lines, place: int, **fields: Any) -> Lines:
    line = lines[place]
    event = msgspec.structs.replace(line.event, **fields)
    return [*lines[:place], line._replace(event=event), *lines[place + 1 :]]


def _without(lines: Lines, places: list[int]) -> Lines:
    gone = set(places)
    return [line for place, line in enumerate(lines) if place not in gone]


def _inserted(lines: Lines, place: int, event: RunEvent) -> Lines:
    """Insert an event of the driver before ``place``."""
    wall_ns = lines[min(place, len(lines) - 1)].wall_ns
    source = next(
        (line.source for line in reversed(lines[:place]) if line.source.role == "trainer"), DRIVER
    )
    return [*lines[:place], Line(source, event, wall_ns), *lines[place:]]


def _lasting(lines: Lines, kind: type[RunEvent]) -> list[int]:
    """Places of events that no resume undoes."""
    resumed = _places(lines, Resumed)
    return [place for place in _places(lines, kind) if not resumed or place > resumed[-1]]


@found_by("accounting")
def group_is_lost(lines: Lines, random: Random) -> Lines | None:
    """A committed group is evicted and nobody says so."""
    place = _pick(random, _lasting(lines, Trained))
    if place is None:
        return None
    name = lines[place].event.group_id  # type: ignore[attr-defined]
    gone = [p for p in _lasting(lines, Trained) if lines[p].event.group_id == name]  # type: ignore[attr-defined]
    return _without(lines, gone)


@found_by("accounting")
def group_is_dispatched_twice(lines: Lines, random: Random) -> Lines | None:
    """The pump dispatches a prompt again that is in flight."""
    place = _pick(random, _lasting(lines, PromptDispatched))
    return None if place is None else _inserted(lines, place + 1, lines[place].event)


@found_by("accounting")
def group_was_never_dispatched(lines: Lines, random: Random) -> Lines | None:
    """A group comes from nowhere."""
    place = _pick(random, _lasting(lines, PromptDispatched))
    return None if place is None or len(_lasting(lines, PromptDispatched)) < 2 else _without(
        lines, [place]
    )


@found_by("accounting")
def drop_is_not_reported(lines: Lines, random: Random) -> Lines | None:
    """A failed group disappears without a reason."""
    place = _pick(random, _lasting(lines, Dropped))
    return None if place is None else _without(lines, [place])


@found_by("accounting")
def trained_is_counted_wrongly_after_resume(lines: Lines, _: Random) -> Lines | None:
    """A counter begins at 0 again."""
    places = _places(lines, Resumed)
    if not places or lines[places[0]].event.counts.trained == 0:  # type: ignore[attr-defined]
        return None
    return _changed(lines, places[0], counts=GroupCounts(trained=0))


@found_by("accounting")
def counts_do_not_add_up(lines: Lines, random: Random) -> Lines | None:
    """A permit leaks: a group counts as in flight that is not."""
    place = _pick(random, _places(lines, CheckpointSaved))
    if place is None:
        return None
    counts = lines[place].event.counts  # type: ignore[attr-defined]
    more = msgspec.structs.replace(counts, in_flight=counts.in_flight + 1)
    return _changed(lines, place, counts=more)


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
    selected_first = len(_places(lines, RunStarted)) > 1 or most < 2
    return None if selected_first else _changed(lines, 0, capacity=1)


@found_by("exactly_once")
def group_is_trained_twice(lines: Lines, random: Random) -> Lines | None:
    """A step that is tried again trains on the same group."""
    place = _pick(random, _lasting(lines, Trained))
    return None if place is None else _inserted(lines, place + 1, lines[place].event)


@found_by("exactly_once")
def group_is_trained_again_much_later(lines: Lines, random: Random) -> Lines | None:
    """A group that was cleared is trained on at the end of the run."""
    places = _lasting(lines, Trained)
    place = _pick(random, places)
    if place is None:
        return None
    return _inserted(lines, places[-1] + 1, lines[place].event)


@found_by("exactly_once")
def row_is_twice_in_an_update(lines: Lines, random: Random) -> Lines | None:
    """A padded batch repeats its last row."""
    place = _pick(random, _places(lines, Trained))
    if place is None:
        return None
    rows = lines[place].event.rows  # type: ignore[attr-defined]
    return _changed(lines, place, rows=[*rows, rows[-1]])


@found_by("exactly_once")
def epoch_repeats_a_name(lines: Lines, random: Random) -> Lines | None:
    """The second epoch dispatches under the ids of the first."""
    place = _pick(random, _lasting(lines, Trained))
    if place is None:
        return None
    name = lines[place].event.group_id  # type: ignore[attr-defined]
    end = _lasting(lines, Trained)[-1] + 1
    lines = _inserted(lines, end, Dropped(group_id=name, cause=DropCause.SHUTDOWN))
    return _inserted(lines, end, PromptDispatched(group_id=name, prompt_id="of epoch 2"))


@found_by("exactly_once")
def prompt_is_trained_twice(lines: Lines, _: Random) -> Lines | None:
    """A prompt comes again under another name."""
    trained = [lines[place].event.group_id for place in _lasting(lines, Trained)]  # type: ignore[attr-defined]
    dispatched = {lines[p].event.group_id: p for p in _lasting(lines, PromptDispatched)}  # type: ignore[attr-defined]
    names = list(dict.fromkeys(name for name in trained if name in dispatched))
    if len(names) < 2:
        return None
    first = lines[dispatched[names[0]]].event.prompt_id  # type: ignore[attr-defined]
    return _changed(lines, dispatched[names[-1]], prompt_id=first)


@found_by("group_integrity")
def group_is_trained_in_part(lines: Lines, random: Random) -> Lines | None:
    """A filter of single rows leaves a part of a group."""
    places = [p for p in _lasting(lines, Trained) if len(lines[p].event.rows) > 1]  # type: ignore[attr-defined]
    place = _pick(random, places)
    if place is None:
        return None
    return _changed(lines, place, rows=lines[place].event.rows[1:])  # type: ignore[attr-defined]


@found_by("group_integrity")
def group_is_short(lines: Lines, random: Random) -> Lines | None:
    """A group without one of its rows is committed."""
    place = _pick(random, _places(lines, Committed))
    if place is None:
        return None
    rows, rewards = lines[place].event.rows[:-1], lines[place].event.rewards[:-1]  # type: ignore[attr-defined]
    return _changed(lines, place, rows=rows, rewards=rewards)


@found_by("group_integrity")
def failed_row_is_committed(lines: Lines, random: Random) -> Lines | None:
    """A failure is taken for an answer with reward 0."""
    place = _pick(random, _lasting(lines, RolloutFinished))
    if place is None:
        return None
    line = lines[place]
    event: RolloutFinished = line.event  # type: ignore[assignment]
    if not _committed_later(lines, place, event.group_id):
        return None
    failed = RolloutFailed(
        group_id=event.group_id, row=event.row, attempt=event.attempt,
        cause=DropCause.INFRA_FAILURE,
    )  # fmt: skip
    return [*lines[:place], line._replace(event=failed), *lines[place + 1 :]]


def _committed_later(lines: Lines, place: int, group_id: str) -> bool:
    for line in lines[place + 1 :]:
        if isinstance(line.event, Committed) and line.event.group_id == group_id:
            return True
        if isinstance(line.event, Dropped | PromptDispatched) and line.event.group_id == group_id:
            return False
        if isinstance(line.event, Resumed):
            return False
    return False


@found_by("group_integrity")
def group_is_committed_twice(lines: Lines, random: Random) -> Lines | None:
    """A late answer of an earlier attempt commits again."""
    place = _pick(random, _places(lines, Committed))
    return None if place is None else _inserted(lines, place + 1, lines[place].event)


@found_by("group_integrity")
def group_is_split_over_two_steps(lines: Lines, random: Random) -> Lines | None:
    """A step takes half of a group, the next one the rest."""
    places = _lasting(lines, Trained)
    places = [p for p in places if len(lines[p].event.rows) > 1]  # type: ignore[attr-defined]
    place = _pick(random, places)
    if place is None:
        return None
    event: Trained = lines[place].event  # type: ignore[assignment]
    rest = msgspec.structs.replace(event, rows=event.rows[1:], step=event.step + 1)
    later = [p for p in _lasting(lines, Trained) if lines[p].event.step > event.step]  # type: ignore[attr-defined]
    if not later:
        return None
    lines = _inserted(lines, later[0], rest)
    return _changed(lines, place, rows=event.rows[:1])


@found_by("group_integrity")
def uncommitted_group_is_trained(lines: Lines, random: Random) -> Lines | None:
    """The trainer reads rows that are still written."""
    places = _lasting(lines, Committed)
    trained = {lines[p].event.group_id for p in _lasting(lines, Trained)}  # type: ignore[attr-defined]
    places = [p for p in places if lines[p].event.group_id in trained]  # type: ignore[attr-defined]
    place = _pick(random, places)
    if place is None or place == _places(lines, Committed)[0]:
        return None
    return _without(lines, [place])


@found_by("group_integrity")
def step_is_empty(lines: Lines, random: Random) -> Lines | None:
    """A step drops all of its samples, and updates all the same."""
    steps = sorted({lines[p].event.step for p in _lasting(lines, Trained)})  # type: ignore[attr-defined]
    if len(steps) < 2:
        return None
    step = random.choice(steps[1:])
    return _without(lines, [p for p in _lasting(lines, Trained) if lines[p].event.step == step])  # type: ignore[attr-defined]


def _largest_lag(lines: Lines) -> int:
    starts = {
        line.event.group_id: line.event.start_version
        for line in lines
        if isinstance(line.event, Committed)
    }
    return max(
        (
            (line.event.version or 0) - (starts.get(line.event.group_id) or 0)
            for line in lines
            if isinstance(line.event, Trained)
        ),
        default=0,
    )


@found_by("staleness")
def group_is_too_old(lines: Lines, _: Random) -> Lines | None:
    """The gate alone bounds staleness: a slow group is overtaken by steps."""
    largest = _largest_lag(lines)
    if not largest:
        return None
    bound = StalenessBound(definition=StalenessDefinition.START, bound=largest - 1)
    for place in _places(lines, RunStarted):
        lines = _changed(lines, place, staleness=bound)
    return lines


@found_by("staleness")
def sample_has_versions_that_none_should_have(lines: Lines, _: Random) -> Lines | None:
    """partial_rollouts=False is ignored."""
    mixed = any(
        isinstance(line.event, Committed) and line.event.start_version != line.event.end_version
        for line in lines
    )
    trained = {line.event.group_id for line in lines if isinstance(line.event, Trained)}
    mixed = any(
        isinstance(line.event, Committed)
        and line.event.start_version != line.event.end_version
        and line.event.group_id in trained
        for line in lines
    )
    rows: dict[tuple[str, int, int], set[int]] = {}
    for line in lines:
        if isinstance(line.event, Segment) and line.event.group_id in trained:
            event = line.event
            rows.setdefault((event.group_id, event.row, event.attempt), set()).add(
                event.weight_version
            )
    if not mixed or all(len(versions) < 2 for versions in rows.values()):
        return None
    if _places(lines, Resumed) or _places(lines, Dropped):
        return None
    return _changed(lines, 0, mixed_versions=False)


@found_by("versions")
def start_is_stamped_ahead(lines: Lines, random: Random) -> Lines | None:
    """The version is bumped before it is applied."""
    place = _pick(random, _places(lines, RolloutStarted))
    if place is None:
        return None
    version = lines[place].event.weight_version  # type: ignore[attr-defined]
    return _changed(lines, place, weight_version=version + 1)


@found_by("versions")
def start_is_stamped_at_submit(lines: Lines, random: Random) -> Lines | None:
    """The stamp is the version when the prompt was submitted."""
    places = _places(lines, RolloutStarted)
    place = _pick(random, [p for p in places if lines[p].event.weight_version])  # type: ignore[attr-defined]
    if place is None:
        return None
    version = lines[place].event.weight_version  # type: ignore[attr-defined]
    return _changed(lines, place, weight_version=version - 1)


@found_by("versions")
def group_is_stamped_at_completion(lines: Lines, random: Random) -> Lines | None:
    """The group's start version is read after the generation."""
    places = _lasting(lines, Committed)
    started = {lines[p].event.group_id for p in _lasting(lines, RolloutStarted)}  # type: ignore[attr-defined]
    places = [p for p in places if lines[p].event.group_id in started]  # type: ignore[attr-defined]
    place = _pick(random, places)
    if place is None:
        return None
    version = lines[place].event.start_version  # type: ignore[attr-defined]
    return _changed(lines, place, start_version=version + 1)


@found_by("versions")
def weights_are_torn(lines: Lines, random: Random) -> Lines | None:
    """An engine reads weights while the optimizer writes them."""
    place = _pick(random, _places(lines, WeightsApplied))
    return None if place is None else _changed(lines, place, digest="torn")


@found_by("versions")
def engine_is_ahead_of_the_trainer(lines: Lines, random: Random) -> Lines | None:
    """An engine reports a version that does not exist yet."""
    place = _pick(random, _places(lines, WeightsApplied))
    if place is None:
        return None
    version = lines[place].event.version  # type: ignore[attr-defined]
    return _changed(lines, place, version=version + 1)


@found_by("versions")
def version_is_published_twice(lines: Lines, random: Random) -> Lines | None:
    """A step does not count up."""
    places = _places(lines, WeightsPublished)
    place = _pick(random, places[1:])
    resumed = _places(lines, Resumed)
    if place is None or resumed:
        return None
    version = lines[place].event.version  # type: ignore[attr-defined]
    return _changed(lines, place, version=version - 1)


@found_by("versions")
def step_number_is_skipped(lines: Lines, _: Random) -> Lines | None:
    """A resume increments the step twice."""
    resumed = _places(lines, Resumed)
    first = resumed[-1] if resumed else 0
    places = [p for p in _places(lines, Trained) if p > first]
    least = min((lines[p].event.step for p in places), default=0)  # type: ignore[attr-defined]
    later = [p for p in places if resumed or lines[p].event.step > least]  # type: ignore[attr-defined]
    for place in later:
        lines = _changed(lines, place, step=lines[place].event.step + 1)  # type: ignore[attr-defined]
    return lines if later else None


@found_by("reward")
def reward_is_missing(lines: Lines, random: Random) -> Lines | None:
    """A reward is lost on the way, and the row gets a default."""
    places = [
        p
        for p in _places(lines, RewardComputed)
        if _committed_later(lines, p, lines[p].event.group_id)  # type: ignore[attr-defined]
    ]
    place = _pick(random, places)
    if place is None or len(_places(lines, RewardComputed)) < 2:
        return None
    return _without(lines, [place])


@found_by("reward")
def reward_is_computed_twice(lines: Lines, random: Random) -> Lines | None:
    """Two call sites score the same sample."""
    place = _pick(random, _places(lines, RewardComputed))
    return None if place is None or not _open_after(lines, place) else _inserted(
        lines, place + 1, lines[place].event
    )


def _open_after(lines: Lines, place: int) -> bool:
    following = lines[place + 1].event if place + 1 < len(lines) else None
    return not isinstance(following, Dropped)


@found_by("reward")
def reward_is_that_of_a_neighbour(lines: Lines, random: Random) -> Lines | None:
    """Results without a row are paired with all rows by position."""
    place = _pick(random, _places(lines, RewardComputed))
    return None if place is None else _changed(lines, place, output="another output")


@found_by("reward")
def committed_reward_is_another(lines: Lines, random: Random) -> Lines | None:
    """Rewards are shifted by one row when they are written."""
    places = _places(lines, Committed)
    rewarded = {lines[p].event.group_id for p in _lasting(lines, RewardComputed)}  # type: ignore[attr-defined]
    places = [p for p in places if lines[p].event.group_id in rewarded]  # type: ignore[attr-defined]
    place = _pick(random, places)
    if place is None:
        return None
    rewards = lines[place].event.rewards  # type: ignore[attr-defined]
    return _changed(lines, place, rewards=[rewards[0] + 1, *rewards[1:]])


@found_by("reward")
def reward_comes_after_the_commit(lines: Lines, random: Random) -> Lines | None:
    """The group does not wait for its rewards."""
    place = _pick(random, _places(lines, Committed))
    if place is None:
        return None
    name = lines[place].event.group_id  # type: ignore[attr-defined]
    before = [p for p in _places(lines, RewardComputed) if p < place]
    own = [p for p in before if lines[p].event.group_id == name]  # type: ignore[attr-defined]
    if not own:
        return None
    moved = lines[own[-1]]._replace(wall_ns=lines[place].wall_ns)
    return [*_without(lines[: place + 1], own[-1:]), moved, *lines[place + 1 :]]


@found_by("after_end")
def dropped_group_is_trained(lines: Lines, random: Random) -> Lines | None:
    """A group that was dropped as stale is in the step's list already."""
    end = (_places(lines, Resumed) or [0])[-1]
    again = {line.event.group_id for line in lines[end:] if isinstance(line.event, PromptDispatched)}
    dropped = [p for p in _lasting(lines, Dropped) if lines[p].event.group_id in again]  # type: ignore[attr-defined]
    place = _pick(random, dropped)
    if place is None:
        return None
    step = max((lines[p].event.step for p in _places(lines, Trained) if p < place), default=1)  # type: ignore[attr-defined]
    name = lines[place].event.group_id  # type: ignore[attr-defined]
    return _inserted(lines, place + 1, Trained(group_id=name, rows=[0], step=step, version=0))


@found_by("after_end")
def group_is_cleared_before_it_is_trained(lines: Lines, random: Random) -> Lines | None:
    """A clean-up runs while the step is still reading."""
    place = _pick(random, _lasting(lines, Trained))
    if place is None:
        return None
    name = lines[place].event.group_id  # type: ignore[attr-defined]
    return _inserted(lines, place, Cleared(group_id=name))


@found_by("after_end")
def judge_goes_on_after_the_run(lines: Lines, random: Random) -> Lines | None:
    """Reward processes are not stopped with the run."""
    place = _pick(random, _places(lines, RewardComputed))
    return None if place is None else [*lines, lines[place]._replace(wall_ns=lines[-1].wall_ns)]


@found_by("resume")
def checkpoint_forgets_a_group(lines: Lines, random: Random) -> Lines | None:
    """Groups in flight are not saved."""
    places = [p for p in _places(lines, CheckpointSaved) if lines[p].event.in_flight]  # type: ignore[attr-defined]
    place = _pick(random, places)
    if place is None:
        return None
    own = [
        name
        for name in lines[place].event.in_flight  # type: ignore[attr-defined]
        if any(
            lines[p].event.group_id == name and lines[p].source == lines[place].source  # type: ignore[attr-defined]
            for p in _places(lines, PromptDispatched)
        )
    ]
    if not own:
        return None
    left = [name for name in lines[place].event.in_flight if name != own[0]]  # type: ignore[attr-defined]
    return _changed(lines, place, in_flight=left)


@found_by("resume")
def trained_group_comes_back(lines: Lines, _: Random) -> Lines | None:
    """The buffer is restored from an older state than the weights."""
    places = _places(lines, Resumed)
    if not places:
        return None
    step = lines[places[0]].event.step  # type: ignore[attr-defined]
    trained = [
        line.event.group_id
        for line in lines[: places[0]]
        if isinstance(line.event, Trained) and line.event.step <= step
    ]
    if not trained:
        return None
    restored = [*lines[places[0]].event.restored, trained[0]]  # type: ignore[attr-defined]
    return _changed(lines, places[0], restored=restored)


@found_by("resume")
def saved_prompt_is_skipped(lines: Lines, _: Random) -> Lines | None:
    """The state of the data loader is ahead of what was trained on."""
    places = _places(lines, Resumed)
    if not places:
        return None
    after = lines[places[0] :]
    before = {
        line.event.prompt_id for line in lines[: places[0]] if isinstance(line.event, PromptDispatched)
    }
    dispatched = [line.event for line in after if isinstance(line.event, PromptDispatched)]
    again = [event for event in dispatched if event.prompt_id in before]
    if not again or all(event.prompt_id in before for event in dispatched):
        return None
    names = {event.group_id for event in dispatched if event.prompt_id == again[0].prompt_id}
    return [*lines[: places[0]], *(line for line in after if _name(line) not in names)]


def _name(line: Line) -> str | None:
    return getattr(line.event, "group_id", None)


@found_by("liveness")
def run_stalls(lines: Lines, random: Random) -> Lines | None:
    """The trainer waits for a group that nobody generates."""
    place = _pick(random, _lasting(lines, Trained))
    if place is None:
        return None
    later = [line._replace(wall_ns=line.wall_ns + 10**13) for line in lines[place:]]
    return [*lines[:place], *later]


@found_by("liveness")
def rollout_is_late(lines: Lines, _: Random) -> Lines | None:
    """A deadline is not enforced."""
    ends = [p for p in _places(lines, RolloutFinished)]
    if not ends or _places(lines, Resumed):
        return None
    return _changed(lines, 0, rollout_deadline_s=1e-6)


@found_by("liveness")
def permit_leaks(lines: Lines, _: Random) -> Lines | None:
    """Generation waits for room although there is some."""
    last = lines[-1]
    event = Idle(who="generation", seconds=50, cause=IdleCause.BUFFER_FULL)
    if not isinstance(last.event, RunFinished):
        return None
    waited = last._replace(event=event, wall_ns=last.wall_ns + 100 * 10**9)
    return [*lines[:-1], waited, last._replace(wall_ns=waited.wall_ns + 10**6)]


@found_by("plane_ops")
def get_misses_an_acknowledged_key(lines: Lines, random: Random) -> Lines | None:
    """A put is acknowledged before it is visible."""
    place = _pick(random, _places(lines, PlaneOp, op="get", status="ok"))
    if place is None:
        return None
    return _changed(lines, place, keys=lines[place].event.keys[1:])  # type: ignore[attr-defined]


@found_by("plane_ops")
def get_returns_a_cleared_key(lines: Lines, random: Random) -> Lines | None:
    """A clear leaves data behind."""
    place = _pick(random, _places(lines, PlaneOp, op="clear", status="ok"))
    if place is None:
        return None
    asked: PlaneOp = lines[place - 1].event  # type: ignore[assignment]
    call: dict[str, Any] = {"op": "get", "op_id": 10**6, "partition": asked.partition}
    ended = PlaneOp(**call, status="ok", keys=asked.keys)
    lines = _inserted(lines, place + 1, ended)
    return _inserted(lines, place + 1, PlaneOp(**call, status="invoked", keys=asked.keys))


@found_by("plane_ops")
def row_is_claimed_twice(lines: Lines, random: Random) -> Lines | None:
    """Two consumers of a task claim the same row."""
    place = _pick(random, _places(lines, PlaneOp, op="put", status="ok"))
    if place is None:
        return None
    asked: PlaneOp = lines[place - 1].event  # type: ignore[assignment]
    for number in (10**6, 10**6 + 1):
        call: dict[str, Any] = {
            "op": "claim", "op_id": number, "partition": asked.partition, "task": "train",
        }  # fmt: skip
        lines = _inserted(lines, place + 1, PlaneOp(**call, status="ok", keys=asked.keys))
        lines = _inserted(lines, place + 1, PlaneOp(**call, status="invoked"))
    return lines


@found_by("plane_ops")
def call_never_returns(lines: Lines, random: Random) -> Lines | None:
    """The controller's thread is dead."""
    place = _pick(random, _lasting(lines, PlaneOp))
    if place is None:
        return None
    number = lines[place].event.op_id  # type: ignore[attr-defined]
    source = lines[place].source
    ends = [p for p in _places(lines, PlaneOp, op_id=number, status="ok") if lines[p].source == source]
    return _without(lines, ends)
