"""Batches are made from a seed, and consumers check their rows by checksums."""

from __future__ import annotations

import pytest
import torch
from tensordict import TensorDict

from rlconform.bench.batches import (
    describe,
    make_batch,
    make_tags,
    ragged_counts,
    read_order,
    row_checksums,
    sample_ids,
)
from rlconform.bench.plan import BatchShape, load_shape
from rlconform.wire import rows_of, same_rows, stack_or_nest

SHAPES = [load_shape(name).model_copy(update={"rows": 5}) for name in ("tiny", "llama8b", "vlm")]
SMALL = BatchShape.model_validate(
    {
        "name": "small",
        "title": "rows of one to four tokens",
        "rows": 7,
        "ragged": {"tokens": (1, 4)},
        "fields": {
            "ids": "int64 (N, tokens)",
            "routes": "uint8 (N, tokens, 2, 3)",
            "score": "float32 (N,)",
            "grid": "int64 (N, 3)",
        },
        "repetitions": 1,
        "quick": {"repetitions": 1},
    }
)
FIELDS = list(SMALL.fields)


def as_bytes(batch: TensorDict) -> int:
    return sum(row.nbytes for leaf in batch.values() for row in rows_of(leaf))


@pytest.mark.parametrize("shape", [*SHAPES, SMALL], ids=lambda shape: shape.name)
def test_a_batch_matches_its_description(shape: BatchShape) -> None:
    batch, described = make_batch(shape), describe(shape)
    assert batch.batch_size == (described.rows,)
    assert as_bytes(batch) == described.bytes
    for name, column in shape.columns.items():
        assert batch.get(name).dtype == getattr(torch, column.dtype)
        assert batch.get(name).is_nested == bool(column.ragged)


def test_every_process_makes_the_same_batch() -> None:
    one, other = make_batch(SMALL), make_batch(SMALL)
    assert all(same_rows(one.get(name), other.get(name)) for name in FIELDS)


def test_lengths_are_in_the_batch_and_in_the_tags() -> None:
    shape = SHAPES[1]
    lengths = ragged_counts(shape)["tokens"].tolist()
    assert len(set(lengths)) > 1
    assert make_batch(shape)["input_lengths"].tolist() == lengths
    assert [tags["input_lengths"] for tags in make_tags(shape)] == lengths


def test_ids_are_unique_and_the_read_order_is_shuffled() -> None:
    assert len(set(sample_ids("a", 9)) | set(sample_ids("b", 9))) == 18
    assert read_order(SMALL) != sorted(read_order(SMALL)) == list(range(7))


def test_checksums_ignore_the_layout() -> None:
    dense = torch.arange(12, dtype=torch.float32).view(3, 4)
    jagged = torch.nested.nested_tensor(list(dense), layout=torch.jagged)
    columns = [TensorDict({"x": leaf}, [3]) for leaf in (dense, jagged, dense.t().clone().t())]
    first, *others = (row_checksums(column, ["x"]) for column in columns)
    assert len(set(first)) == 3
    assert others == [first, first]


def test_checksums_follow_the_rows() -> None:
    batch = make_batch(SMALL)
    sums = row_checksums(batch, FIELDS)
    order = [3, 0, 6, 6]
    picked = {
        name: stack_or_nest([rows_of(batch.get(name))[row] for row in order]) for name in FIELDS
    }
    assert row_checksums(TensorDict(picked, [4]), FIELDS) == [sums[row] for row in order]


@pytest.mark.parametrize("name", FIELDS)
def test_a_changed_byte_changes_its_row_alone(name: str) -> None:
    batch = make_batch(SMALL)
    before = row_checksums(batch, FIELDS)
    rows_of(batch.get(name))[2].view(-1).view(torch.uint8)[0] ^= 1
    after = row_checksums(batch, FIELDS)
    assert [row for row in range(7) if before[row] != after[row]] == [2]


def test_checksums_depend_on_dtype_and_shape() -> None:
    zeros = torch.zeros(2, 4)
    leaves = [zeros, zeros.int(), zeros.view(2, 4, 1), zeros.view(2, 2, 2), zeros[:, :3]]
    sums = [row_checksums(TensorDict({"x": leaf}, [2]), ["x"])[0] for leaf in leaves]
    assert len(set(sums)) == len(leaves)


def test_a_missing_field_is_an_error() -> None:
    with pytest.raises(LookupError, match="'y'"):
        row_checksums(TensorDict({"x": torch.zeros(2)}, [2]), ["x", "y"])
