"""Sharding in memory gives every rank the rows of its plan, unchanged and with equal width."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tensordict import NonTensorData, TensorDict

from rlconform.certify.assertions.raw_bytes import as_bytes
from rlconform.contract import KVBatchMeta
from rlconform.contract.fields import ELEM_COUNTS_PER_GB, MICRO_BATCH_INDICES, MICRO_BATCH_LENGTHS
from rlconform.grpo.trainers.legacy_sharding import shard_batch_for_dp
from rlconform.plane.sharding import DynamicBatching, SequencePacking, shard_meta_for_dp
from rlconform.wire import object_column, object_rows, pack_per_token_field

PACKINGS: list[dict[str, Any]] = [
    {},
    {"sequence_packing": SequencePacking(64, "first_fit_decreasing")},
    {"dynamic_batching": DynamicBatching(64, sequence_length_round=8)},
]


def numbered(n: int, **columns: Any) -> TensorDict:
    """A batch whose row i has the value i."""
    return TensorDict({"row": torch.arange(n), **columns}, batch_size=[n])


def rows_by_rank(
    n: int, lengths: list[int], dp_world: int, *args: Any, **kw: Any
) -> list[list[int]]:
    ranks = shard_batch_for_dp(numbered(n), lengths, dp_world, *args, **kw)
    return [batch["row"].tolist() for batch, _ in ranks]


def test_without_packing_ranks_take_turns_at_runs_of_rows() -> None:
    assert rows_by_rank(8, [1] * 8, 2) == [[0, 1, 2, 3], [4, 5, 6, 7]]


def test_global_batches_are_split_before_ranks() -> None:
    assert rows_by_rank(8, [1] * 8, 2, 4) == [[0, 1, 4, 5], [2, 3, 6, 7]]


def test_packed_rows_stand_in_the_order_of_their_micro_batches() -> None:
    lengths = [6, 2, 5, 3, 4, 4, 7, 1]
    packing = SequencePacking(8, "concatenative")
    (first, plan), (second, _) = shard_batch_for_dp(
        numbered(8), lengths, 2, sequence_packing=packing
    )
    assert first["row"].tolist() == [0, 1, 4, 5]  # bins [0, 1], [2, 3], [4, 5], [6, 7] in turn
    assert second["row"].tolist() == [2, 3, 6, 7]
    assert plan == {
        MICRO_BATCH_INDICES: [[[0, 2], [2, 4]]],
        MICRO_BATCH_LENGTHS: [[8, 8]],
        ELEM_COUNTS_PER_GB: [4],
    }


def test_dynamic_batching_deals_rows_by_length() -> None:
    lengths = [6, 2, 5, 3]
    ranks = rows_by_rank(4, lengths, 2, dynamic_batching=DynamicBatching(16))
    assert ranks == [[1, 2], [3, 0]]  # shortest first: 2, 3 tokens, then 5, 6


@pytest.mark.parametrize(
    "dtype", [torch.bool, torch.int64, torch.int32, torch.bfloat16, torch.float32], ids=str
)
def test_rows_keep_dtype_shape_and_bytes(dtype: torch.dtype) -> None:
    bits = torch.randint(0, 2, (4, 5, 3, 8), generator=torch.Generator().manual_seed(0))
    column = bits.to(dtype)
    if dtype.is_floating_point:
        column[1, 0, 0, :2] = torch.tensor([float("nan"), -0.0], dtype=dtype)
    lengths = [1, 9, 3, 4]
    ranks = shard_batch_for_dp(
        numbered(4, x=column), lengths, 2, dynamic_batching=DynamicBatching(9)
    )
    for batch, _ in ranks:
        for row, got in zip(batch["row"], batch["x"], strict=True):
            assert (got.dtype, got.shape) == (dtype, column.shape[1:])
            assert torch.equal(as_bytes(got), as_bytes(column[row]))


@pytest.mark.parametrize("form", ["stack", "array in a NonTensorData"])
def test_object_columns_go_along(form: str) -> None:
    values = [{"i": 0}, None, "text", [3]]
    array = np.empty(4, dtype=object)
    array[:] = values
    leaf = object_column(values) if form == "stack" else NonTensorData(array, batch_size=[4])
    ranks = shard_batch_for_dp(numbered(4, log=leaf), [4, 3, 2, 1], 2)
    got = [object_rows(batch.get("log"), 2) for batch, _ in ranks]
    assert got == [values[:2], values[2:]]


def test_ranks_share_no_memory_with_the_batch() -> None:
    whole = numbered(4, x=torch.zeros(4, 2))
    for batch, _ in shard_batch_for_dp(whole, [1] * 4, 2):
        batch["x"].fill_(1)
    assert whole["x"].sum() == 0


@pytest.mark.parametrize("packing", PACKINGS, ids=["none", "packed", "dynamic"])
@given(st.lists(st.integers(1, 64), min_size=1, max_size=12), st.integers(1, 3))
def test_ranks_get_the_rows_of_their_metas(
    packing: dict[str, Any], of_a_rank: list[int], dp_world: int
) -> None:
    lengths = of_a_rank * dp_world
    meta = KVBatchMeta(
        "train", "train", [str(row) for row in range(len(lengths))], sequence_lengths=lengths
    )
    shards, inverse = shard_meta_for_dp(meta, dp_world, **packing)
    ranks = shard_batch_for_dp(numbered(len(lengths)), lengths, dp_world, **packing)
    rows = [batch["row"].tolist() for batch, _ in ranks]
    assert rows == [[int(sample_id) for sample_id in shard.sample_ids] for shard in shards]
    assert [plan for _, plan in ranks] == [shard.extra_info for shard in shards]
    outputs = [row for of_rank in rows for row in of_rank]
    assert [outputs[place] for place in inverse] == list(range(len(lengths)))


def test_lengths_of_other_rows_are_refused() -> None:
    with pytest.raises(ValueError, match="3 lengths"):
        shard_batch_for_dp(numbered(4), [1] * 3, 2)


def test_a_batch_that_does_not_divide_is_refused() -> None:
    with pytest.raises(ValueError, match="split evenly"):
        shard_batch_for_dp(numbered(3), [1] * 3, 2)


def test_a_jagged_column_is_refused() -> None:
    jagged = pack_per_token_field(torch.zeros(2, 3), [1, 3])
    with pytest.raises(TypeError, match="'x'"):
        shard_batch_for_dp(numbered(2, x=jagged), [1, 3], 2)


def test_a_leaf_that_is_no_column_is_refused() -> None:
    with pytest.raises(TypeError):
        shard_batch_for_dp(numbered(2, x=TensorDict({}, batch_size=[2])), [1, 3], 2)
