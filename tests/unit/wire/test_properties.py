"""Properties of conversions between padded and jagged layouts: they lose only padding."""

from __future__ import annotations

import pytest
import torch
from hypothesis import Verbosity, assume, given, settings
from hypothesis import strategies as st
from tensordict import TensorDict

from rlconform.certify.assertions.expect import row_difference, same_object
from rlconform.certify.plugin.markers import requirement
from rlconform.certify.properties.column_strategies import (
    DrawnColumn,
    dense_columns,
    jagged_columns,
    tensors,
)
from rlconform.certify.properties.padded_strategies import PaddedBatch, padded_batches
from rlconform.certify.properties.runner import SETTINGS
from rlconform.certify.properties.strategies import objects
from rlconform.wire import (
    materialize,
    object_column,
    object_rows,
    pack_jagged_fields,
    pack_per_token_field,
    rebuild_message_logs,
    response_from_nested,
    rows_of,
    stack_or_nest,
    strip_message_logs,
)

MANY = settings(SETTINGS, max_examples=40, print_blob=True, verbosity=Verbosity.normal)


@MANY
@given(batch=padded_batches())
def test_padded_to_jagged_and_back_is_lossless(batch: PaddedBatch) -> None:
    columns = TensorDict(batch.columns, batch_size=[len(batch.ids)])
    packed = pack_jagged_fields(columns, batch.columns["input_lengths"], batch.token_fields)
    read = materialize(packed, "padded", batch.pad_values, batch.width, batch.token_fields)
    assert sorted(read.keys()) == sorted(batch.expected)
    for name, want in batch.expected.items():
        assert row_difference(read.get(name), want) is None, name


@MANY
@given(batch=padded_batches())
def test_a_batch_that_is_jagged_already_stays_as_it_is(batch: PaddedBatch) -> None:
    columns = TensorDict(batch.columns, batch_size=[len(batch.ids)])
    once = pack_jagged_fields(columns, batch.columns["input_lengths"], batch.token_fields)
    twice = pack_jagged_fields(once, batch.columns["input_lengths"], batch.token_fields)
    read = materialize(twice, "jagged", token_fields=batch.token_fields)
    for name in batch.token_fields:
        for got, want in zip(rows_of(read.get(name)), rows_of(once.get(name)), strict=True):
            assert row_difference(got, want) is None, name


@requirement("WIRE-07")
@MANY
@given(batch=padded_batches(), short=st.integers(1, 3))
def test_a_field_that_is_too_narrow_never_passes(batch: PaddedBatch, short: int) -> None:
    lengths = batch.columns["input_lengths"]
    name = batch.token_fields[0]
    width = int(lengths.max()) - short
    narrow = batch.columns[name][:, : max(0, width)]
    assume(int(lengths.max()) > narrow.shape[1])  # no width is smaller than that of empty rows
    with pytest.raises(ValueError, match="per-token field"):
        pack_per_token_field(narrow, lengths)


@requirement("WIRE-05")
@MANY
@given(
    data=st.data(),
    lengths=st.lists(st.tuples(st.integers(1, 4), st.integers(0, 4)), min_size=1, max_size=4),
)
def test_a_response_slice_is_shifted_left_by_one(
    data: st.DataObject, lengths: list[tuple[int, int]]
) -> None:
    """The value of response token i is at i - 1, where it was predicted."""
    rows = [data.draw(tensors(torch.float32, (p + r,))) for p, r in lengths]
    values = torch.nested.nested_tensor(rows, layout=torch.jagged)
    sliced = rows_of(response_from_nested(values, [response for _, response in lengths]))
    for got, row, (prompt, response) in zip(sliced, rows, lengths, strict=True):
        assert row_difference(got, row[prompt - 1 : prompt - 1 + response]) is None


@MANY
@given(columns=st.integers(1, 4).flatmap(lambda n: dense_columns(n) | jagged_columns(n)))
def test_rows_make_their_column_again(columns: DrawnColumn) -> None:
    again = rows_of(stack_or_nest(rows_of(columns.value)))
    for got, want in zip(again, columns.rows, strict=True):
        assert row_difference(got, want) is None


@MANY
@given(values=st.lists(objects(), min_size=1, max_size=5))
def test_an_object_column_holds_its_values(values: list[object]) -> None:
    assert same_object(object_rows(object_column(values), len(values)), values)


@MANY
@given(logs=st.lists(st.lists(st.none() | st.integers(0, 4), max_size=3), min_size=1, max_size=3))
def test_message_logs_are_rebuilt(logs: list[list[int | None]]) -> None:
    """Each entry is a message's number of tokens, or None."""
    made = [
        [
            {"role": "user", "n": n}
            | ({} if n is None else {"token_ids": torch.arange(n) + 10 * i})
            for i, n in enumerate(log)
        ]
        for log in logs
    ]
    rows = [
        torch.cat([torch.arange(0), *(m["token_ids"] for m in log if "token_ids" in m)])
        for log in made
    ]
    input_ids = torch.nested.nested_tensor(rows, layout=torch.jagged)
    assert same_object(rebuild_message_logs(strip_message_logs(made), input_ids), made)
