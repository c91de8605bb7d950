"""SHARD: claimed rows are split among ranks, and results are put back in the original order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from random import Random
from typing import Any

import pytest
from torch import Tensor

from rlconform.certify.assertions.expect import expect, expect_column, expect_equal, rows_in
from rlconform.certify.plugin.markers import requirement
from rlconform.certify.scenarios.labeled_rows import labeled_rows
from rlconform.certify.scenarios.partition import PartitionUnderTest, batch_of
from rlconform.certify.scenarios.sharding_parity import DP_WORLD, PACKINGS, claim_rows, split_claim
from rlconform.contract import KVBatchMeta
from rlconform.contract.fields import INPUT_LENGTHS
from rlconform.plane import write_columns
from rlconform.wire import stack_or_nest

IDS = [f"u{prompt}_g{row}" for prompt in range(16) for row in range(4)]
LENGTHS = dict(zip(IDS, Random(0).choices(range(256, 4097), k=len(IDS)), strict=True))
GLOBAL_BATCH = 32

packed = pytest.mark.parametrize("packing", PACKINGS.values(), ids=PACKINGS)


def claimed(part: PartitionUnderTest) -> KVBatchMeta:
    """Put and claim labeled rows ``x``; their length tags determine the split."""
    part.put_labeled(IDS, "x", tags=[{INPUT_LENGTHS: LENGTHS[i]} for i in IDS])
    return claim_rows(part, ["x"], len(IDS))


def rows_read(part: PartitionUnderTest, shard: KVBatchMeta, field: str) -> list[Tensor]:
    """Read the shard's rows of ``field`` and check that they are the rows put as ``x``."""
    batch = part.get(shard.sample_ids, field)
    expect_column(batch, field, labeled_rows(part.id, shard.sample_ids, "x"))
    return rows_in(batch, field)


@requirement("SHARD-01")
@packed
def test_each_claimed_row_goes_to_exactly_one_rank(
    part: PartitionUnderTest, packing: Mapping[str, Any]
) -> None:
    meta = claimed(part)
    shards, _ = split_claim(meta, DP_WORLD, GLOBAL_BATCH, **packing)
    for shard in shards:
        part.expect_labeled(shard.sample_ids)
    read = Counter(sample_id for shard in shards for sample_id in shard.sample_ids)
    for what, ids in (("claimed", meta.sample_ids), ("put", IDS)):
        expected = Counter(ids)
        expect(
            read == expected,
            f"the ranks to have the rows {what}, each once",
            f"missing {sorted((expected - read).elements())}, "
            f"too many {sorted((read - expected).elements())}",
        )


@requirement("SHARD-02")
@packed
def test_write_backs_are_restored_to_the_order_claimed(
    part: PartitionUnderTest, packing: Mapping[str, Any]
) -> None:
    meta = claimed(part)
    shards, inverse = split_claim(meta, DP_WORLD, GLOBAL_BATCH, **packing)
    for shard in shards:  # a rank writes back what it read, so a wrong row shows its origin
        write_columns(part.client, shard, {"y": stack_or_nest(rows_read(part, shard, "x"))})
    outputs = [row for shard in shards for row in rows_read(part, shard, "y")]
    expect_equal(sorted(inverse), list(range(len(outputs))), "the inverse permutation, sorted:")
    reordered = batch_of({"y": stack_or_nest([outputs[place] for place in inverse])}, len(IDS))
    expected = labeled_rows(part.id, meta.sample_ids, "x")
    expect_column(reordered, "y", expected)
    part.expect_rows(meta.sample_ids, y=expected)
