"""CLEAR across processes: clears by id drop any rows, and clears of None only the caller's rows."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch

from rlconform.certify.assertions.expect import ContractViolation, expect
from rlconform.certify.plugin.markers import requirement
from rlconform.certify.scenarios.partition import (
    PartitionUnderTest,
    expect_ids,
    expect_unreadable,
)
from rlconform.certify.scenarios.two_processes import each_pair, looker_and_changer
from rlconform.certify.threads import BackgroundCall
from rlconform.contract import DataPlaneClient

Actors = Callable[[int], list[DataPlaneClient]]
IDS = ["u0_g0", "u0_g1", "u1_g0"]


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


@requirement("CLEAR-01")
@each_pair
def test_rows_put_between_those_that_are_dropped_are_kept(
    part: PartitionUnderTest, actors: Actors, pair: tuple[int, int]
) -> None:
    """Planes that drop a range of rows may drop those that another process has put meanwhile."""
    looker, changer = looker_and_changer(part, actors, pair)
    own, others = ([f"{who}{n}" for n in range(12)] for who in ("own", "other"))
    for start in range(0, 12, 6):
        looker.put_labeled(own[start : start + 6])
        changer.put_labeled(others[start : start + 6])
    looker.clear(own)
    for view in (looker, changer):
        view.expect_labeled(others)
        expect_unreadable(partial(view.get, own[:1], "x"), own[0], "x")
    expect_ids(part.claim("train"), others, "rows left")


#: Elements of a row: so large that planes keep its bytes beside their index.
WIDE = 1 << 14


@requirement("CLEAR-07")
def test_reads_of_large_rows_beside_clears_of_another_process_return_them_or_raise(
    part: PartitionUnderTest, actors: Actors
) -> None:
    rounds, rows_each = 30, 16
    (writer,) = (part.via(actor) for actor in actors(1))
    newest = [0]

    def ids_of(n: int) -> list[str]:
        return [f"r{n}_{k}" for k in range(rows_each)]

    def put_and_clear() -> None:
        for n in part.rounds(rounds):
            writer.put(ids_of(n), x=torch.full((rows_each, WIDE), n, dtype=torch.int32))
            newest[0] = n
            if n:
                writer.clear(ids_of(n - 1))

    writing = BackgroundCall(put_and_clear, "the writer")
    while not writing.finished.is_set():
        n = newest[0]
        try:
            column = part.get(ids_of(n), "x")["x"]
        except ContractViolation:
            raise
        except Exception:  # noqa: BLE001 - an error is right here, another row's bytes are not
            continue
        finally:
            writing.wait_briefly()
        got = {int(column.min()), int(column.max())}
        expect(got == {n}, f"{n} in each element of {ids_of(n)}, or an error", got)
    writing.result(part.timeouts.operation)
