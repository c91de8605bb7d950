"""``PartitionIndex``: order, groups, writers of rows, and errors."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from rlconform.backends.index import SLACK_BYTES, Extent, Index, Usage
from rlconform.contract import (
    CapacityExceeded,
    UnknownField,
    UnknownPartition,
    UnknownSample,
    UnknownTask,
)

X = frozenset("x")
XY = frozenset("xy")


def index_of(*tasks: str, group_size: int = 1, capacity: int | None = None) -> Index:
    index = Index(capacity)
    index.register("p", tasks, group_size)
    return index


def put(index: Index, ids: Sequence[str], fields: str = "x", writer: str = "me") -> None:
    extents = {name: Extent("int64", 8) for name in fields}
    index.commit("p", ids, extents, None, None if fields else [{}] * len(ids), writer)


def claim(index: Index, required: frozenset[str], rows: int) -> list[str]:
    return [row.sample_id for row in index.partition("p").claim("t", required, rows)]


def test_a_row_that_no_claim_has_looked_at_waits_behind_older_ones() -> None:
    """One put writes the last field of this row and of a row that a claim has scanned."""
    index = index_of("t")
    put(index, ["passed over"])
    put(index, ["first"], "xy")
    put(index, ["older"], "xy")
    put(index, ["younger"])
    assert claim(index, XY, 1) == ["first"]
    put(index, ["passed over", "younger"], "y")
    assert claim(index, XY, 2) == ["passed over", "older"]
    assert claim(index, XY, 2) == ["younger"]


@pytest.mark.parametrize("group_size", [2, 3, 4, 5])
def test_rows_without_a_generation_make_groups_in_the_order_they_come(group_size: int) -> None:
    index = index_of("t", group_size=group_size)
    rows = [f"row {n}" for n in range(3 * group_size)]
    for row in rows:
        put(index, [row])
    for start in range(0, len(rows), group_size):
        assert claim(index, X, group_size) == rows[start : start + group_size]


def test_a_row_of_tags_alone_becomes_its_first_writers() -> None:
    index = index_of("t")
    put(index, ["a", "b"], "", writer="tagger")
    put(index, ["a"], writer="producer")
    partition = index.partition("p")
    assert partition.rows_of("producer") == ["a"]
    assert partition.rows_of("tagger") == ["b"]
    index.clear("p", None, "producer")
    assert partition.size == 1


def test_a_put_of_no_rows_produces_nothing() -> None:
    index = index_of("t")
    put(index, [])
    assert not index.all_claimed("p", ["t"])


def test_usage_counts_rows_blocks_and_bytes() -> None:
    index = index_of("t")
    assert index.usage() == Usage(rows=0, blocks=0, live_bytes=0, wasted_bytes=0)
    put(index, ["a", "b", "c"])
    put(index, ["d"], "xy")
    assert index.usage() == Usage(rows=4, blocks=2, live_bytes=5 * 16, wasted_bytes=0)
    index.clear("p", ["a"], "me")
    assert index.usage() == Usage(rows=3, blocks=2, live_bytes=4 * 16, wasted_bytes=16)


def test_mistakes_name_what_is_not_there() -> None:
    index = index_of("t", "u", capacity=3)
    put(index, ["a", "b"])
    with pytest.raises(UnknownPartition, match=r"^partition 'q' was never registered nor written$"):
        index.partition("q")
    with pytest.raises(UnknownTask, match=r"^task 'v' is not registered: one of \['t', 'u'\]$"):
        index.partition("p").claim("v", X, 1)
    with pytest.raises(UnknownSample, match=r"^no sample 'c': never put, or cleared$"):
        index.locate("p", ["a", "c"], ["x"])
    with pytest.raises(UnknownField, match=r"^field 'y' is not produced for sample 'a'$"):
        index.locate("p", ["a"], ["x", "y"])
    with pytest.raises(CapacityExceeded, match=r"^2 new rows beside 2: the plane holds 3 at most"):
        put(index, ["b", "c", "d"])


def test_a_block_has_its_payload_until_it_is_gone() -> None:
    index = index_of("t")
    index.commit("p", ["a"], {"x": Extent("int64", 8)}, "where a lies", None, "me")
    (source,) = index.locate("p", ["a"], ["x"])
    number = source.block.number
    assert index.payload(number) == "where a lies"
    del source
    index.clear("p", ["a"], "me")
    assert index.payload(number) is None
    assert index.survivors(number) == (None, {})


def test_a_due_block_whose_partition_is_forgotten_has_no_survivors() -> None:
    index = index_of("t")
    index.commit("p", ["a", "b"], {"x": Extent("int64", SLACK_BYTES)}, "bytes", None, "me")
    (held_by_a_reader,) = index.locate("p", ["b"], ["x"])
    (due,) = index.clear("p", ["a"], "me")
    index.clear_all()
    assert held_by_a_reader.block.number == due
    assert index.survivors(due) == (None, {})
