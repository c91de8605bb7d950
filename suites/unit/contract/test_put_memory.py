"""PUT-08, 09, 10: put_samples copies rows of any memory layout and handles views efficiently."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable
from typing import Any

import pytest
import torch

from rlconform.certify.assertions.expect import (
    expect,
    expect_column,
    expect_equal,
    expect_rows_but_first,
    overwrite_first,
)
from rlconform.certify.memory_usage import few_objects_to_collect, plane_bytes, settled_growth
from rlconform.certify.plugin.markers import requirement
from rlconform.certify.scenarios.labeled_rows import labeled_column
from rlconform.certify.scenarios.normalize_metas import tags_by_id
from rlconform.certify.scenarios.partition import (
    PartitionUnderTest,
)
from rlconform.contract import KVBatchMeta
from rlconform.wire import rows_of, stack_or_nest

IDS = ["u0_g0", "u0_g1", "u1_g0"]


def ragged(**options: Any) -> torch.Tensor:
    """Return jagged rows of 2, 1 and 3 tokens."""
    tokens = [torch.arange(n, dtype=torch.float32) for n in (2, 1, 3)]
    return torch.nested.nested_tensor(tokens, layout=torch.jagged, **options)


#: The first 3, 8 and 1 columns of a padded batch: jagged rows with gaps between them.
NARROWED = (torch.arange(24.0).reshape(3, 8), torch.tensor([3, 8, 1]))

UNUSUAL_INPUTS = {
    "strided": lambda: torch.arange(24.0).reshape(3, 8)[:, ::2],
    "sliced": lambda: torch.arange(40.0).reshape(5, 8)[1:4, 2:6],
    "expanded_rows": lambda: torch.arange(4.0).expand(3, 4),
    "expanded_scalar": lambda: torch.tensor(7.0).expand(3),
    "expanded_column": lambda: torch.arange(3.0).reshape(3, 1).expand(3, 5),
    "transposed": lambda: torch.arange(12.0).reshape(4, 3).T,
    "permuted": lambda: torch.arange(24.0).reshape(2, 4, 3).permute(2, 0, 1),
    "channels_last": lambda: torch.arange(144.0).reshape(3, 4, 4, 3).permute(0, 3, 1, 2),
    "channels_last_format": lambda: (
        torch.arange(144.0).reshape(3, 3, 4, 4).to(memory_format=torch.channels_last)
    ),
    "flipped": lambda: torch.arange(12.0).reshape(3, 4).flip(1)[:, ::2],
    "grad_leaf": lambda: torch.ones(3, 4, requires_grad=True),
    "grad_result": lambda: torch.ones(3, 4, requires_grad=True) * 2,
    "jagged_with_gaps": lambda: torch.nested.narrow(
        NARROWED[0], 1, 0, NARROWED[1], layout=torch.jagged
    ),
    "jagged_of_strided_tokens": lambda: torch.nested.nested_tensor_from_jagged(
        torch.arange(48.0).reshape(6, 8)[:, ::2], torch.tensor([0, 2, 3, 6])
    ),
    "jagged_grad_leaf": lambda: ragged(requires_grad=True),
    "jagged_grad_result": lambda: ragged(requires_grad=True) * 2,
}


@requirement("PUT-08", changes_results=True)
@pytest.mark.parametrize("make", UNUSUAL_INPUTS.values(), ids=UNUSUAL_INPUTS)
def test_columns_of_unusual_layout_come_back_as_plain_tensors(
    part: PartitionUnderTest, make: Any
) -> None:
    column = make()
    rows = [row.detach().clone() for row in rows_of(column)]
    part.put(IDS, x=column)
    batch = part.get(IDS, "x")
    expect_column(batch, "x", rows)
    leaf = batch.get("x")
    expect_equal(bool(leaf.requires_grad), False, "requires_grad of the column read")
    overwrite_first(batch, "x")
    expect_rows_but_first(batch, "x", rows)
    part.expect_rows(IDS, x=rows)


#: Large inputs whose rows are not next to one another in memory, by name.
LARGE_VIEWS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "sliced": lambda wide: wide[:, : wide.shape[1] // 2],
    "transposed": lambda wide: wide.reshape(-1, len(IDS)).t(),
    "strided": lambda wide: wide[:, ::2],
    "expanded": lambda wide: wide[:1].expand(len(IDS), -1),
}


@requirement("PUT-08", leans_on=("PUT-15",))
@pytest.mark.parametrize("view", LARGE_VIEWS.values(), ids=LARGE_VIEWS)
def test_large_columns_of_unusual_layout_come_back(
    part: PartitionUnderTest, view: Callable[[torch.Tensor], torch.Tensor]
) -> None:
    """Planes hand large tensors to a transport as an address and a size, without the strides."""
    width = (9 << 20) // 4 // len(IDS) * 2  # of half of which a row takes 9 MiB with the others
    column = view(torch.arange(len(IDS) * width, dtype=torch.int32).reshape(len(IDS), width))
    part.put(IDS, x=column)
    part.expect_rows(IDS, x=list(column.contiguous()))


# -- PUT-09: stored rows share no memory with the caller -------------------------------------------


@requirement("PUT-09", changes_results=True)
def test_changing_the_callers_tensor_changes_nothing_stored(part: PartitionUnderTest) -> None:
    dense, values = labeled_column(part.id, IDS, "x"), torch.arange(6.0)
    rows, offsets = list(values.clone().split([1, 2, 3])), torch.tensor([0, 1, 3, 6])
    part.put(IDS, x=dense, y=torch.nested.nested_tensor_from_jagged(values, offsets))
    dense.fill_(0)
    values.fill_(9)
    offsets.copy_(torch.tensor([0, 3, 5, 6]))  # a buffer of offsets serves the next step too
    part.expect_labeled(IDS, "x")
    part.expect_rows(IDS, y=rows)


@requirement("PUT-09", changes_results=True)
def test_changing_what_get_returned_changes_nothing_stored(part: PartitionUnderTest) -> None:
    rows = list(torch.arange(12.0).reshape(3, 4))
    part.put(IDS, x=torch.stack(rows))
    batch = part.get(IDS, "x")
    expect_column(batch, "x", rows)
    overwrite_first(batch, "x")
    part.expect_rows(IDS, x=rows)


@requirement("PUT-09", changes_results=True)
def test_changing_what_get_data_returned_changes_nothing_stored(part: PartitionUnderTest) -> None:
    rows = list(torch.arange(12.0).reshape(3, 4))
    part.put(IDS, x=torch.stack(rows))
    meta = part.claim("train")
    expected = [rows[IDS.index(i)] for i in meta.sample_ids]
    overwrite_first(part.get_data(meta), "x")
    expect_column(part.get_data(meta), "x", expected)


@requirement("PUT-09", changes_results=True)
def test_changing_jagged_rows_that_get_returned_changes_nothing_stored(
    part: PartitionUnderTest,
) -> None:
    rows = [torch.arange(n) for n in (2, 1, 3)]
    part.put(IDS, x=torch.nested.nested_tensor(rows, layout=torch.jagged))
    batch = part.get(IDS, "x")
    overwrite_first(batch, "x")
    expect_rows_but_first(batch, "x", rows)
    part.expect_rows(IDS, x=rows)


@requirement("PUT-09", changes_results=True)
@pytest.mark.parametrize("way", ["with_rows", "alone"])
def test_changing_a_tag_dict_changes_nothing_stored(part: PartitionUnderTest, way: str) -> None:
    tags = [{"row": n} for n, _ in enumerate(IDS)]
    stored = {i: {"row": n} for n, i in enumerate(IDS)}
    if way == "alone":
        part.put_labeled(IDS)
        part.put(IDS, tags)
    else:
        part.put_labeled(IDS, tags=tags)
    for row in tags:
        row["row"] = 9
    got = tags_by_id(part.claim("train"))
    expect_equal(got, stored, "tags of the put")
    for row in got.values():
        row["row"] = 9
    expect_equal(tags_by_id(part.claim("prev_lp")), stored, "tags of the put")


#: Columns whose rows may be returned as views of what is stored.
STORED = {
    "dense": [torch.arange(4.0) + 10 * n for n in range(4)],
    "jagged": [torch.arange(n + 1) for n in range(4)],
}

#: Rows of a read that a plane may serve from one piece of memory.
SHAPES = {"one_row": [1], "all_in_stored_order": [0, 1, 2, 3], "contiguous_part": [1, 2]}


@requirement("PUT-09", changes_results=True)
@pytest.mark.parametrize("read", ["get_samples", "get_data"])
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize("column", STORED)
def test_changing_a_read_of_any_shape_changes_nothing_stored(
    part: PartitionUnderTest, column: str, shape: list[int], read: str
) -> None:
    ids, rows = [f"r{n}" for n in range(4)], STORED[column]
    part.put(ids, x=stack_or_nest(rows))
    asked = [ids[n] for n in shape]
    meta = KVBatchMeta(part.id, None, asked, fields=["x"])
    batch = part.get_data(meta) if read == "get_data" else part.get(asked, "x")
    expect_column(batch, "x", [rows[n] for n in shape])
    overwrite_first(batch, "x")
    part.expect_rows(ids, x=rows)
    part.expect_rows(asked, x=[rows[n] for n in shape])


@requirement("PUT-09", changes_results=True)
def test_equal_columns_share_no_memory(part: PartitionUnderTest) -> None:
    column = torch.arange(12.0).reshape(3, 4)
    part.put(IDS, x=column, y=column)
    batch = part.get(IDS, "x", "y")
    overwrite_first(batch, "x")
    expect_column(batch, "y", list(column))
    part.expect_rows(IDS, x=list(column), y=list(column))
    part.put(IDS, x=column + 1)
    part.expect_rows(IDS, x=list(column + 1), y=list(column))


#: Elements of a row over 100 KiB, which transports map instead of copying.
LARGE = 3 << 16

LAYOUTS = {"dense": (LARGE, LARGE, LARGE), "ragged": (LARGE, 1, LARGE + 1)}


def rows_of_length(lengths: tuple[int, ...]) -> list[torch.Tensor]:
    return [torch.full((n,), float(row)) for row, n in enumerate(lengths)]


@requirement("PUT-09", changes_results=True)
@pytest.mark.parametrize("lengths", LAYOUTS.values(), ids=LAYOUTS)
def test_changing_the_callers_large_tensor_changes_nothing_stored(
    part: PartitionUnderTest, lengths: tuple[int, ...]
) -> None:
    rows, caller_tensor = rows_of_length(lengths), torch.cat(rows_of_length(lengths))
    offsets = torch.tensor([0, *lengths]).cumsum(0)
    ragged = torch.nested.nested_tensor_from_jagged(caller_tensor, offsets)
    part.put(IDS, x=caller_tensor.reshape(3, -1) if len(set(lengths)) == 1 else ragged)
    caller_tensor.fill_(9)
    part.expect_rows(IDS, x=rows)


@requirement("PUT-09", changes_results=True)
@pytest.mark.parametrize("lengths", LAYOUTS.values(), ids=LAYOUTS)
@pytest.mark.parametrize("read", ["get_samples", "get_data"])
def test_changing_large_rows_that_were_read_changes_nothing_stored(
    part: PartitionUnderTest, lengths: tuple[int, ...], read: str
) -> None:
    rows = rows_of_length(lengths)
    part.put(IDS, x=stack_or_nest(rows))
    meta = KVBatchMeta(part.id, None, IDS, fields=["x"])
    batch = part.get_data(meta) if read == "get_data" else part.get(IDS, "x")
    expect_column(batch, "x", rows)
    overwrite_first(batch, "x")
    expect_rows_but_first(batch, "x", rows)
    part.expect_rows(IDS, x=rows)
    part.expect_rows_by_meta(IDS, x=rows)


# -- PUT-10: the cost of a view depends on its size, not on its storage ---------------------------


#: Views of 1 MiB each in 512 MiB of memory, whose other pages are never touched.
SLICES: dict[str, Callable[[], torch.Tensor]] = {
    "of_rows": lambda: torch.empty(512 * 16, 64 * 1024, dtype=torch.uint8)[:16],
    "of_columns": lambda: torch.empty(16, 512 * 64 * 1024, dtype=torch.uint8)[:, : 64 * 1024],
    "of_tokens": lambda: torch.nested.nested_tensor_from_jagged(
        torch.empty(512 << 20, dtype=torch.uint8)[: 1 << 20], torch.arange(17) * (64 * 1024)
    ),
}


@requirement("PUT-10", scattered=False)
@pytest.mark.parametrize("make", SLICES.values(), ids=SLICES)
def test_a_slice_takes_no_longer_than_its_copy(
    part: PartitionUnderTest, make: Callable[[], torch.Tensor]
) -> None:
    view = make()
    ids = [f"r{i}" for i in range(16)]
    # The timed call includes the copy, as a plane may have to make one too.
    columns = {"slice": lambda: view, "copy": view.clone}
    # The fastest of several turns counts, because other load only adds time. The order of the two
    # puts alternates, because the first may pay for new memory. If the slice seems slow, more
    # turns follow: a real cost appears in every turn, other load does not.
    fastest = dict.fromkeys(columns, math.inf)
    deadline = time.monotonic() + part.timeouts.check / 4
    for turn in itertools.count():
        slow = fastest["slice"] > 5 * fastest["copy"]
        if turn >= 8 and not (slow and time.monotonic() < deadline):
            break
        for name in sorted(columns, reverse=turn % 2 == 0):
            started = time.perf_counter()
            part.put(ids, x=columns[name]())
            fastest[name] = min(fastest[name], time.perf_counter() - started)
    of_slice, of_copy = fastest["slice"], fastest["copy"]
    expect(
        of_slice <= 5 * of_copy,
        f"putting a 1 MiB slice of 512 MiB within 5x of its copy ({of_copy * 1e3:.1f} ms)",
        f"{of_slice * 1e3:.1f} ms",
    )


#: Views of 2 MiB in 16 rows of 64 MiB each; all pages are in use.
BASE = 64 << 20

VIEWS: dict[str, Callable[[], torch.Tensor]] = {
    "of_rows": lambda: torch.ones(16 * 32, BASE // (16 * 32), dtype=torch.uint8)[:16],
    "of_columns": lambda: torch.ones(16, BASE // 16, dtype=torch.uint8)[:, : BASE // (16 * 32)],
    "of_tokens": lambda: torch.nested.nested_tensor_from_jagged(
        torch.ones(BASE, dtype=torch.uint8)[: BASE // 32], torch.arange(17) * (BASE // (16 * 32))
    ),
}


@requirement("PUT-10", scattered=False)
@pytest.mark.parametrize("make", VIEWS.values(), ids=VIEWS)
def test_a_view_does_not_keep_its_base_in_memory(
    part: PartitionUnderTest, make: Callable[[], torch.Tensor]
) -> None:
    views = 4

    def put(name: str) -> None:
        part.put([f"{name}_{n}" for n in range(16)], x=make())

    def run(name: str) -> int:
        """Put views, wait for memory that is released late, and return the growth in bytes."""
        before = plane_bytes()
        for turn in range(views):
            put(f"{name}_{turn}")
        return settled_growth(before, limit, part.timeouts.settle)

    limit = views * BASE // 2
    put("first")
    grown: list[int] = []
    # A leak grows each time. A new process or a larger pool of the plane may add memory once.
    with few_objects_to_collect():
        while len(grown) < 3 and (not grown or grown[-1] >= limit):
            grown.append(run(f"run{len(grown)}"))
    expect(
        grown[-1] < limit,
        f"{views} views of {BASE >> 25} MiB to make the plane hold less than half of the "
        f"{views * BASE >> 20} MiB behind them",
        " MiB, and again ".join(f"{each >> 20}" for each in grown) + " MiB",
    )
