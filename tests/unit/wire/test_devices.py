"""The codec creates indices and padding on the device of the tokens.

The tests use torch's ``meta`` device, which has shapes but no data. A read of data fails, and so
does arithmetic with tensors on another device. Code that reads the lengths of a jagged leaf from
its offsets cannot be tested on it.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from tensordict import TensorDict
from torch import Tensor

from rlconform.wire import (
    materialize,
    pack_jagged_fields,
    pack_per_token_field,
    stack_or_nest,
)
from rlconform.wire.ragged_rows import RaggedRows, filled

META = torch.device("meta")
PADDED = torch.zeros(2, 4, 3, device=META)


def padded_batch() -> TensorDict:
    return TensorDict({"input_ids": torch.zeros(2, 4, device=META), "reward": torch.zeros(2)}, [2])


@pytest.mark.parametrize(
    "make",
    [
        lambda: pack_per_token_field(PADDED, [3, 1]),
        lambda: pack_per_token_field(PADDED, torch.tensor([3, 1])),
        lambda: pack_jagged_fields(TensorDict({"x": PADDED}, [2]), [3, 1], ["x"])["x"],
        lambda: stack_or_nest([PADDED[0, :3], PADDED[1, :1]]),
    ],
    ids=["by list", "by tensor", "batch", "rows"],
)
def test_a_jagged_field_is_made_where_its_tokens_are(make: Callable[[], Tensor]) -> None:
    nested = make()
    assert (nested.values().device, nested.offsets().device) == (META, META)
    assert nested.values().shape == (4, 3)


def test_each_column_of_a_batch_stays_on_its_own_device() -> None:
    packed = pack_jagged_fields(padded_batch(), [3, 1])
    assert packed["input_ids"].offsets().device == META
    assert packed["reward"].device.type == "cpu"


def test_a_step_is_read_where_its_columns_are() -> None:
    padded = materialize(padded_batch(), pad_to_seqlen=8)
    assert (padded["input_ids"].device, padded["input_ids"].shape) == (META, (2, 8))
    assert padded["reward"].device.type == "cpu"
    assert materialize(padded_batch(), "jagged")["input_ids"].offsets().device == META


def test_lengths_follow_the_tokens_and_stay_where_they_are_without_any() -> None:
    assert RaggedRows([3, 1], META).lengths.device == META
    assert RaggedRows([3, 1]).lengths.device.type == "cpu"
    assert filled((2, 3), 0, PADDED).device == META


def test_the_longest_row_is_known_without_a_look_at_the_data() -> None:
    """On a GPU, a read of the data waits for all queued kernels."""
    nested = pack_per_token_field(PADDED, [3, 1])
    assert torch.nested.to_padded_tensor(nested, 0.0).shape == (2, 3, 3)
