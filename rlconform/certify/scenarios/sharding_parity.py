"""Split one batch among ranks in memory and through the plane; both splits must be equal.

    rollout ── rows in the order claimed ─────▶ shard_batch_for_dp ──▶ rank batches   in memory
       └── kv_first_write ──▶ plane ── claim ──▶ shard_meta_for_dp ──▶ read_columns  through it

A plane may return claimed rows in any order, so the split in memory uses the order of the claim. It
takes only the order from the plane: rows and lengths come from the rollout, by id. A plane that
returns wrong bytes, lengths or tags for a row then gives another split.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from tensordict import TensorDict, TensorDictBase

from rlconform.certify.assertions.expect import (
    ContractViolation,
    expect,
    expect_column,
    expect_equal,
    rows_in,
)
from rlconform.certify.recording.shorten import shorten
from rlconform.certify.scenarios.partition import PartitionUnderTest
from rlconform.certify.scenarios.rollouts import SyntheticRollout
from rlconform.contract import DataPlaneClient, KVBatchMeta
from rlconform.contract.fields import GLOBAL_FORWARD_PAD_SEQLEN, INPUT_IDS, PER_TOKEN_FIELDS
from rlconform.grpo.trainers.legacy_sharding import RankBatch, shard_batch_for_dp
from rlconform.plane.columns import kv_first_write, read_columns
from rlconform.plane.packing import PACKING_ALGORITHMS
from rlconform.plane.sharding import DynamicBatching, SequencePacking, shard_meta_for_dp

TASK = "train"
DP_WORLD = 4

#: Most tokens of a micro-batch, twice as many as the longest rows of a step have.
MICRO_BATCH_TOKENS = 8192

#: Rows of a micro-batch are padded to a multiple of this many tokens.
ROUND = 64

#: Every way of forming micro-batches, as arguments of both sharding functions.
_pack = partial(SequencePacking, MICRO_BATCH_TOKENS, sequence_length_pad_multiple=ROUND)
PACKINGS: dict[str, dict[str, Any]] = {
    "no_packing": {},
    **{name: {"sequence_packing": _pack(name)} for name in PACKING_ALGORITHMS},
    "largest_first": {"sequence_packing": _pack(microbatch_order="largest_first")},
    "dynamic_batching": {
        "dynamic_batching": DynamicBatching(MICRO_BATCH_TOKENS, sequence_length_round=ROUND)
    },
}


class Unreadable(ContractViolation):
    """A read returned something that is no batch of the columns that were put."""


def split_both_ways(
    part: PartitionUnderTest, rollout: SyntheticRollout, batch_size: int, packing: Mapping[str, Any]
) -> Iterator[tuple[str, KVBatchMeta, RankBatch]]:
    """Write the rollout, claim it, and split it in memory and through the plane.

    Yield for each of ``DP_WORLD`` ranks its name, its meta from the claim, and its rows and packing
    metadata from the rollout.
    """
    first_write(part, part.client, rollout)
    ids, columns = rollout.sample_ids, rollout.columns
    claimed = claim_rows(part, field_names(columns), len(ids), columns[INPUT_IDS].shape[1])
    lengths = dict(zip(ids, rollout.lengths, strict=True))
    in_memory = shard_batch_for_dp(
        reorder_rows(columns, ids, claimed.sample_ids),
        [lengths[sample_id] for sample_id in claimed.sample_ids],
        DP_WORLD,
        batch_size,
        **packing,
    )
    shards, _ = split_claim(claimed, DP_WORLD, batch_size, **packing)
    for rank, (shard, batch) in enumerate(zip(shards, in_memory, strict=True)):
        yield f"rank {rank}", shard, batch


def first_write(
    part: PartitionUnderTest, client: DataPlaneClient, rollout: SyntheticRollout, **columns: Any
) -> None:
    """Write the rollout and further columns with ``kv_first_write`` through ``client``."""
    part.note_ids(rollout.sample_ids)
    batch = {**dict(rollout.columns.items()), **columns}
    kv_first_write(client, batch, rollout.sample_ids, part.id, tags=rollout.tags)


def claim_rows(
    part: PartitionUnderTest, fields: Sequence[str], count: int, width: int = 0
) -> KVBatchMeta:
    """Claim ``count`` ready rows; the meta carries ``width``, to which every reader pads."""
    meta = KVBatchMeta.of(part.claim(TASK, fields, count, blocking=True))
    expect(meta.size == count, f"a blocking claim to come with all {count} ready rows", meta.size)
    expect(meta.sequence_lengths is not None, "the lengths of rows that carry them as tags", "None")
    return replace(meta, extra_info={GLOBAL_FORWARD_PAD_SEQLEN: width})


def split_claim(
    meta: KVBatchMeta, dp_world: int, batch_size: int | None = None, **packing: Any
) -> tuple[list[KVBatchMeta], list[int]]:
    """Split claimed rows with ``shard_meta_for_dp``; rows that can't be split are a violation."""
    try:
        return shard_meta_for_dp(meta, dp_world, batch_size, **packing)
    except ValueError as refusal:
        raise ContractViolation(
            f"rows that split among {dp_world} ranks, as those put do",
            f"{meta.size} of lengths {shorten(str(meta.sequence_lengths))}: {refusal}",
        ) from refusal


def read_shard(
    client: DataPlaneClient, shard: KVBatchMeta, fields: Sequence[str], pads: Mapping[str, complex]
) -> TensorDict:
    """Read the rows of a rank's shard, padded to the width of the step.

    Raises:
        Unreadable: The read returned something else.
        LookupError: The plane says that a row or a field does not exist.
    """
    try:
        return read_columns(
            client,
            shard,
            fields,
            pad_value_dict=pads,
            pad_to_seqlen=shard.extra_info[GLOBAL_FORWARD_PAD_SEQLEN],
            token_fields=PER_TOKEN_FIELDS,  # a plane may return equal rows as a jagged column
        )
    except (TypeError, ValueError, AttributeError) as error:
        raise Unreadable(
            f"columns {list(fields)} that pad to the step's width",
            shorten(f"{type(error).__name__}: {error}"),
        ) from error


def reorder_rows(batch: TensorDict, ids: Sequence[str], wanted: Sequence[str]) -> TensorDict:
    """Return the rows of ``batch`` (``ids``) in the order ``wanted``; other ids are a violation."""
    index = {sample_id: row for row, sample_id in enumerate(ids)}
    unknown = [sample_id for sample_id in wanted if sample_id not in index]
    expect(not unknown, "only rows that were put", unknown)
    return batch[[index[sample_id] for sample_id in wanted]]


def field_names(batch: TensorDictBase) -> list[str]:
    """Return the names of the batch's columns."""
    return [str(name) for name in batch.keys()]  # noqa: SIM118 - a TensorDict iterates its rows


def expect_batch(batch: TensorDictBase, expected: TensorDict, whose: str) -> None:
    """Expect exactly these columns in ``batch``, each equal in shape, dtype and bytes."""
    names = field_names(expected)
    expect_equal(sorted(field_names(batch)), sorted(names), f"columns of {whose}:")
    expect_equal(tuple(batch.batch_size), tuple(expected.batch_size), f"batch size of {whose}:")
    for name in names:
        try:
            expect_column(batch, name, rows_in(expected, name))
        except ContractViolation as violation:
            raise ContractViolation(f"{whose}: {violation.expected}", violation.got) from violation
