"""``token_logprobs``: one forward pass that computes the logprob of every token.

    padded   row 0  a b c .        packed   a b c|d e|f g h i     positions 0 1 2 0 1 0 1 2 3
             row 1  d e . .                 a token attends only to earlier tokens of its row
             row 2  f g h i

Both layouts give the same numbers up to rounding. No mask is needed for padding: it is on the
right, where causal attention does not reach, and the router of Qwen3-MoE drops no tokens, so
padding does not displace real ones.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from rlconform.grpo.models.token_order import RowLayout, TokenOrder
from rlconform.plane.packing import row_lengths
from rlconform.wire import Lengths


def token_logprobs(
    model: nn.Module,
    input_ids: Tensor,
    lengths: Lengths,
    *,
    temperature: float = 1.0,
    layout: RowLayout = "padded",
    pad_multiple: int = 1,
) -> Tensor:
    """Compute each token's logprob given the row's earlier tokens, ``log softmax(logits / t)``.

    Args:
        model: A causal language model of transformers; gradients are recorded if enabled.
        input_ids: (B, T) int64, padded on the right.
        lengths: (B,) number of valid tokens of each row, from 1 to T.
        temperature: t, the sampling temperature of the responses.
        layout: Whether the model gets padded or packed rows, as shown above.
        pad_multiple: In a packed layout each row's length is rounded up to a multiple of this.

    Returns:
        (B, T) float32 with the logprob of ``input_ids[b, i]`` at [b, i], as in
        ``generation_logprobs``; 0 at i = 0, which has no earlier token, and on padding.

    Raises:
        ValueError: Shapes don't fit, a length or the temperature is out of range, or the model's
            attention can't separate packed rows.
    """
    counts = _counts(input_ids, lengths)
    if not 0 < temperature < float("inf"):
        raise ValueError(f"temperature must be above 0, got {temperature}")
    if layout == "packed":
        return _packed_logprobs(model, input_ids, counts, temperature, pad_multiple)
    return _padded_logprobs(model, input_ids, counts, temperature)


def pick_logprobs(logits: Tensor, tokens: Tensor, temperature: float) -> Tensor:
    """Return (N,) float32 logprobs of N tokens under ``softmax(logits / temperature)``."""
    return -nn.functional.cross_entropy(logits.float() / temperature, tokens, reduction="none")


def _counts(input_ids: Tensor, lengths: Lengths) -> Tensor:
    """Check the lengths and return them as (B,) int64 on the device of the ids."""
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
    position = torch.arange(input_ids.shape[1], device=input_ids.device).expand_as(input_ids)
    logits = model(input_ids=input_ids, position_ids=position, use_cache=False).logits
    following = input_ids[:, 1:]  # the output at token i predicts token i + 1
    picked = pick_logprobs(logits[:, :-1].flatten(0, 1), following.flatten(), temperature)
    logprobs = nn.functional.pad(picked.view(following.shape), (1, 0))
    return torch.where(position < counts[:, None], logprobs, 0)


def _packed_logprobs(
    model: nn.Module, input_ids: Tensor, counts: Tensor, temperature: float, pad_multiple: int
) -> Tensor:
    if pad_multiple < 1:
        raise ValueError(f"pad_multiple must be at least 1, got {pad_multiple}")
    pack = TokenOrder.of(counts, input_ids.shape[1], "packed", pad_multiple)
    ids = pack.arrange(input_ids, 0)
    logits = model(
        input_ids=ids[None],
        position_ids=pack.position[None],
        attention_mask=_attention_mask(model, pack),
        use_cache=False,
    ).logits
    picked = pick_logprobs(logits[0, :-1], ids[1:], temperature)
    return pack.scatter(picked, input_ids.shape)


def _attention_mask(model: nn.Module, pack: TokenOrder) -> Tensor | None:
    """Build the block-diagonal causal mask (1, 1, K, K) in the form that the attention needs."""
    config: Any = model.config
    attention = str(config._attn_implementation)
    if attention.startswith("flash_attention"):
        return None  # it separates rows by their positions, which restart at 0
    visible = pack.visible()
    if attention == "sdpa":
        return visible[None, None]
    if attention == "eager":  # adds the mask to the scores
        dtype = next(model.parameters()).dtype
        hidden = torch.zeros(visible.shape, dtype=dtype, device=visible.device)
        return hidden.masked_fill_(~visible, torch.finfo(dtype).min)[None, None]
    raise ValueError(
        f"packed rows need eager, sdpa or flash attention, which can separate them; the model has "
        f"{attention!r}"
    )
