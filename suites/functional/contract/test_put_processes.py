"""PUT across processes: every reader sees all of a put or none of it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
import torch

from rlconform.certify.assertions.expect import (
    ContractViolation,
    expect,
    expect_equal,
    expect_objects,
    leaning_on,
    row_difference,
    rows_in,
    show_row,
)
from rlconform.certify.plugin.markers import requirement
from rlconform.certify.plugin.plane_session import PlaneSession
from rlconform.certify.scenarios.labeled_rows import labeled_row
from rlconform.certify.scenarios.odd_ids import COLLISIONS, NUMBERS, ODD_IDS
from rlconform.certify.scenarios.partition import (
    PartitionUnderTest,
    expect_ids,
    expect_unreadable,
)
from rlconform.certify.scenarios.refusable_objects import (
    put_or_leave_nothing,
    put_unless_refused,
)
from rlconform.certify.scenarios.two_processes import each_pair, looker_and_changer
from rlconform.certify.threads import BackgroundCall, run_concurrently
from rlconform.contract import DataPlaneClient, Target
from rlconform.wire import object_array, stack_or_nest

Actors = Callable[[int], list[DataPlaneClient]]
IDS = ["u0_g0", "u0_g1", "u1_g0"]


#: The first value of a field, and the value that replaces it.
CHANGES: dict[str, tuple[list[torch.Tensor], list[torch.Tensor]]] = {
    "dtype": (list(torch.arange(12.0).view(3, 4)), list(torch.arange(12).view(3, 4))),
    "dtype_of_one_width": (
        list(torch.arange(12.0).view(3, 4).bfloat16()),
        list(torch.arange(12.0).view(3, 4).half()),
    ),
    "wider_dtype": (list(torch.arange(3, dtype=torch.uint8)), list(torch.arange(3) << 40)),
    "length": (list(torch.arange(12.0).view(3, 4)), list(torch.arange(27.0).view(3, 9))),
    "lengths": (list(torch.arange(12.0).view(3, 4)), [torch.arange(float(n)) for n in (2, 1, 7)]),
}


@requirement("PUT-13")
@pytest.mark.parametrize(("first", "second"), CHANGES.values(), ids=CHANGES)
def test_a_process_that_has_read_a_field_reads_its_newest_rows(
    part: PartitionUnderTest, actors: Actors, first: list[torch.Tensor], second: list[torch.Tensor]
) -> None:
    writer, reader = (part.via(actor) for actor in actors(2))
    for rows in (first, second, first):
        writer.put(IDS, x=stack_or_nest(rows))
        for view in (reader, part):
            view.expect_rows(IDS[::-1], x=rows[::-1])


@requirement("PUT-14")
def test_an_attached_clients_receipt_names_what_was_written(
    part: PartitionUnderTest, actors: Actors
) -> None:
    (writer,) = (part.via(actor) for actor in actors(1))
    for fields in (["x", "y"], ["z"]):
        meta = writer.put_labeled(IDS[::-1], *fields)
        expect_equal(meta.sample_ids, IDS[::-1], "sample_ids on the receipt")
        expect_equal(meta.partition_id, part.id, "partition_id on the receipt")
        expect_equal(sorted(meta.fields or []), fields, "fields written by this put")


@pytest.mark.large
@requirement("PUT-20")
@pytest.mark.parametrize("writes", ["owner", "attached"])
def test_odd_ids_of_one_process_are_those_of_every_other(
    part: PartitionUnderTest, actors: Actors, writes: str
) -> None:
    """Planes that shorten ids may do so by a hash that differs in each process."""
    first, second = (part.via(actor) for actor in actors(2))
    writer, readers = (part, [first, second]) if writes == "owner" else (first, [part, second])
    ids = [*ODD_IDS, *NUMBERS]
    writer.put_labeled(ids)
    for n, reader in enumerate(readers):
        reader.expect_labeled(ids[::-1])
        reader.put_labeled(ids, "yz"[n])
    writer.expect_labeled(ids, "x", "y", "z")
    expect_ids(readers[0].claim("train", ["x", "y", "z"]), ids, "ids that another process claims")
    readers[0].clear(ids[::2])
    readers[1].expect_labeled(ids[1::2])
    writer.expect_absent(ids[::2])


@pytest.mark.large
@requirement("PUT-20")
def test_alike_ids_that_two_processes_put_are_those_of_two_rows(
    part: PartitionUnderTest, actors: Actors
) -> None:
    """Planes that find the rows of others by a hash, or by a number, must compare the ids too."""
    first, second = (part.via(actor) for actor in actors(2))
    ids = [*sum(COLLISIONS.values(), ()), *NUMBERS, *ODD_IDS]
    for writer, some in ((first, ids[::2]), (second, ids[1::2])):
        writer.put_labeled(some)
    for view in (part, second, first):
        view.expect_labeled(ids)
    expect_ids(second.claim("train", batch_size=len(ids)), ids, "ids of both processes")
    first.clear(ids[1::2])
    for view in (second, first):
        view.expect_labeled(ids[::2])
        expect_unreadable(partial(view.get, ids[1:2], "x"), ids[1], "x")


@requirement("PUT-21")
def test_objects_reach_another_process(
    part: PartitionUnderTest, actors: Actors, target: Target
) -> None:
    values = [{"role": "user", "content": "hi"}, None, ["", [1, None]]]
    writer, reader = (part.via(actor) for actor in actors(2))
    try:
        writer.put(IDS, x=torch.arange(3), log=object_array(values))
    except TypeError as refusal:
        if target.declares("objects"):
            raise ContractViolation(
                "the declared capability 'objects'", f"TypeError: {refusal}"
            ) from refusal
        with leaning_on("PUT-16"):
            reader.expect_absent(IDS, "log")
        return
    for view in (reader, part):
        expect_objects(view.get(IDS[::-1], "log"), "log", values[::-1])
        view.expect_rows(IDS, x=list(torch.arange(3)))


@requirement("PUT-22")
def test_a_put_becomes_visible_with_all_its_fields(
    new_partition: Callable[..., PartitionUnderTest], actors: Actors
) -> None:
    rounds, fields = 60, ["x", "y", "z", "extra"]
    part = new_partition(num_samples=3 * rounds)
    (actor,) = actors(1)
    writing = part.via(actor)

    def produce() -> None:
        for n in range(rounds):
            writing.put_labeled([f"r{n}_{k}" for k in range(3)], *fields)

    producer = BackgroundCall(produce, "the producer")
    claimed = 0
    while True:
        over = producer.finished.is_set()
        ids = part.claim("train", ["x"], 3).sample_ids
        if ids:
            claimed += len(ids)
            part.expect_labeled(ids, *fields)  # raises if a field is not readable yet
        elif over:
            break
        else:
            producer.wait_briefly()
    producer.result(part.timeouts.operation)
    expect_equal(claimed, 3 * rounds, "rows claimed")


@requirement("PUT-22")
def test_rows_put_by_two_processes_at_once_are_those_of_one_put(
    part: PartitionUnderTest, actors: Actors
) -> None:
    rounds = 20
    first, second = (part.via(actor) for actor in actors(2))
    for n in range(rounds):
        versions = [2 * n, 2 * n + 1]
        puts = [  # in opposite orders: a plane that stores field by field mixes the two puts
            partial(_try_to_put, first, ["x", "y"], versions[0]),
            partial(_try_to_put, second, ["y", "x"], versions[1]),
        ]
        refusals = run_concurrently(puts, part.timeouts.check / 2, "writer")
        taken = [v for v, refusal in zip(versions, refusals, strict=True) if refusal is None]
        expect(bool(taken), "at least one of two puts of the same rows to be taken", refusals)
        expect_whole_rows(part, taken)


def _try_to_put(part: PartitionUnderTest, fields: list[str], version: int) -> Exception | None:
    """Put all rows in ``version``; return the error if the plane refuses a concurrent put."""
    try:
        part.put_labeled(IDS, *fields, version=version)
    except ContractViolation:
        raise
    except Exception as refusal:  # noqa: BLE001 - a plane may refuse with any error
        return refusal
    return None


def expect_whole_rows(part: PartitionUnderTest, versions: list[int]) -> None:
    """Check that x and y of each row are from the same put, with one of ``versions``."""
    batch = part.get(IDS, "x", "y")
    columns = {field: rows_in(batch, field) for field in ("x", "y")}
    for index, sample_id in enumerate(IDS):
        rows = {field: column[index] for field, column in columns.items()}
        whole = any(
            all(
                row_difference(row, labeled_row(part.id, sample_id, field, version)) is None
                for field, row in rows.items()
            )
            for version in versions
        )
        got = " and ".join(show_row(row) for row in rows.values())
        expect(whole, f"x and y of {sample_id!r} from one put, not of two", got)


@requirement("PUT-13")
@each_pair
@pytest.mark.parametrize(
    "width", [8, pytest.param(1 << 15, marks=pytest.mark.large)], ids=["small", "large"]
)
def test_equal_values_of_two_processes_are_overwritten_apart(
    part: PartitionUnderTest, actors: Actors, pair: tuple[int, int], width: int
) -> None:
    """Planes that store equal columns once must part them when one of them is replaced."""
    first, second = looker_and_changer(part, actors, pair)
    same, other = torch.arange(2 * width).reshape(2, width), torch.zeros(2, width).long()
    first.put(["a0", "a1"], x=same)
    second.put(["b0", "b1"], x=same)
    first.put(["a0", "a1"], x=other)
    for view in (part, first, second):
        view.expect_rows(["a0", "b0", "a1", "b1"], x=[other[0], same[0], other[1], same[1]])
    second.clear(["b0"])
    part.expect_rows(["a0", "b1", "a1"], x=[other[0], same[1], other[1]])


@pytest.mark.large
@requirement("PUT-13")
@each_pair
@pytest.mark.parametrize("elements", [1 << 16, 700_000], ids=["kilobytes", "megabytes"])
def test_a_short_row_of_another_process_replaces_a_long_one(
    part: PartitionUnderTest, actors: Actors, pair: tuple[int, int], elements: int
) -> None:
    """Planes that send long values by another way, or in chunks, may find the old ones there."""
    first, second = looker_and_changer(part, actors, pair)
    long, other = torch.arange(elements), torch.arange(elements) + 1
    for name, shorter in (("x", torch.arange(5) + 7), ("y", torch.arange(elements // 2) + 3)):
        first.put(["a", "b"], **{name: stack_or_nest([long, other])})
        part.expect_rows(["a", "b"], **{name: [long, other]})
        second.put(["a"], **{name: stack_or_nest([shorter])})
        for view in (part, first, second):
            view.expect_rows(["b", "a"], **{name: [other, shorter]})
        ragged = [shorter[1:], shorter + 1]
        first.put(["a", "b"], **{name: stack_or_nest([long, other])})
        second.put(["a", "b"], **{name: stack_or_nest(ragged)})
        for view in (part, first, second):
            view.expect_rows(["a", "b"], **{name: ragged})


@requirement("PUT-13")
def test_the_puts_of_a_client_that_attached_again_are_new(
    plane: PlaneSession, part: PartitionUnderTest
) -> None:
    """Planes that number a process's messages may take its n-th put for the n-th one before."""
    (worker,) = plane.actors().start(1)
    view = part.via(worker)
    try:
        for version in range(3):
            view.put_labeled(["a", "b"], "x", version=version)
            view.put_labeled(["a", "b"], "y", version=version)
            part.expect_labeled(["b", "a"], "x", "y", version=version)
            worker.close()
            plane.actors().attach_again(worker)
    finally:
        worker.end()


#: Elements of a row, and characters of a text, that planes keep apart from small ones.
WIDE, LONG = 300_000, 90_000


@requirement("PUT-05", leans_on=("GET-10", "PUT-21"))
def test_large_rows_of_a_client_that_attached_again_leave_its_earlier_ones(
    plane: PlaneSession, part: PartitionUnderTest, target: Target
) -> None:
    """Planes that name large values by their process and a counter begin again at the first."""
    (worker,) = plane.actors().start(1)
    view, texts = part.via(worker), {}
    wide = torch.arange(WIDE)
    try:
        for n in range(3):
            view.put([f"wide{n}", f"ragged{n}"], x=stack_or_nest([wide + n, wide[n + 1 :]]))
            log = [{"role": "user", "content": f"{n}" * LONG}]
            if put_unless_refused(view, target, [f"log{n}"], log=object_array([log])):
                texts[f"log{n}"] = log
            worker.close()
            plane.actors().attach_again(worker)
        for reader in (part, view):
            for n in range(3):
                reader.expect_rows([f"wide{n}", f"ragged{n}"], x=[wide + n, wide[n + 1 :]])
            if texts:
                expect_objects(reader.get(list(texts), "log"), "log", list(texts.values()))
    finally:
        worker.end()


@requirement("PUT-21", leans_on=("PUT-28",))
@each_pair
def test_objects_of_unlike_kinds_of_two_processes_are_read_together(
    part: PartitionUnderTest, actors: Actors, pair: tuple[int, int], target: Target
) -> None:
    """Planes that choose how to decode a read by its first row, or by its writer."""
    first, second = looker_and_changer(part, actors, pair)
    texts, logs = ["plain", '{"role": "user"}'], [[{"role": "user", "turns": [1]}], None]
    put = put_or_leave_nothing(first, target, ["t0", "t1"], log=object_array(texts))
    if put and put_or_leave_nothing(second, target, ["l0", "l1"], log=object_array(logs)):
        for view in (part, first, second):
            both = view.get(["t0", "l0", "t1", "l1"], "log")
            expect_objects(both, "log", [texts[0], logs[0], texts[1], logs[1]])
            both = view.get(["l1", "t1", "l0", "t0"], "log")
            expect_objects(both, "log", [logs[1], texts[1], logs[0], texts[0]])
