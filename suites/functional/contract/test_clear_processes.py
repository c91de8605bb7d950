"""CLEAR across processes: clears by id drop any rows, and clears of None only the caller's rows."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
import torch

from rlconform.certify.assertions.expect import expect_equal, is_rejected
from rlconform.certify.plugin.markers import requirement
from rlconform.certify.plugin.plane_session import PlaneSession
from rlconform.certify.scenarios.partition import (
    PartitionUnderTest,
    expect_ids,
    expect_unreadable,
)
from rlconform.certify.scenarios.two_processes import each_pair, looker_and_changer
from rlconform.contract import DataPlaneClient

Actors = Callable[[int], list[DataPlaneClient]]
IDS = ["u0_g0", "u0_g1", "u1_g0"]
#: Rows of a large step.
MANY = 4096
#: Elements of a row that a plane may lend to a reader.
WIDE = 30_000


@requirement("CLEAR-01")
def test_ids_are_dropped_whoever_put_them(part: PartitionUnderTest, actors: Actors) -> None:
    writer, clearer = (part.via(actor) for actor in actors(2))
    writer.put_labeled(IDS)
    for view in (part, writer):
        view.expect_labeled(IDS[:2])  # a process that has read rows may cache them
    clearer.clear(IDS[:2])
    for view in (part, writer, clearer):
        expect_unreadable(partial(view.get, IDS[:2], "x"), IDS[0], "x")
        view.expect_absent(IDS[:2])
        view.expect_labeled(IDS[2:])
    part.put_labeled(IDS[:2], version=1)
    for view in (writer, clearer):
        view.expect_labeled(IDS[:2], version=1)


@requirement("CLEAR-03")
def test_none_drops_own_rows_that_another_process_wrote_to(
    part: PartitionUnderTest, actors: Actors
) -> None:
    (worker,) = (part.via(actor) for actor in actors(1))
    part.put_labeled(IDS)
    worker.put_labeled(IDS, "y")  # as a worker does when it writes logprobs back
    part.clear(None)
    part.expect_absent(IDS)
    expect_unreadable(partial(worker.get, IDS[:1], "y"), IDS[0], "y")


@requirement("CLEAR-03")
def test_none_drops_what_an_attached_process_put(part: PartitionUnderTest, actors: Actors) -> None:
    (attached,) = (part.via(actor) for actor in actors(1))
    attached.put_labeled(IDS)
    attached.clear(None)
    part.expect_absent(IDS)


@requirement("CLEAR-08")
def test_none_of_an_attached_process_leaves_what_the_owner_put(
    part: PartitionUnderTest, actors: Actors
) -> None:
    (attached,) = (part.via(actor) for actor in actors(1))
    part.put_labeled(IDS[:2])
    attached.put_labeled(IDS[2:])
    attached.clear(None)
    part.expect_labeled(IDS[:2])


@requirement("CLEAR-08")
def test_none_leaves_what_another_process_put(part: PartitionUnderTest, actors: Actors) -> None:
    (actor,) = actors(1)
    part.put_labeled(IDS[:1])
    part.via(actor).put_labeled(IDS[1:])
    part.clear(None)
    part.expect_labeled(IDS[1:])
    expect_unreadable(lambda: part.get(IDS[:1], "x"), IDS[0], "x")


@pytest.mark.large
@requirement("CLEAR-03")
@each_pair
def test_none_drops_large_rows_that_another_process_has_just_read(
    part: PartitionUnderTest, actors: Actors, pair: tuple[int, int]
) -> None:
    """Planes that lend large rows to a reader must not leave them out of a clear."""
    reader, writer = looker_and_changer(part, actors, pair)
    rows = torch.arange(3 * WIDE).reshape(3, WIDE)
    writer.put(IDS, wide=rows)
    reader.expect_rows(IDS, wide=list(rows))
    writer.clear(None)
    for view in (writer, reader):
        view.expect_absent(IDS, "wide")


@requirement("CLEAR-01")
@each_pair
def test_rows_put_between_those_that_are_dropped_are_kept(
    part: PartitionUnderTest, actors: Actors, pair: tuple[int, int]
) -> None:
    """Planes that drop a range of rows may drop those that another process has put meanwhile."""
    looker, changer = looker_and_changer(part, actors, pair)
    # between each other by the time of the puts, by number and by text
    own, others = ([f"r{n}" for n in range(first, 80, 2)] for first in range(2))
    for start in range(0, 40, 10):
        looker.put_labeled(own[start : start + 10])
        changer.put_labeled(others[start : start + 10])
    looker.clear(own)
    for view in (looker, changer):
        view.expect_labeled(others)
        expect_unreadable(partial(view.get, own[:1], "x"), own[0], "x")
    expect_ids(part.claim("train"), others, "rows left")


@requirement("CLEAR-03", leans_on=("PUT-23",))
def test_a_put_that_is_refused_changes_nobodys_rows_into_those_of_its_process(
    part: PartitionUnderTest, actors: Actors
) -> None:
    """Planes that note the writer before they check a put clear the rows of another process."""
    first, second = (part.via(actor) for actor in actors(2))
    first.put(["mine"], x=torch.tensor([1]))
    part.put(["other"], x=torch.tensor([2]))
    if not is_rejected(lambda: second.put(["mine"], x=torch.tensor([0.5]))):
        return  # a plane may keep rows of two dtypes in one field
    first.clear(None)
    part.register()  # clearing everything may end the registration
    expect_unreadable(partial(part.get, ["mine"], "x"), "mine", "x")


@requirement("CLEAR-03")
@pytest.mark.parametrize("joins", [False, True], ids=["alone", "another_joined"])
def test_none_drops_what_an_earlier_client_of_the_process_put(
    plane: PlaneSession, part: PartitionUnderTest, joins: bool
) -> None:
    """A worker that attaches again after a failure clears what it had put.

    Planes that number their clients may give its old number to one that has joined meanwhile.
    """
    part.put_labeled(["of_the_owner"])
    (worker,) = plane.actors().start(1)
    others = []
    try:
        view = part.via(worker)
        view.put_labeled(IDS)
        worker.close()
        if joins:
            others = plane.actors().start(1)
            part.via(others[0]).put_labeled(["of_another"])
        plane.actors().attach_again(worker)
        view.put_labeled(["later"])
        view.clear(None)
        part.expect_absent([*IDS, "later"])
    finally:
        for each in (worker, *others):
            each.end()


@requirement("CLEAR-03", leans_on=("REG-08",))
@each_pair
def test_none_drops_rows_put_before_another_process_registered_again(
    part: PartitionUnderTest, actors: Actors, pair: tuple[int, int]
) -> None:
    """Planes that note which rows a process has put must keep the note as they keep the rows."""
    other, writer = looker_and_changer(part, actors, pair)
    writer.put_labeled(IDS)
    other.register()
    if is_rejected(lambda: part.expect_labeled(IDS)):
        return  # the registration dropped the rows, which REG-08 judges
    writer.put_labeled(["later"])
    writer.clear(None)
    for view in (part, other, writer):
        view.expect_absent([*IDS, "later"])


@requirement("CLEAR-03")
@each_pair
def test_none_drops_rows_put_again_after_another_process_dropped_them(
    part: PartitionUnderTest, actors: Actors, pair: tuple[int, int]
) -> None:
    """Planes that send clears on as bare ids may subtract them from rows that came later."""
    other, writer = looker_and_changer(part, actors, pair)
    writer.put_labeled(IDS)
    other.clear(IDS[:2])
    writer.put_labeled(IDS[:1], version=1)
    part.expect_labeled(IDS[:1], version=1)
    writer.clear(None)
    for view in (part, other, writer):
        view.expect_absent(IDS)


@pytest.mark.large
@requirement("CLEAR-01")
@each_pair
def test_many_rows_of_writers_by_turns_are_dropped_at_once(
    part: PartitionUnderTest, actors: Actors, pair: tuple[int, int]
) -> None:
    """Planes that send a clear to each writer, in parts, may send one part only."""
    views = looker_and_changer(part, actors, pair)
    ids = [f"r{n}" for n in range(300)]
    for at, view in enumerate(views):
        view.put(ids[at::2], x=torch.arange(at, len(ids), 2))
    kept = ids[::7]
    views[0].clear([i for i in ids if i not in kept])
    for view in views:
        view.expect_rows(kept, x=list(torch.arange(0, len(ids), 7)))
    expect_ids(part.claim("train", batch_size=len(ids)), kept, "rows that were not cleared")
    for gone in (ids[1], ids[150], ids[-1]):
        expect_unreadable(partial(part.get, [gone], "x"), gone, "x")


@pytest.mark.large
@requirement("CLEAR-03", leans_on=("CLAIM-04",))
@each_pair
def test_none_drops_all_of_very_many_rows_between_those_of_another_process(
    part: PartitionUnderTest, actors: Actors, pair: tuple[int, int]
) -> None:
    """Planes that list a partition in pages and clear as they go skip rows of the next page."""
    other, leaving = views = looker_and_changer(part, actors, pair)
    size = MANY // 8
    ids = [f"r{n}" for n in range(MANY)]
    for n in range(8):
        views[n % 2].put_labeled(ids[n * size : (n + 1) * size])
    theirs, own = ([i for n, i in enumerate(ids) if n // size % 2 == who] for who in range(2))
    leaving.clear(None)
    left = other.claim("train", ["x"], batch_size=MANY)
    expect_ids(left, theirs, "rows of the other process, after a clear of None")
    for gone in own[:: size // 2]:
        expect_unreadable(partial(other.get, [gone], "x"), gone, "x")
    other.expect_labeled(theirs[:: size // 4])


#: Most puts of each of two processes, by turns; planes may keep 64 or 256 runs of rows of a writer.
TURNS = 300


@pytest.mark.large
@requirement("CLEAR-03", leans_on=("CLAIM-04",))
@each_pair
def test_none_drops_the_rows_of_very_many_puts_between_those_of_another_process(
    part: PartitionUnderTest, actors: Actors, pair: tuple[int, int]
) -> None:
    """Planes that keep which rows a process put as runs of neighbours get a run for each put."""
    other, leaving = looker_and_changer(part, actors, pair)
    theirs: list[str] = []
    own: list[str] = []
    for turn in part.rounds(TURNS, time_share=1 / 12):
        for view, ids, writer in ((other, theirs, "other"), (leaving, own, "leaving")):
            ids.append(f"{writer}{turn}")
            view.put_labeled(ids[-1:])
    other.expect_labeled([i for both in zip(theirs, own, strict=True) for i in both])
    leaving.clear(None)
    left = other.claim("train", ["x"], batch_size=2 * TURNS)
    expect_ids(left, theirs, "rows of the other process, after a clear of None")
    for gone in (own[0], own[len(own) // 2], own[-1]):
        expect_unreadable(partial(other.get, [gone], "x"), gone, "x")


#: Rows that take the place of a cleared one, each after the other: more than a byte counts.
FOLLOWERS = 260


@requirement("CLEAR-07")
def test_a_meta_of_another_process_reads_no_row_that_followed(
    part: PartitionUnderTest, actors: Actors
) -> None:
    """A meta may carry where its rows lie, with a number of the row there that starts again."""
    (rank,) = (part.via(actor) for actor in actors(1))
    part.put_labeled(IDS[:1])
    meta = part.claim("train", batch_size=1)
    expect_ids(meta, IDS[:1], "the row to be cleared")
    rank.get_data(meta)
    part.clear(IDS[:1])
    for n in part.rounds(FOLLOWERS):
        part.put_labeled([f"r{n}"])
        if n < 3 or n > FOLLOWERS - 10:  # a slow plane has no time for a read in each round
            expect_unreadable(partial(rank.get_data, meta), IDS[0], "x")
        part.clear([f"r{n}"])


#: Processes that write to a row, such as rollout, rewards, references and a critic.
WRITERS = 8


@pytest.mark.large
@requirement("CLEAR-04", leans_on=("CLEAR-01",))
def test_no_column_of_many_writers_comes_back_with_its_row(
    part: PartitionUnderTest, actors: Actors
) -> None:
    """Planes with room for the columns of some writers of a row must clear those of all."""
    writers = [part, *map(part.via, actors(WRITERS - 1))]
    fields = [f"by{n}" for n in range(len(writers))]
    for writer, field in zip(writers, fields, strict=True):
        writer.put_labeled(IDS, field)
    writers[1].expect_labeled(IDS, *fields)
    writers[2].clear(IDS)
    writers[0].put_labeled(IDS, "x", version=1)
    for field in fields:
        expect_unreadable(partial(writers[3].get, IDS, field), IDS[0], field)
    expect_equal(part.claim("train", [fields[-1]], 2).sample_ids, [], "rows with an old column")
