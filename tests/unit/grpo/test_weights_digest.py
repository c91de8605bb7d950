"""Equal weights have equal digests, whatever their layout in memory; any difference shows."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from rlconform.grpo.models import TINY_MODELS, tiny_model, weights_digest

DTYPES = [torch.float32, torch.bfloat16, torch.float16, torch.int64, torch.bool]


def state() -> dict[str, Tensor]:
    return {
        "b": torch.arange(6.0).reshape(2, 3),
        "a": torch.tensor(1.5, dtype=torch.bfloat16),
        "none": torch.empty(0, 4),
    }


def test_order_strides_and_copies_do_not_matter() -> None:
    one = state()
    transposed = {**one, "b": one["b"].T.contiguous().T}
    assert not transposed["b"].is_contiguous()
    slices = {**one, "b": torch.cat([one["b"], one["b"]], dim=1)[:, :3]}
    for other in (dict(reversed(one.items())), transposed, slices, state()):
        assert weights_digest(other) == weights_digest(one)


@pytest.mark.parametrize(
    "changed",
    [
        {"b": torch.arange(6.0).reshape(3, 2)},
        {"b": torch.arange(6.0).reshape(2, 3).double()},
        {"b": torch.arange(6.0).reshape(2, 3).flip(0)},
        {"a": torch.tensor(-1.5, dtype=torch.bfloat16)},
        {"none": torch.empty(0, 5)},
        {"more": torch.empty(0)},
    ],
)
def test_shapes_dtypes_values_and_names_matter(changed: dict[str, Tensor]) -> None:
    assert weights_digest({**state(), **changed}) != weights_digest(state())


def test_swapped_tensors_differ() -> None:
    one, other = torch.zeros(2), torch.ones(2)
    assert weights_digest({"a": one, "b": other}) != weights_digest({"a": other, "b": one})


@given(dtype=st.sampled_from(DTYPES), size=st.integers(1, 64), data=st.data())
def test_one_changed_bit_shows(dtype: torch.dtype, size: int, data: st.DataObject) -> None:
    weights = torch.zeros(size, dtype=dtype)
    changed = weights.clone()
    as_bytes = changed.view(torch.uint8)
    bits = 1 if dtype == torch.bool else 8
    place = data.draw(st.integers(0, len(as_bytes) - 1))
    as_bytes[place] = 1 << data.draw(st.integers(0, bits - 1))
    assert weights_digest({"w": changed}) != weights_digest({"w": weights})


@pytest.mark.parametrize("name", TINY_MODELS)
def test_models_of_two_seeds_differ(name: str) -> None:
    first, again, other = (tiny_model(name, seed).state_dict() for seed in (0, 0, 1))
    assert weights_digest(first) == weights_digest(again) != weights_digest(other)
