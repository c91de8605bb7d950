"""Defects of what is written about samples: staleness, versions, rewards."""

from __future__ import annotations

from random import Random

from rlconform.events.schema import (
    Committed,
    Dropped,
    Resumed,
    RewardComputed,
    RewardFailed,
    RolloutFinished,
    RolloutStarted,
    RunStarted,
    Segment,
    StalenessBound,
    StalenessDefinition,
    Trained,
    WeightsApplied,
    WeightsPublished,
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


@found_by("staleness")
def group_is_too_old(lines: Lines, _: Random) -> Lines | None:
    """The gate alone bounds staleness: a slow group is overtaken by steps."""
    largest = _largest_lag(lines)
    if not largest:
        return None
    bound = StalenessBound(definition=StalenessDefinition.START, bound=largest - 1)
    for place in places_of(lines, RunStarted):
        lines = changed(lines, place, staleness=bound)
    return lines


@found_by("staleness")
def sample_has_versions_that_none_should_have(lines: Lines, _: Random) -> Lines | None:
    """partial_rollouts=False is ignored."""
    if places_of(lines, Resumed):
        return None
    dropped = {line.event.group_id for line in lines if isinstance(line.event, Dropped)}
    versions: dict[tuple[str, int, int], set[int]] = {}
    for line in lines:
        event = line.event
        if isinstance(event, Segment) and event.group_id not in dropped:
            key = (event.group_id, event.row, event.attempt)
            versions.setdefault(key, set()).add(event.weight_version)
    finished = {
        (line.event.group_id, line.event.row, line.event.attempt)
        for line in lines
        if isinstance(line.event, RolloutFinished)
    }
    mixed = any(len(versions[key]) > 1 for key in finished & versions.keys())
    return changed(lines, 0, mixed_versions=False) if mixed else None


@found_by("versions")
def start_is_stamped_ahead(lines: Lines, random: Random) -> Lines | None:
    """The version is bumped before it is applied."""
    return _shifted(lines, pick(random, places_of(lines, RolloutStarted)), "weight_version", 1)


@found_by("versions")
def start_is_stamped_at_submit(lines: Lines, random: Random) -> Lines | None:
    """The stamp is the version when the prompt was submitted."""
    places = places_of(lines, RolloutStarted)
    place = pick(random, [p for p in places if lines[p].event.weight_version])
    return _shifted(lines, place, "weight_version", -1)


@found_by("versions")
def group_is_stamped_at_completion(lines: Lines, random: Random) -> Lines | None:
    """The group's start version is read after the generation."""
    places = lasting(lines, Committed)
    started = {lines[p].event.group_id for p in lasting(lines, RolloutStarted)}
    places = [p for p in places if lines[p].event.group_id in started]
    return _shifted(lines, pick(random, places), "start_version", 1)


@found_by("versions")
def weights_are_torn(lines: Lines, random: Random) -> Lines | None:
    """An engine reads weights while the optimizer writes them."""
    place = pick(random, places_of(lines, WeightsApplied))
    return None if place is None else changed(lines, place, digest="torn")


@found_by("versions")
def engine_is_ahead_of_the_trainer(lines: Lines, random: Random) -> Lines | None:
    """An engine reports a version that does not exist yet."""
    return _shifted(lines, pick(random, places_of(lines, WeightsApplied)), "version", 1)


@found_by("versions")
def version_is_published_twice(lines: Lines, random: Random) -> Lines | None:
    """A step does not count up."""
    places = places_of(lines, WeightsPublished)
    place = pick(random, places[1:])
    resumed = places_of(lines, Resumed)
    if place is None or resumed:
        return None
    version = lines[place].event.version
    return changed(lines, place, version=version - 1)


@found_by("versions")
def step_number_is_skipped(lines: Lines, _: Random) -> Lines | None:
    """A resume increments the step twice."""
    resumed = places_of(lines, Resumed)
    first = resumed[-1] if resumed else 0
    places = [p for p in places_of(lines, Trained) if p > first]
    least = min((lines[p].event.step for p in places), default=0)
    later = [p for p in places if resumed or lines[p].event.step > least]
    for place in later:
        lines = changed(lines, place, step=lines[place].event.step + 1)
    return lines if later else None


@found_by("reward")
def reward_is_missing(lines: Lines, random: Random) -> Lines | None:
    """A reward is lost on the way, and the row gets a default."""
    places = [
        p
        for p in places_of(lines, RewardComputed)
        if committed_later(lines, p, lines[p].event.group_id)
    ]
    place = pick(random, places)
    if place is None or len(places_of(lines, RewardComputed)) < 2:
        return None
    return without(lines, [place])


@found_by("reward")
def reward_is_computed_twice(lines: Lines, random: Random) -> Lines | None:
    """Two call sites score the same sample."""
    place = pick(random, places_of(lines, RewardComputed))
    return (
        None
        if place is None or not _open_after(lines, place)
        else inserted(lines, place + 1, lines[place].event)
    )


@found_by("reward")
def reward_is_that_of_a_neighbour(lines: Lines, random: Random) -> Lines | None:
    """Results without a row are paired with all rows by position."""
    place = pick(random, places_of(lines, RewardComputed))
    return None if place is None else changed(lines, place, output="another output")


@found_by("reward")
def committed_reward_is_another(lines: Lines, random: Random) -> Lines | None:
    """Rewards are shifted by one row when they are written."""
    places = places_of(lines, Committed)
    rewarded = {lines[p].event.group_id for p in lasting(lines, RewardComputed)}
    places = [p for p in places if lines[p].event.group_id in rewarded]
    place = pick(random, places)
    if place is None:
        return None
    rewards = [None if reward is None else reward + 1 for reward in lines[place].event.rewards]
    return changed(lines, place, rewards=rewards)


@found_by("reward")
def failed_reward_is_committed_as_0(lines: Lines, random: Random) -> Lines | None:
    """The row without a reward gets a default, and is compared with the others."""
    failed = {lines[p].event.group_id for p in lasting(lines, RewardFailed)}
    places = [p for p in lasting(lines, Committed) if lines[p].event.group_id in failed]
    place = pick(random, [p for p in places if None in lines[p].event.rewards])
    if place is None:
        return None
    rewards = [0.0 if reward is None else reward for reward in lines[place].event.rewards]
    return changed(lines, place, rewards=rewards)


@found_by("reward")
def row_has_neither_reward_nor_failure(lines: Lines, random: Random) -> Lines | None:
    """The task that scores dies of the error, and nobody writes it down."""
    places = [
        p
        for p in places_of(lines, RewardFailed)
        if committed_later(lines, p, lines[p].event.group_id)
    ]
    place = pick(random, places)
    return None if place is None else without(lines, [place])


@found_by("group_integrity")
def row_without_a_reward_is_trained_on(lines: Lines, random: Random) -> Lines | None:
    """The update does not look at the mask."""
    failed = {(lines[p].event.group_id, lines[p].event.row) for p in lasting(lines, RewardFailed)}
    committed = {
        (lines[p].event.group_id, row): p
        for p in lasting(lines, Committed)
        for row, reward in enumerate(lines[p].event.rewards)
        if reward is None
    }
    keys = sorted(failed & committed.keys())
    trained = {lines[p].event.group_id: p for p in lasting(lines, Trained)}
    key = random.choice([one for one in keys if one[0] in trained] or [None])
    if key is None:
        return None
    place = trained[key[0]]
    return changed(lines, place, rows=[*lines[place].event.rows, key[1]])


@found_by("reward")
def reward_comes_after_the_commit(lines: Lines, random: Random) -> Lines | None:
    """The group does not wait for its rewards."""
    place = pick(random, places_of(lines, Committed))
    if place is None:
        return None
    name = lines[place].event.group_id
    before = [p for p in places_of(lines, RewardComputed) if p < place]
    own = [p for p in before if lines[p].event.group_id == name]
    if not own:
        return None
    moved = lines[own[-1]]._replace(wall_ns=lines[place].wall_ns)
    return [*without(lines[: place + 1], own[-1:]), moved, *lines[place + 1 :]]


def _shifted(lines: Lines, place: int | None, name: str, by: int) -> Lines | None:
    """Add ``by`` to a field of the event at a place, if there is one."""
    if place is None:
        return None
    return changed(lines, place, **{name: getattr(lines[place].event, name) + by})


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


def _open_after(lines: Lines, place: int) -> bool:
    following = lines[place + 1].event if place + 1 < len(lines) else None
    return not isinstance(following, Dropped)
