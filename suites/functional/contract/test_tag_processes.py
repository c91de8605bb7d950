"""TAG across processes: two processes put tags on the same rows."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from rlconform.certify.assertions.expect import expect, expect_equal, same_object
from rlconform.certify.plugin.markers import requirement
from rlconform.certify.recording.shorten import shorten
from rlconform.certify.scenarios.consumers import (
    expect_waiting,
    expect_woken,
    start_blocking_claim,
)
from rlconform.certify.scenarios.normalize_metas import tags_by_id
from rlconform.certify.scenarios.partition import PartitionUnderTest
from rlconform.certify.scenarios.two_processes import Actors, each_pair, looker_and_changer
from rlconform.certify.threads import run_concurrently

IDS = ["u0_g0", "u0_g1", "u1_g0"]


@pytest.mark.large
@requirement("TAG-07")
def test_two_processes_put_tags_on_the_same_rows(part: PartitionUnderTest, actors: Actors) -> None:
    ids = [f"r{i}" for i in range(30)]
    part.put_labeled(ids)
    keys = ["std", "reward"]

    def put_tags(view: PartitionUnderTest, key: str) -> None:
        for n, sample_id in enumerate(ids):
            view.put([sample_id], [{key: n}])

    calls = [
        lambda a=actor, k=key: put_tags(part.via(a), k)
        for actor, key in zip(actors(2), keys, strict=True)
    ]
    run_concurrently(calls, part.timeouts.check, "writer")
    got = tags_by_id(part.claim("train"))
    lost = [i for n, i in enumerate(ids) if got.get(i) != {"std": n, "reward": n}]
    expect(
        not lost,
        "the tags of both processes on every row",
        f"{len(lost)} of {len(ids)} lost one: {lost[:4]}",
    )


#: Values of each type; the number tells the stamps apart.
STAMPED: tuple[Callable[[int], object], ...] = (
    lambda n: f"stop {n}",
    lambda n: f"a source of {n} problems, with a name that is long " * 3,
    lambda n: 2**40 + n,
    lambda n: 0.1 + n,
    lambda n: bool(n % 2),
    lambda n: None if n % 2 else n,
)


@requirement("TAG-07")
@each_pair
def test_values_of_each_type_that_two_processes_stamp_on_a_row_stay(
    part: PartitionUnderTest, actors: Actors, pair: tuple[int, int]
) -> None:
    """Planes that send texts as numbers must know of each tag whose numbers it has."""
    views = looker_and_changer(part, actors, pair)
    ids = [f"r{n}" for n, _ in enumerate(STAMPED)]
    part.put_labeled(ids)
    merged: dict[str, dict[str, object]] = {i: {} for i in ids}
    for number, who in enumerate((0, 1, 1, 0)):
        stamps = [{f"stamp_{number}": value(number)} for value in STAMPED]
        views[who].put(ids, stamps)
        for sample_id, stamp in zip(ids, stamps, strict=True):
            merged[sample_id] |= stamp
    for view, task in zip(views, ("train", "prev_lp"), strict=True):
        got = tags_by_id(view.claim(task))
        for sample_id in ids:
            expected = shorten(f"{sample_id} to carry the stamps {merged[sample_id]}")
            right = same_object(got.get(sample_id), merged[sample_id])
            expect(right, expected, shorten(repr(got.get(sample_id))))


@requirement("TAG-03")
@each_pair
def test_tags_that_another_process_puts_are_seen_by_a_second_task(
    part: PartitionUnderTest, actors: Actors, pair: tuple[int, int]
) -> None:
    looker, changer = looker_and_changer(part, actors, pair)
    changer.put_labeled(IDS, tags=[{"row": n, "version": 0} for n, _ in enumerate(IDS)])
    got = tags_by_id(looker.claim("train"))
    expect_equal(got, {i: {"row": n, "version": 0} for n, i in enumerate(IDS)}, "tags as first put")
    changer.put(IDS, [{"version": 1, "input_lengths": 5 + n} for n, _ in enumerate(IDS)])
    meta = looker.claim("prev_lp")
    merged = {i: {"row": n, "version": 1, "input_lengths": 5 + n} for n, i in enumerate(IDS)}
    expect_equal(tags_by_id(meta), merged, "tags that a second task sees")
    lengths = dict(zip(meta.sample_ids, meta.sequence_lengths or [], strict=False))
    expect_equal(lengths, {i: 5 + n for n, i in enumerate(IDS)}, "lengths that a second task sees")


@requirement("TAG-07")
@each_pair
def test_tags_of_one_process_do_not_undo_those_of_another(
    part: PartitionUnderTest, actors: Actors, pair: tuple[int, int]
) -> None:
    looker, changer = looker_and_changer(part, actors, pair)
    looker.put_labeled(IDS, tags=[{"row": n, "version": 0} for n, _ in enumerate(IDS)])
    looker.claim("train")  # a process that has seen the tags may keep them
    changer.put(IDS, [{"version": 1, "reward": n} for n, _ in enumerate(IDS)])
    looker.put(IDS, [{"std": 0.5}] * 3)
    got = tags_by_id(changer.claim("prev_lp"))
    merged = {i: {"row": n, "version": 1, "reward": n, "std": 0.5} for n, i in enumerate(IDS)}
    expect_equal(got, merged, "tags that both processes put")


#: The values of a tag, as they are registered one after the other.
ENUMS = (["stop", "abort"], ["abort", "stop"], ["length", "stop", "abort"])


@requirement("TAG-01")
@each_pair
def test_a_process_that_has_put_tags_puts_them_after_another_has_changed_the_enum(
    part: PartitionUnderTest, actors: Actors, pair: tuple[int, int]
) -> None:
    """Clients that remember the places of the values in the list put other values."""
    looker, changer = looker_and_changer(part, actors, pair)
    for step, values in enumerate(ENUMS):
        changer.register(enums={"finish_reason": values})
        tags = {}
        for view, who in ((looker, "looker"), (changer, "changer")):
            new = {f"{who}_{value}": {"finish_reason": value} for value in values}
            view.put_labeled(list(new), tags=list(new.values()))
            tags |= new
        for view, task in ((looker, "train"), (changer, "prev_lp")):
            got = tags_by_id(view.claim(task))
            expect_equal(got, tags, f"tags of registration {step}")
        changer.clear(list(tags))


@requirement("TAG-05")
def test_a_clear_drops_the_tags_of_every_process(part: PartitionUnderTest, actors: Actors) -> None:
    """Planes that keep the tags of each process apart must drop all of them."""
    views = [part, *(part.via(actor) for actor in actors(2))]
    for turn in range(3):
        putter, stamper, clearer = views[turn:] + views[:turn]
        putter.put_labeled(IDS, tags=[{"turn": turn}] * 3)
        stamper.put(IDS, [{f"stamp{turn}": 1}] * 3)
        clearer.clear(IDS)
        putter.put_labeled(IDS, tags=[{"again": turn}] * 3)
        got = tags_by_id(clearer.claim("train"))
        expect_equal(got, {i: {"again": turn} for i in IDS}, "tags of rows put after a clear")
        stamper.clear(IDS)


@requirement("TAG-05", leans_on=("CLEAR-03",))
def test_a_clear_of_everything_drops_the_tags_that_others_stamped(
    part: PartitionUnderTest, actors: Actors
) -> None:
    """Planes that clear a process's own records may leave what others have put beside them."""
    putter, *stampers = part, *(part.via(actor) for actor in actors(2))
    putter.put_labeled(IDS, tags=[{"turn": 0}] * 3)
    for n, stamper in enumerate(stampers):
        stamper.put(IDS, [{f"stamp{n}": 1}] * 3)
        stamper.put_labeled([f"kept{n}"])  # a partition without rows may lose its registration
    putter.clear(None)
    putter.put_labeled(IDS, tags=[{"again": 1}] * 3)
    got = tags_by_id(part.claim("train", batch_size=len(IDS) + len(stampers)))
    due = {i: {"again": 1} for i in IDS}
    expect_equal({i: got.get(i) for i in IDS}, due, "tags of rows put after a clear of None")


#: The value of one tag at either writer.
TAGS_BY_WRITER = {
    "texts": ("stop", "abort"),
    "long_texts": ("a source of problems " * 3, "a source of programs " * 3),
    "int_and_float": (1, 1.0),
    "float_and_int": (0.5, 1),
    "bool_and_int": (True, 1),
    "int_and_text": (1, "1"),
    "bool_and_none": (False, None),
}


@requirement("TAG-01")
@pytest.mark.parametrize("values", TAGS_BY_WRITER.values(), ids=TAGS_BY_WRITER)
def test_tags_of_two_writers_keep_value_and_type(
    part: PartitionUnderTest, actors: Actors, values: tuple[object, object]
) -> None:
    """Planes may join two writers' columns of two types, or number the texts of both alike."""
    views = [part.via(actor) for actor in actors(2)]
    part.put_labeled(["before"], tags=[{"reward": "a text that both writers claim, and so know"}])
    for view, task in zip(views, ("train", "prev_lp"), strict=True):
        view.claim(task)
    part.clear(["before"])
    part.register()
    tags = {}
    for view, value, group in zip(views, values, "uv", strict=True):
        new = {f"{group}_g{n}": {"reward": value} for n in range(3)}
        view.put_labeled(list(new), tags=list(new.values()))
        tags |= new
    for task in ("train", "prev_lp"):
        got = tags_by_id(part.claim(task))
        expect(same_object(got, tags), f"{tags}, each of its type", repr(got))


@requirement("TAG-01")
@each_pair
def test_texts_that_two_processes_bring_by_turns_are_told_apart(
    part: PartitionUnderTest, actors: Actors, pair: tuple[int, int]
) -> None:
    """Planes that send long texts as numbers must count what the other process has numbered."""
    views = looker_and_changer(part, actors, pair)
    tags = {}
    for turn, who in enumerate((0, 1, 0, 1, 1, 0, 0, 1)):
        for n in range(2):
            text = f"dataset {turn} of {part.id}, part {n}, with a name that is long"
            tags[f"t{turn}_{n}"] = {"dataset": text, "step": turn}
        new = [f"t{turn}_{n}" for n in range(2)]
        views[who].put_labeled(new, tags=[tags[i] for i in new])
    for view, task in zip(views, ("train", "prev_lp"), strict=True):
        expect_equal(tags_by_id(view.claim(task)), tags, f"tags that {task} claims")


@requirement("TAG-03")
@each_pair
def test_a_process_stamps_again_what_another_changed_since(
    part: PartitionUnderTest, actors: Actors, pair: tuple[int, int]
) -> None:
    """Planes that send only the tags that differ from those that their process sent last."""
    other, first = looker_and_changer(part, actors, pair)
    first.put_labeled(IDS)
    tasks = ["train", "prev_lp"]
    for task, last in zip(tasks, ([first, other, first], [other, first, other]), strict=True):
        for view in last:
            stamp = {"stale": view is last[0], "version": 3 if view is last[0] else 4}
            view.put(IDS, [stamp] * len(IDS))
        got = tags_by_id(part.claim(task))
        due = {i: {"stale": True, "version": 3} for i in IDS}
        expect_equal(got, due, "tags that a process has stamped, another changed, and it again")


#: Rows without a length, of four that two processes put.
LACKING = {"none": [], "of_one_process": [1], "of_both": [0, 3], "first": [0]}


@requirement("TAG-06")
@pytest.mark.parametrize("lacking", LACKING.values(), ids=LACKING)
def test_lengths_of_two_writers_are_reported_if_every_row_has_one(
    part: PartitionUnderTest, actors: Actors, lacking: list[int]
) -> None:
    """Planes that join the lengths of several writers may fill up what one of them lacks."""
    ids = [f"r{n}" for n in range(4)]
    tags = [{} if n in lacking else {"input_lengths": 5 + n} for n, _ in enumerate(ids)]
    for actor, own in zip(actors(2), (slice(2), slice(2, 4)), strict=True):
        part.via(actor).put_labeled(ids[own], tags=tags[own])
    meta = part.claim("train")
    due = None if lacking else {i: 5 + n for n, i in enumerate(ids)}
    got = meta.sequence_lengths
    lengths = None if got is None else dict(zip(meta.sample_ids, got, strict=True))
    expect_equal(lengths, due, f"the lengths of rows with the tags {tags}")


@requirement("TAG-01", leans_on=("TAG-05",))
@each_pair
def test_a_process_stamps_again_what_another_cleared_since(
    part: PartitionUnderTest, actors: Actors, pair: tuple[int, int]
) -> None:
    """Planes that send only the tags that differ from those that their process sent last."""
    other, first = looker_and_changer(part, actors, pair)
    stamp = {"weight_version": 3, "std": 0.5}
    for turn in range(2):
        other.put_labeled(IDS, version=turn)
        first.put(IDS, [stamp] * len(IDS))
        got = tags_by_id(part.claim("train"))
        expect_equal(got, dict.fromkeys(IDS, stamp), f"tags stamped after {turn} clears")
        other.clear(IDS)


@requirement("TAG-01", leans_on=("CLAIM-05", "GET-10"))
@each_pair
def test_a_claim_that_waited_has_the_tags_that_another_process_stamped_meanwhile(
    part: PartitionUnderTest, actors: Actors, pair: tuple[int, int]
) -> None:
    """Planes that look at ready rows when a claim begins to wait must look again at its end."""
    waiter, stamper = looker_and_changer(part, actors, pair)
    ids = ["u0_g0", "u0_g1", "u0_g2"]
    stamper.put_labeled(ids[:2], tags=[{"version": 0}] * 2)
    waiting = start_blocking_claim(waiter, 3, timeout_s=2 * part.timeouts.settle)
    expect_waiting(waiting, part, "the third row", "an answer with two rows ready")
    stamper.put(ids[:2], [{"version": 1}] * 2)
    stamper.put_labeled(ids[2:], tags=[{"version": 1}])
    got = tags_by_id(expect_woken(waiting, waiter, stamper))
    expect_equal(got, {i: {"version": 1} for i in ids}, "tags of the claim that waited")
