"""WIRE-01: any padded batch is restored after it passes through the codec and the plane."""

from __future__ import annotations

import torch

from rlconform.certify.assertions.expect import ContractViolation, row_difference
from rlconform.certify.plugin.markers import requirement
from rlconform.certify.properties.padded_strategies import PaddedBatch, padded_batches
from rlconform.certify.properties.runner import for_all
from rlconform.certify.scenarios.codec_round_trip import partition_client
from rlconform.certify.scenarios.partition import PartitionUnderTest
from rlconform.plane.columns import kv_first_write, read_columns


@requirement("WIRE-01")
@for_all(batch=padded_batches())
def test_any_padded_batch_comes_back_padded(part: PartitionUnderTest, batch: PaddedBatch) -> None:
    client = partition_client(part)
    meta = kv_first_write(
        client, batch.columns, batch.ids, part.id, token_fields=batch.token_fields
    )
    result = read_columns(
        client,
        meta,
        list(batch.columns),
        pad_value_dict=batch.pad_values,
        pad_to_seqlen=batch.width,
        token_fields=batch.token_fields,
    )
    for name, want in batch.expected.items():
        got = result.get(name)
        if not isinstance(got, torch.Tensor) or got.is_nested:
            raise ContractViolation(f"{name!r} as a dense tensor", f"a {type(got).__name__}")
        if difference := row_difference(got, want):
            raise ContractViolation(f"{name!r} {difference[0]}", difference[1])
