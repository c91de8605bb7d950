"""Blocks of an index: they count wasted bytes, and rows may change during a compaction."""

from __future__ import annotations

import gc
import subprocess
import sys
import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from rlconform.backends.index import CompactedBlock, Extent, Index
from rlconform.backends.index.block import SLACK_BYTES, Block

ROW_BYTES = SLACK_BYTES  # one cleared row wastes as much as a block may
IDS = list("abcd")


class Payload:
    """A payload that tests watch by a weak reference."""


@pytest.fixture
def index() -> Index:
    return Index()


def commit(
    index: Index, ids: Sequence[str], payload: Any, fields: str = "x", size: int = ROW_BYTES
) -> list[int]:
    extents = {name: Extent("int64", size) for name in fields}
    return index.commit("p", ids, extents, payload, None, "me")


def clear(index: Index, ids: Sequence[str]) -> list[int]:
    return index.clear("p", ids, "me")


def rewritten(
    live: dict[frozenset[str], list[int]], payload: Any, size: int = ROW_BYTES
) -> list[CompactedBlock]:
    return [
        CompactedBlock(rows, {name: Extent("int64", size) for name in names}, payload)
        for names, rows in live.items()
    ]


def places(index: Index, ids: Sequence[str], field: str = "x") -> list[tuple[Any, int]]:
    """For each id, the payload with its field and the place there."""
    sources = index.locate("p", ids, [field])
    found = [
        (position, (source.block.payload, place))
        for source in sources
        for place, position in zip(source.indexes, source.positions, strict=True)
    ]
    assert sorted(position for position, _ in found) == list(range(len(ids)))
    return [place for _, place in sorted(found)]


def only_block(index: Index, sample_id: str, field: str = "x") -> Block:
    (source,) = index.locate("p", [sample_id], [field])
    return source.block


# Bytes


def test_bytes_are_counted_row_by_row_and_field_by_field() -> None:
    extents = {"long": Extent("f", np.array([10, 0, 300])), "flat": Extent("f", 4)}
    block = Block(0, "p", ["a", "b", "c"], extents, None)
    whole = 310 + 3 * 4 + 6 * 8  # each value counts 8 bytes in addition to its size
    assert (block.live_bytes, block.wasted_bytes) == (whole, 0)
    block.release(frozenset(["long"]), [2])
    assert (block.live_bytes, block.wasted_bytes) == (whole - 308, 308)
    block.release(frozenset(["long", "flat"]), [0, 1])
    assert (block.live_bytes, block.wasted_bytes) == (12, whole - 12)
    block.release(frozenset(["flat"]), [2])
    assert (block.live_bytes, block.wasted_bytes) == (0, whole)


def test_counting_leaves_the_callers_sizes_alone() -> None:
    sizes = np.array([1, 2])
    block = Block(0, "p", ["a", "b"], {"x": Extent("f", sizes), "y": Extent("f", sizes)}, None)
    block.release(frozenset(["x"]), [0, 1])
    assert sizes.tolist() == [1, 2]


@pytest.mark.parametrize(
    ("size", "released", "due"),
    [
        (SLACK_BYTES, 1, False),  # three other rows are live
        (SLACK_BYTES, 2, True),
        (SLACK_BYTES, 4, False),  # nothing is left to copy
        (SLACK_BYTES // 4, 3, False),  # too little for a compaction
    ],
)
def test_a_block_is_due_when_waste_outgrows_what_is_live(
    size: int, released: int, due: bool
) -> None:
    block = Block(0, "p", IDS, {"x": Extent("f", size)}, None)
    block.release(frozenset("x"), range(released))
    assert block.due is due


def test_rows_without_bytes_are_live_all_the_same(index: Index) -> None:
    commit(index, IDS, "empty", size=0)
    assert only_block(index, "a").live_bytes > 0


# The end of a block


@pytest.mark.parametrize("end", ["cleared", "overwritten", "cleared by its writer", "forgotten"])
def test_a_block_without_rows_is_gone_with_its_payload(index: Index, end: str) -> None:
    payload = Payload()
    alive = weakref.ref(payload)
    index.register("p", ["t", "u"], 1)
    commit(index, IDS, payload)
    index.partition("p").claim("t", frozenset("x"), 2)  # queues that contain some of the rows
    index.partition("p").claim("u", frozenset("xy"), 2)
    del payload
    gc.disable()  # a cycle would keep it until a collection
    try:
        if end == "cleared":
            clear(index, IDS[:1])
            assert alive() is not None
            clear(index, IDS)
        elif end == "overwritten":
            commit(index, IDS[1:], None)
            assert alive() is not None
            commit(index, IDS[:1], None)
        elif end == "forgotten":
            index.clear_all()
        else:
            index.clear("p", None, "other")
            assert alive() is not None
            index.clear("p", None, "me")
        assert alive() is None
    finally:
        gc.enable()


def test_a_field_written_anew_leaves_the_others_where_they_are(index: Index) -> None:
    commit(index, IDS, "old", "xy")
    assert commit(index, IDS, "new", "x") == [0]
    assert places(index, IDS, "x") == [("new", place) for place in range(4)]
    assert places(index, IDS, "y") == [("old", place) for place in range(4)]
    assert index.survivors(0) == ("old", {frozenset("y"): [0, 1, 2, 3]})


# Compaction


def test_rewritten_rows_lie_in_the_new_block_and_the_old_one_goes(index: Index) -> None:
    old = Payload()
    alive = weakref.ref(old)
    commit(index, IDS, old)
    (number,) = clear(index, ["a", "c", "d"])
    live = index.survivors(number)[1]
    assert live == {frozenset("x"): [1]}
    del old
    index.move(number, rewritten(live, "new"))
    assert alive() is None
    assert places(index, ["b"]) == [("new", 0)]
    block = only_block(index, "b")
    assert (block.live_bytes, block.wasted_bytes) == (ROW_BYTES + 8, 0)
    assert index.survivors(number) == (None, {})
    index.move(number, rewritten(live, "again"))
    assert places(index, ["b"]) == [("new", 0)]


def begin(index: Index) -> tuple[int, dict[frozenset[str], list[int]]]:
    """Rows a to f of one block that is due for compaction, with a, b and c live."""
    commit(index, [*IDS, "e", "f"], "old", "xy", size=ROW_BYTES)
    (number,) = clear(index, ["d", "e", "f"])
    payload, live = index.survivors(number)
    assert (payload, live) == ("old", {frozenset("xy"): [0, 1, 2]})
    return number, live


def test_a_row_cleared_while_it_is_rewritten_stays_cleared(index: Index) -> None:
    number, live = begin(index)
    clear(index, ["b"])
    index.move(number, rewritten(live, "new"))
    with pytest.raises(LookupError):
        index.locate("p", ["b"], ["x"])
    assert places(index, ["a", "c"]) == [("new", 0), ("new", 2)]
    block = only_block(index, "a")
    assert block.live_bytes == 2 * block.wasted_bytes == 4 * (ROW_BYTES + 8)


def test_a_row_put_again_while_it_is_rewritten_keeps_its_new_values(index: Index) -> None:
    number, live = begin(index)
    clear(index, ["b"])
    commit(index, ["b"], "newest", "x")
    index.move(number, rewritten(live, "new"))
    assert places(index, ["a", "b", "c"]) == [("new", 0), ("newest", 0), ("new", 2)]
    with pytest.raises(LookupError):
        index.locate("p", ["b"], ["y"])


def test_a_field_overwritten_while_it_is_rewritten_keeps_its_new_value(index: Index) -> None:
    number, live = begin(index)
    commit(index, ["c", "a"], "newest", "x")
    index.move(number, rewritten(live, "new"))
    assert places(index, ["a", "b", "c"], "x") == [("newest", 1), ("new", 1), ("newest", 0)]
    assert places(index, ["a", "b", "c"], "y") == [("new", 0), ("new", 1), ("new", 2)]
    block = only_block(index, "b")
    assert (block.live_bytes, block.wasted_bytes) == (4 * (ROW_BYTES + 8), 2 * (ROW_BYTES + 8))


def test_a_field_added_while_a_row_is_rewritten_stays(index: Index) -> None:
    number, live = begin(index)
    commit(index, ["a"], "added", "z")
    index.move(number, rewritten(live, "new"))
    assert places(index, ["a"], "x") == [("new", 0)]
    assert places(index, ["a"], "z") == [("added", 0)]


def test_rows_that_all_went_while_they_were_rewritten_leave_no_block(index: Index) -> None:
    number, live = begin(index)
    reader = index.locate("p", ["a"], ["x"])  # keeps the old block
    clear(index, ["a", "b", "c"])
    payload = Payload()
    alive = weakref.ref(payload)
    parts = rewritten(live, payload)
    assert index.move(number, parts) == []
    del parts, payload
    assert alive() is None
    assert reader[0].block.payload == "old"


def test_of_two_rewritings_of_a_block_one_counts(index: Index) -> None:
    number, live = begin(index)
    reader = index.locate("p", ["a"], ["x"])  # keeps the old block, as a slow read does
    index.move(number, rewritten(live, "first"))
    index.move(number, rewritten(live, "second"))
    assert places(index, ["a", "b", "c"]) == [("first", 0), ("first", 1), ("first", 2)]
    assert only_block(index, "a").wasted_bytes == 0
    assert reader[0].block.payload == "old"


def test_a_new_block_whose_rows_went_meanwhile_is_due_at_once(index: Index) -> None:
    """Otherwise its waste would stay until another call changes its rows."""
    number, live = begin(index)
    clear(index, ["a", "b"])
    (due,) = index.move(number, rewritten(live, "new"))
    assert index.survivors(due) == ("new", {frozenset("xy"): [2]})
    assert index.move(due, rewritten({frozenset("xy"): [2]}, "newer")) == []
    assert places(index, ["c"]) == [("newer", 0)]


def test_a_block_that_a_reader_still_holds_may_outlive_its_partition(index: Index) -> None:
    number, live = begin(index)
    reader = index.locate("p", ["a"], ["x"])
    index.clear_all()
    assert not index.survivors(number)[1]
    assert index.move(number, rewritten(live, "new")) == []
    assert reader[0].block.payload == "old"


def test_rows_of_the_same_name_elsewhere_are_not_moved(index: Index) -> None:
    number, live = begin(index)
    index.commit("q", IDS, {"x": Extent("int64", 8)}, "elsewhere", None, "me")
    index.move(number, rewritten(live, "new"))
    (source,) = index.locate("q", IDS, ["x"])
    assert source.block.payload == "elsewhere"


def test_an_index_needs_no_torch() -> None:
    """A separate process for an index or a store should start quickly."""
    script = (
        "import sys\n"
        "import rlconform.backends.index, rlconform.backends.columns.column_block\n"
        "import rlconform.backends.columns.gather\n"
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0


def test_a_block_is_written_anew_by_one_process_and_again_if_that_fails(index: Index) -> None:
    ids = [f"r{n}" for n in range(16)]
    commit(index, ids, "old")
    assert clear(index, ids[:7]) == []
    (number,) = clear(index, ids[7:8])
    payload, live = index.survivors(number)
    assert payload == "old"
    assert sum(map(len, live.values())) == 8
    # one process compacts it, so no other process gets its rows
    assert index.survivors(number) == (None, {})
    assert clear(index, ids[8:10]) == []
    # the first process never moved the rows
    assert clear(index, ids[10:13]) == [number]
    payload, live = index.survivors(number)
    assert sum(map(len, live.values())) == 3


def test_an_emptied_partition_keeps_nothing(index: Index) -> None:
    index.register("p", ["t"], 1)
    for turn in range(20):
        field = f"f{turn}"
        index.commit("p", IDS, {field: Extent("int64", 8)}, "payload", [{"n": turn}] * 4, "me")
        partition = index.partition("p")
        assert len(partition.claim("t", frozenset([field]), 4)) == 4
        clear(index, IDS)
        assert not partition._queues._log
        assert not partition._queues._queues
        assert not partition._written
