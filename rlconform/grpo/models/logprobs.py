"""One forward pass: the logprob of every token, whichever way the rows lie.

    padded   row 0  a b c .        packed   a b c|d e|f g h i     positions 0 1 2 0 1 0 1 2 3
             row 1  d e . .                 a token sees those before it in its own row, no others
             row 2  f g h i

Both give the same numbers up to the rounding of another kernel, so that a trainer may pack or not.
Padding stands behind the tokens, where no token looks, and a router that drops nothing (Qwen3-MoE's
doesn't) sends each token where it would go alone: neither needs a mask for it.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn

from rlconform.plane.packing import row_lengths
from rlconform.wire import Lengths

RowLayout = Literal["padded", "packed"]


def token_logprobs(
    model: nn.Module,
    input_ids: Tensor,
    lengths: Lengths,
    *,
    temperature: float = 1.0,
    layout: RowLayout = "padded",
    pad_multiple: int = 1,
) -> Tensor:
    """Logprob of each token given those before it in its row: ``log softmax(logits / t)``.

    Args:
        model: A causal language model of transformers, wrapped in DDP or not; gradients flow where
            they are enabled.
        input_ids: (B, T) int64, padded on the right.
        lengths: (B,) valid tokens of each row, from 1 to T.
        temperature: t, the one that the responses were sampled at.
        layout: How the rows go through the model; what is returned is the same. ``padded``: as they
            lie. ``packed``: end to end in one sequence, without the padding.
        pad_multiple: ``packed``: each row takes the next multiple of this many tokens.

    Returns:
        (B, T) float32. At [b, i] the logprob of ``input_ids[b, i]``, as in ``generation_logprobs``:
        0 at i = 0, which nothing stands before, and on padding.

    Raises:
        ValueError: Shapes that don't fit, a length out of range, a temperature not above 0, an
            attention that can't keep packed rows apart.
    """
    counts = _counts(input_ids, lengths)
    if not 0 < temperature < float("inf"):
        raise ValueError(f"temperature must be above 0, got {temperature}")
    if layout == "packed":
        return _packed_logprobs(model, input_ids, counts, temperature, pad_multiple)
    return _padded_logprobs(model, input_ids, counts, temperature)


def pick_logprobs(logits: Tensor, tokens: Tensor, temperature: float) -> Tensor:
    """(N,) float32 logprobs of N tokens under ``softmax(logits / temperature)``, logits (N, V)."""
    return -nn.functional.cross_entropy(logits.float() / temperature, tokens, reduction="none")


def _counts(input_ids: Tensor, lengths: Lengths) -> Tensor:
    """The lengths as (B,) int64 beside the ids, checked."""
    if input_ids.dim() != 2:
        raise ValueError(f"input_ids must be (B, T), got {tuple(input_ids.shape)}")
    rows, width = input_ids.shape
    counts = row_lengths(lengths)
    if len(counts) != rows:
        raise ValueError(f"{len(counts)} lengths for {rows} rows")
    if counts and not 1 <= min(counts) <= max(counts) <= width:
        raise ValueError(f"a row of {width} columns has 1 to {width} tokens, got {counts}")
    return torch.tensor(counts, dtype=torch.int64, device=input_ids.device)


def _padded_logprobs(
    model: nn.Module, input_ids: Tensor, counts: Tensor, temperature: float
) -> Tensor:
    place = torch.arange(input_ids.shape[1], device=input_ids.device).expand_as(input_ids)
    logits = model(input_ids=input_ids, position_ids=place, use_cache=False).logits
    following = input_ids[:, 1:]
    # the output at token i speaks of token i + 1
    picked = pick_logprobs(logits[:, :-1].flatten(0, 1), following.flatten(), temperature)
    logprobs = nn.functional.pad(picked.view(following.shape), (1, 0))
    return torch.where(place < counts[:, None], logprobs, 0)


class _Pack(NamedTuple):
    """K slots, the rows' tokens end to end: whose each is, which one in its row, and if it counts.

    Slots between a row's tokens and the next row are the former's, and don't count.
    """

    row: Tensor
    place: Tensor
    valid: Tensor

    @classmethod
    def of(cls, counts: Tensor, pad_multiple: int) -> _Pack:
        slots = -(-counts // pad_multiple) * pad_multiple
        row = torch.repeat_interleave(torch.arange(len(counts), device=counts.device), slots)
        place = torch.arange(len(row), device=counts.device) - (slots.cumsum(0) - slots)[row]
        return cls(row, place, place < counts[row])


def _packed_logprobs(
    model: nn.Module, input_ids: Tensor, counts: Tensor, temperature: float, pad_multiple: int
) -> Tensor:
    if pad_multiple < 1:
        raise ValueError(f"pad_multiple must be at least 1, got {pad_multiple}")
    pack = _Pack.of(counts, pad_multiple)
    width = input_ids.shape[1]
    ids = torch.where(pack.valid, input_ids[pack.row, pack.place.clamp(max=width - 1)], 0)
    logits = model(
        input_ids=ids[None],
        position_ids=pack.place[None],
        attention_mask=_attention_mask(model, pack),
        use_cache=False,
    ).logits
    picked = pick_logprobs(logits[0, :-1], ids[1:], temperature)
    spoken_of = (pack.valid & (pack.place > 0))[1:]
    row, place = pack.row[1:][spoken_of], pack.place[1:][spoken_of]
    empty = picked.new_zeros(input_ids.shape)
    return empty.index_put((row, place), picked[spoken_of])


def _attention_mask(model: nn.Module, pack: _Pack) -> Tensor | None:
    """(1, 1, K, K), block-diagonal and causal, in the form that the model's attention takes."""
    inner: Any = getattr(model, "module", model)  # inside DDP's wrapper
    attention = str(inner.config._attn_implementation)
    if attention.startswith("flash_attention"):
        return None  # it tells the rows by the positions, which begin anew with each
    causal = torch.ones(len(pack.row), len(pack.row), dtype=torch.bool, device=pack.row.device)
    visible = causal.tril_() & (pack.row[:, None] == pack.row[None])
    if attention == "sdpa":
        return visible[None, None]
    if attention == "eager":  # adds the mask to the scores
        dtype = next(model.parameters()).dtype
        hidden = torch.zeros(visible.shape, dtype=dtype, device=visible.device)
        return hidden.masked_fill_(~visible, torch.finfo(dtype).min)[None, None]
    raise ValueError(
        f"packed rows need eager, sdpa or flash attention to keep them apart, and the model has "
        f"{attention!r}"
    )
