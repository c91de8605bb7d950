"""PUT across processes: jagged columns that another process put come back, and work in torch."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from rlconform.certify.assertions.expect import expect_column
from rlconform.certify.assertions.jagged import expect_whole_column
from rlconform.certify.plugin.markers import requirement
from rlconform.certify.scenarios.labeled_rows import jagged, random_rows
from rlconform.certify.scenarios.partition import PartitionUnderTest
from rlconform.certify.scenarios.two_processes import each_pair, looker_and_changer
from rlconform.contract import DataPlaneClient, KVBatchMeta

Actors = Callable[[int], list[DataPlaneClient]]

IDS = ["u0_g0", "u0_g1", "u1_g0"]


def expect_whole_elsewhere(
    part: PartitionUnderTest, actors: Actors, rows: list[torch.Tensor]
) -> None:
    """Put from the owner, then from an attached process, and check what other processes read."""
    first, second = (part.via(actor) for actor in actors(2))
    column = jagged(rows)
    for writer, readers, field in ((part, [first], "x"), (first, [second, part], "y")):
        writer.put(IDS, **{field: column})
        for reader in readers:
            expect_column(reader.get(IDS, field), field, rows)
            for chosen in (IDS, IDS[::-1], IDS[1:], IDS[:1]):
                expect_whole_column(reader.get(chosen, field), field)
                meta = KVBatchMeta(part.id, None, chosen, fields=[field])
                expect_whole_column(reader.get_data(meta), field)


@requirement("PUT-29", leans_on=("PUT-05",))
@pytest.mark.parametrize("lengths", [(3, 1, 5), (4, 4, 4)], ids=str)
@pytest.mark.parametrize("dtype", [torch.int64, torch.bfloat16], ids=str)
def test_a_jagged_column_works_in_other_processes(
    part: PartitionUnderTest, actors: Actors, dtype: torch.dtype, lengths: tuple[int, ...]
) -> None:
    expect_whole_elsewhere(part, actors, random_rows(dtype, [(n,) for n in lengths]))


@requirement("PUT-29", leans_on=("PUT-06",))
@pytest.mark.parametrize("lengths", [(0, 3, 1), (3, 2, 0), (0, 0, 0)], ids=str)
def test_a_jagged_column_with_zero_length_rows_works_in_other_processes(
    part: PartitionUnderTest, actors: Actors, lengths: tuple[int, ...]
) -> None:
    expect_whole_elsewhere(part, actors, random_rows(torch.float32, [(n,) for n in lengths]))


@requirement("PUT-29", leans_on=("PUT-07",))
@pytest.mark.parametrize("trailing", [(3,), (2, 4)], ids=str)
def test_a_jagged_column_with_trailing_dimensions_works_in_other_processes(
    part: PartitionUnderTest, actors: Actors, trailing: tuple[int, ...]
) -> None:
    rows = random_rows(torch.uint8, [(n, *trailing) for n in (2, 1, 3)])
    expect_whole_elsewhere(part, actors, rows)


@requirement("PUT-11", leans_on=("PUT-05", "PUT-13"))
@each_pair
def test_columns_beside_one_that_another_process_overwrites_keep_their_lengths(
    part: PartitionUnderTest, actors: Actors, pair: tuple[int, int]
) -> None:
    """Planes that store the offsets of equally long columns once must part them then."""
    first, second = looker_and_changer(part, actors, pair)
    lengths = (4, 6, 5)
    columns = {
        name: random_rows(torch.int64, [(n,) for n in lengths], seed)
        for seed, name in enumerate(("x", "y", "z"))
    }
    first.put(IDS, **{name: jagged(rows) for name, rows in columns.items()})
    part.expect_rows(IDS, **columns)
    for change in (-1, 2):
        columns["x"] = random_rows(torch.int64, [(n + change,) for n in lengths], 7 + change)
        second.put(IDS, x=jagged(columns["x"]))
        for view in (part, first, second):
            view.expect_rows(IDS[::-1], **{name: rows[::-1] for name, rows in columns.items()})


@requirement("PUT-05", leans_on=("PUT-06",))
@pytest.mark.parametrize("trailing", [(), (2, 3)], ids=str)
@each_pair
def test_rows_of_one_length_of_each_writer_are_read_together(
    part: PartitionUnderTest, actors: Actors, pair: tuple[int, int], trailing: tuple[int, ...]
) -> None:
    """A plane may keep such rows as a matrix, but then must not pad them to each other's width."""
    first, second = looker_and_changer(part, actors, pair)
    put: dict[str, torch.Tensor] = {}
    for n, width in enumerate((3, 7, 1, 0, 5)):
        rows = random_rows(torch.int64, [(width, *trailing)] * 2, seed=n)
        ids = [f"w{n}_{i}" for i in range(2)]
        (first, second)[n % 2].put(ids, x=jagged(rows))
        put.update(zip(ids, rows, strict=True))
    ids = [*put]
    for chosen in (ids, ids[::-1], ids[::2], ids[:4], ids[4:]):
        for view in (first, second):
            view.expect_rows(chosen, x=[put[i] for i in chosen])


#: Rows of each of two processes, and tokens of a row: beyond 2**16 of each, and 2**24 of both.
LONG_ROWS = {"responses": (24, 4_000, torch.int64), "documents": (310, 28_001, torch.uint8)}


@pytest.mark.large
@requirement("PUT-05", leans_on=("GET-01",))
@pytest.mark.parametrize(("count", "tokens", "dtype"), LONG_ROWS.values(), ids=LONG_ROWS)
def test_long_rows_of_several_writers_are_read_together(
    new_partition: Callable[..., PartitionUnderTest],
    actors: Actors,
    count: int,
    tokens: int,
    dtype: torch.dtype,
) -> None:
    """Planes that join what several processes put may count its tokens in too few bits."""
    part = new_partition(num_samples=2 * count)
    rows = {}
    for writer, actor in zip("uv", actors(2), strict=True):
        new = {
            f"{writer}{n}": (torch.arange(tokens - n % 5) * 7 + n + ord(writer)).to(dtype)
            for n in range(count)
        }
        part.via(actor).put(list(new), x=jagged(list(new.values())))
        rows |= new
    ids = list(rows)
    for order in (ids, ids[::-1], [*ids[::2], *ids[1::2]]):
        part.expect_rows(order, x=[rows[i] for i in order])


@requirement("PUT-13", leans_on=("PUT-05",))
@each_pair
def test_a_row_is_continued_though_another_process_replaced_it(
    part: PartitionUnderTest, actors: Actors, pair: tuple[int, int]
) -> None:
    """A client that sends only what is new since its own last put continues the row of another."""
    first, second = looker_and_changer(part, actors, pair)
    own, others = random_rows(torch.int64, [(700,), (700,)])
    puts = [
        (first, own[:400]), (second, others[:400]), (first, own[:600]), (second, others[:400]),
        (first, own[:650]), (first, own), (second, others[:700]), (first, own[:400]),
        (second, others), (first, own),
    ]  # fmt: skip
    for writer, row in puts:
        writer.put(IDS[:1], x=jagged([row]))
        for view in (second, first):
            view.expect_rows(IDS[:1], x=[row])


#: Rows of a step, each of a length of its own in two columns: over 1,024 shapes.
LENGTHS = 520


@pytest.mark.large
@requirement("PUT-05", leans_on=("CLEAR-04",))
@each_pair
def test_rows_of_very_many_lengths_follow_others_that_a_process_has_read(
    part: PartitionUnderTest, actors: Actors, pair: tuple[int, int]
) -> None:
    """A plane that numbers the shapes of rows must not give new ones a number that readers know."""
    reader, writer = looker_and_changer(part, actors, pair)
    for step in range(2):
        ids = [f"s{step}_{n}" for n in range(LENGTHS)]
        rows = [torch.arange(n + step * LENGTHS).to(torch.int8) for n in range(LENGTHS)]
        masks = [row > n for n, row in enumerate(rows)]
        writer.put(ids, x=jagged(rows), y=jagged(masks))
        reader.expect_rows(ids, x=rows, y=masks)
        writer.clear(ids)
