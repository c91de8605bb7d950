"""PUT across processes: other processes read columns exactly as they were put.

A client may cache its puts or read them from local memory. A read in another process must go
through the plane.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
import torch

from rlconform.certify.assertions.expect import expect_objects, is_rejected
from rlconform.certify.plugin.markers import requirement
from rlconform.certify.scenarios.checksum_twins import CHECKSUMS, checksum_twins
from rlconform.certify.scenarios.labeled_rows import jagged, labeled_rows, random_rows
from rlconform.certify.scenarios.partition import PartitionUnderTest
from rlconform.certify.scenarios.refusable_objects import put_unless_refused
from rlconform.certify.scenarios.two_processes import PAIRS, each_pair, looker_and_changer
from rlconform.certify.threads import run_concurrently
from rlconform.contract import DataPlaneClient, Target
from rlconform.wire import object_array, stack_or_nest

Actors = Callable[[int], list[DataPlaneClient]]

Rows = list[torch.Tensor]

IDS = ["u0_g0", "u0_g1", "u1_g0"]

DTYPES = [
    torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64,
    torch.float16, torch.bfloat16, torch.float32, torch.float64,
]  # fmt: skip


@pytest.fixture(params=["owner", "attached"])
def put_and_read(
    request: pytest.FixtureRequest, part: PartitionUnderTest, actors: Actors
) -> Callable[[dict[str, Rows], dict[str, torch.Tensor]], None]:
    """Return a function that puts columns in one process and reads them in the others."""
    first, second = (part.via(actor) for actor in actors(2))
    writer, readers = (part, [first]) if request.param == "owner" else (first, [second, part])

    def run(rows: dict[str, Rows], columns: dict[str, torch.Tensor]) -> None:
        part.register(fields=list(columns))
        writer.put(IDS, **columns)
        for reader in readers:
            reader.expect_rows(IDS[::-1], **{name: column[::-1] for name, column in rows.items()})

    return run


PutAndRead = Callable[[dict[str, Rows], dict[str, torch.Tensor]], None]


@requirement("PUT-01")
def test_every_dtype_reaches_other_processes(put_and_read: PutAndRead) -> None:
    rows = {str(dtype)[6:]: random_rows(dtype, [(5,)] * 3) for dtype in DTYPES}
    put_and_read(rows, {name: stack_or_nest(column) for name, column in rows.items()})


@requirement("PUT-02", capability="dtype_fp8")
def test_fp8_reaches_other_processes(put_and_read: PutAndRead) -> None:
    dtypes = (torch.float8_e4m3fn, torch.float8_e5m2)
    rows = {str(dtype)[6:]: random_rows(dtype, [(5,)] * 3) for dtype in dtypes}
    put_and_read(rows, {name: stack_or_nest(column) for name, column in rows.items()})


@requirement("PUT-02", capability="dtype_complex")
def test_complex_reaches_other_processes(put_and_read: PutAndRead) -> None:
    rows = random_rows(torch.complex64, [(5,)] * 3)
    put_and_read({"x": rows}, {"x": stack_or_nest(rows)})


@requirement("PUT-24")
def test_wide_unsigned_dtypes_reach_other_processes(put_and_read: PutAndRead) -> None:
    rows = {
        str(dtype)[6:]: random_rows(dtype, [(5,)] * 3)
        for dtype in (torch.uint16, torch.uint32, torch.uint64)
    }
    put_and_read(rows, {name: stack_or_nest(column) for name, column in rows.items()})


@requirement("PUT-03")
def test_one_dimensional_columns_and_width_one_reach_other_processes(
    put_and_read: PutAndRead,
) -> None:
    flat, column = torch.arange(3.0), torch.arange(3.0).reshape(3, 1)
    put_and_read({"flat": list(flat), "column": list(column)}, {"flat": flat, "column": column})


@requirement("PUT-04")
def test_dense_shapes_reach_other_processes(put_and_read: PutAndRead) -> None:
    shapes = [(0,), (1,), (2, 0), (2, 3, 4), (3, 0, 2, 1)]
    rows = {"x".join(map(str, s)): random_rows(torch.float32, [s] * 3) for s in shapes}
    put_and_read(rows, {name: torch.stack(column) for name, column in rows.items()})


@requirement("PUT-06")
@pytest.mark.parametrize("lengths", [(0, 3, 1), (3, 0, 0), (0, 0, 0)], ids=str)
def test_zero_length_rows_reach_other_processes(
    put_and_read: PutAndRead, lengths: tuple[int, ...]
) -> None:
    rows = random_rows(torch.bfloat16, [(n,) for n in lengths])
    put_and_read({"x": rows}, {"x": jagged(rows)})


@requirement("PUT-07")
def test_jagged_rows_with_trailing_dimensions_reach_other_processes(
    put_and_read: PutAndRead,
) -> None:
    shapes = {"experts": (2, 4), "hidden": (3,)}
    rows = {
        name: random_rows(torch.uint8, [(n, *trailing) for n in (2, 0, 3)])
        for name, trailing in shapes.items()
    }
    put_and_read(rows, {name: jagged(column) for name, column in rows.items()})


@pytest.mark.large
@requirement("PUT-04")
def test_large_rows_of_two_writers_at_once_stay_apart(
    part: PartitionUnderTest, actors: Actors
) -> None:
    width = (1 << 20) + 1
    writers = [part.via(actor) for actor in actors(2)]
    ids = [[f"w{w}_{n}" for n in range(2)] for w, _ in enumerate(writers)]
    for version in range(3):
        rows = [labeled_rows(part.id, each, "x", version, width) for each in ids]
        puts = [
            partial(view.put, each, x=torch.stack(column))
            for view, each, column in zip(writers, ids, rows, strict=True)
        ]
        run_concurrently(puts, part.timeouts.check / 2, "writer")
        for view in (part, *writers):
            view.expect_rows([*ids[1], *ids[0]], x=[*rows[1], *rows[0]])


#: Dtypes of one size: the bytes of one can be taken for the other.
ONE_SIZE = {
    "float16_and_bfloat16": (torch.float16, torch.bfloat16),
    "int64_and_float64": (torch.int64, torch.float64),
}


@requirement("PUT-23", leans_on=("PUT-13",))
@each_pair
@pytest.mark.parametrize(("first", "second"), ONE_SIZE.values(), ids=ONE_SIZE)
def test_a_put_is_not_taken_for_the_dtype_that_another_process_brought(
    part: PartitionUnderTest,
    actors: Actors,
    pair: tuple[int, int],
    first: torch.dtype,
    second: torch.dtype,
) -> None:
    """Planes that name a dtype only in a process's first put misread the bytes of a later one."""
    writer, other = looker_and_changer(part, actors, pair)
    rows = [torch.arange(4) + n for n in range(len(IDS))]
    writer.put(IDS, x=torch.stack(rows).to(first))
    other.put(IDS, x=torch.stack(rows).to(second))
    # a plane may keep rows of two dtypes in one field, or refuse them
    refused = is_rejected(lambda: writer.put(IDS[:1], x=rows[0].view(1, -1).to(first)))
    for view in (writer, other):
        view.expect_rows(IDS[:1], x=[rows[0].to(second if refused else first)])
        view.expect_rows(IDS[1:], x=[row.to(second) for row in rows[1:]])


@requirement("PUT-13", leans_on=("TAG-01",))
@each_pair
@pytest.mark.parametrize(
    "elements", [2, pytest.param(40_000, marks=pytest.mark.large)], ids=["short_rows", "long_rows"]
)
def test_a_process_puts_again_what_another_replaced_since(
    part: PartitionUnderTest, actors: Actors, pair: tuple[int, int], elements: int
) -> None:
    """A client that leaves out what it sent last must notice that another put came between."""
    first, second = looker_and_changer(part, actors, pair)
    shapes = [(n + elements,) for n in range(3)]
    rows = [random_rows(torch.float32, shapes, seed) for seed in range(2)]
    flags = [torch.tensor([1, 1, 0]), torch.tensor([0, 1, 1])]
    dense = [torch.full((3, elements), version / 2) for version in range(2)]
    first.put(IDS, z=torch.zeros(3))
    turns = [(first, 0), (second, 1), (first, 0), (second, 1), (second, 0), (first, 1), (second, 0)]
    for writer, version in turns:
        writer.put(IDS, x=stack_or_nest(rows[version]), y=flags[version], w=dense[version])
        for view in (second, first):
            due = {"x": rows[version], "y": list(flags[version]), "w": list(dense[version])}
            view.expect_rows(IDS, **due)


@pytest.mark.large
@requirement("PUT-05", leans_on=("GET-10", "CLEAR-04", "PUT-21"))
@each_pair
def test_a_process_puts_again_what_another_cleared_since(
    part: PartitionUnderTest, actors: Actors, pair: tuple[int, int], target: Target
) -> None:
    """A client that sends equal values once must notice that another cleared their last row."""
    first, second = looker_and_changer(part, actors, pair)
    wide, text = torch.arange(40_000), "a long text " * 6_000
    for n in range(3):
        row = [f"r{n}"]
        first.put(row, x=wide.unsqueeze(0), y=jagged([wide[5:]]))
        texts = put_unless_refused(first, target, row, log=object_array([text]))
        for view in (second, first):
            view.expect_rows(row, x=[wide], y=[wide[5:]])
            if texts:
                expect_objects(view.get(row, "log"), "log", [text])
        second.clear(row)


@pytest.mark.large
@requirement("PUT-01", leans_on=("PUT-05", "PUT-13"))
@pytest.mark.parametrize("checksum", CHECKSUMS)
def test_values_of_equal_checksums_that_two_processes_put_are_kept_apart(
    part: PartitionUnderTest, actors: Actors, checksum: str
) -> None:
    """A process can compare a value with its own ones; of another's it may know the checksum."""
    writers = [part.via(actor) for actor in actors(2)]
    values = checksum_twins(checksum, 80_000)
    words = [value.view(torch.int64) for value in values]
    for order in ([0, 1], [1, 0]):
        for writer, row, n in zip(writers, IDS, order, strict=False):
            writer.put([row], x=values[n].unsqueeze(0), y=jagged([words[n]]))
        for view in (part, *writers):
            view.expect_rows(IDS[:2], x=[values[n] for n in order], y=[words[n] for n in order])


#: Who looks and who changes, how often, and whether rows are cleared between puts, which takes
#: twice as long. A version of one byte comes again after 256 changes, or 255 if 0 means none.
VERY_OFTEN = {name: (pair, 256, False) for name, pair in PAIRS.items()}
VERY_OFTEN["cleared_between"] = (PAIRS["attached_looks_owner_changes"], 256, True)
VERY_OFTEN["without_zero"] = (PAIRS["attached_looks_owner_changes"], 255, False)


@pytest.mark.large
@requirement("PUT-13", leans_on=("CLEAR-04",))
@pytest.mark.parametrize(("pair", "times", "cleared"), VERY_OFTEN.values(), ids=VERY_OFTEN)
def test_a_process_reads_what_another_has_changed_very_often_since(
    part: PartitionUnderTest, actors: Actors, pair: tuple[int, int], times: int, cleared: bool
) -> None:
    """A reader that keeps rows with a version of one byte takes the new version for its own."""
    looker, changer = looker_and_changer(part, actors, pair)
    changer.put_labeled(IDS, "x", "y")
    for field in "xy":
        looker.expect_labeled(IDS, field)
    last = 0
    for n in part.rounds(times):
        last = n + 1
        if cleared:
            changer.clear(IDS)
        changer.put_labeled(IDS, *"xy"[: 1 + cleared], version=last)
    looker.expect_labeled(IDS, "x", version=last)
    looker.expect_labeled(IDS, "y", version=last * cleared)
