"""Strategies for padded batches like those of a rollout, and for what a reader must get back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn
from torch import Tensor

from rlconform.certify.properties.column_strategies import row_shapes, tensors
from rlconform.contract.fields import INPUT_LENGTHS, SAMPLE_MASK

#: Dtypes of a per-token column, each with values that it can be padded with.
_TOKENS: dict[str, tuple[torch.dtype, list[Any]]] = {
    "input_ids": (torch.int64, [0, 1, 151_643, -1]),
    "token_mask": (torch.int32, [0]),
    "generation_logprobs": (torch.bfloat16, [0.0, -1.5]),
    "routed_experts": (torch.uint8, [0, 255]),
    "advantages": (torch.float32, [0.0, float("-inf")]),
}

#: Every column of a padded batch.
PADDED_FIELDS: tuple[str, ...] = (INPUT_LENGTHS, SAMPLE_MASK, "image_features", *_TOKENS)


@dataclass(frozen=True)
class PaddedBatch:
    """A padded batch and what a read of it must return."""

    ids: list[str]  # N names
    #: Per-token columns (N, S, ...), per-sample columns (N, ...), and ``input_lengths`` (N,).
    columns: dict[str, Any]
    token_fields: list[str]  # names of the per-token columns
    pad_values: dict[str, Any]  # by column
    width: int | None  # tokens to which readers pad; None for the longest row
    expected: dict[str, Tensor]  # what readers must get: the valid tokens, pad values elsewhere


@st.composite
def padded_batches(draw: DrawFn) -> PaddedBatch:
    """Draw a batch with rows of 0 to 5 tokens and up to two tokens of random bits as padding."""
    lengths = draw(st.lists(st.integers(0, 5), min_size=1, max_size=4))
    longest = max(lengths)
    width = draw(st.none() | st.integers(longest, longest + 3))
    names = draw(st.lists(st.sampled_from(list(_TOKENS)), min_size=1, unique=True))
    put_width = longest + draw(st.integers(0, 2))
    n_rows = len(lengths)
    counts = torch.tensor(lengths, dtype=draw(st.sampled_from([torch.int32, torch.int64])))
    mask = draw(tensors(torch.int32, (n_rows,)))
    features = draw(tensors(torch.float16, (n_rows, 2, 3)))
    beside = {INPUT_LENGTHS: counts, SAMPLE_MASK: mask, "image_features": features}
    columns, expected, pad_values = dict(beside), dict(beside), {}
    for name in names:
        dtype, pads = _TOKENS[name]
        pad_values[name] = draw(st.sampled_from(pads))
        trailing = draw(row_shapes(2, 2, min_side=1)) if name == "routed_experts" else ()
        columns[name] = draw(tensors(dtype, (n_rows, put_width, *trailing)))
        expected[name] = _as_read(
            columns[name], lengths, longest if width is None else width, pad_values[name]
        )
    ids = [f"u{i}_g0" for i in range(n_rows)]
    return PaddedBatch(ids, columns, names, pad_values, width, expected)


def _as_read(padded: Tensor, lengths: list[int], width: int, pad_value: float) -> Tensor:
    """Return what a reader must get, computed by row so that it shares no code with the codec."""
    read = torch.full((len(lengths), width, *padded.shape[2:]), pad_value, dtype=padded.dtype)
    for row, length in enumerate(lengths):
        read[row, :length] = padded[row, :length]
    return read
