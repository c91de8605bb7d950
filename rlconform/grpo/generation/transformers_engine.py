"""Generates with a model of transformers, token by token with a key-value cache, on CPU or GPU.

    prompts, padded on the left ──▶ forward ──▶ last logits ──▶ one token per row ─┐
                                       ▲                                           │
                                       └──── until every row has its stop token ◀──┘

Each row has its own random generator, so the other rows of the batch don't change its random
numbers, only the rounding of its logits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor
from transformers import DynamicCache, PreTrainedModel

from rlconform.grpo.generation.base import GenerationEngine, Prompts, Responses, Sampling
from rlconform.grpo.models.logprobs import pick_logprobs


class TransformersEngine(GenerationEngine):
    """Generates with a model in this process, ``batch_size`` rows at once or, if None, all rows."""

    def __init__(self, model: PreTrainedModel, batch_size: int | None = None) -> None:
        self._model = model
        model.train(False)
        self._batch_size = batch_size

    @torch.no_grad()
    def _generate(self, prompts: Prompts, seeds: Sequence[int], sampling: Sampling) -> Responses:
        size = self._batch_size or len(prompts)
        spans = [slice(start, start + size) for start in range(0, len(prompts), size)]
        return Responses.joined(
            self._generate_batch(
                Prompts(prompts.input_ids[rows], prompts.lengths[rows]), seeds[rows], sampling
            )
            for rows in spans
        )

    @torch.no_grad()
    def _load_weights(self, weights: Mapping[str, Tensor]) -> None:
        own = self._model.state_dict()
        check_weights(own, weights)
        for name, tensor in own.items():
            tensor.copy_(weights[name])

    def _generate_batch(
        self, prompts: Prompts, seeds: Sequence[int], sampling: Sampling
    ) -> Responses:
        tokens, logprobs = self._decode(prompts, _draws(seeds, sampling), sampling)
        stop = torch.isin(tokens, torch.tensor(sampling.stop_token_ids, dtype=torch.int64))
        ended = stop.any(dim=1)
        lengths = torch.where(ended, stop.int().argmax(dim=1) + 1, tokens.shape[1]).tolist()
        return Responses(
            [row[:length].clone() for row, length in zip(tokens, lengths, strict=True)],
            [row[:length].clone() for row, length in zip(logprobs, lengths, strict=True)],
            ~ended,
            self.weight_version,
        )

    def _decode(self, prompts: Prompts, draws: Tensor, sampling: Sampling) -> tuple[Tensor, Tensor]:
        """Generate (B, R) tokens and logprobs; values after a row's stop token are meaningless."""
        device = self._model.device
        ids, mask = _pad_left(prompts)
        position = (mask.cumsum(1) - 1).clamp(min=0)
        ids, mask, position = ids.to(device), mask.to(device), position.to(device)
        stops = torch.tensor(sampling.stop_token_ids, dtype=torch.int64, device=device)
        ended = torch.zeros(len(prompts), dtype=torch.bool, device=device)
        cache = DynamicCache(config=self._model.config)
        tokens, logprobs = [], []
        for draw in draws.T:
            logits = self._model(
                input_ids=ids,
                attention_mask=mask,
                position_ids=position,
                past_key_values=cache,
                use_cache=True,
                logits_to_keep=1,
            ).logits[:, -1]
            token = logits.argmax(dim=-1) if sampling.greedy else _sample(logits, draw, sampling)
            tokens.append(token)
            logprobs.append(pick_logprobs(logits, token, sampling.logprob_temperature))
            ended |= torch.isin(token, stops)
            if bool(ended.all()):
                break
            ids, position = token[:, None], position[:, -1:] + 1
            mask = torch.cat([mask, mask.new_ones(len(prompts), 1)], dim=1)
        return torch.stack(tokens, dim=1).cpu(), torch.stack(logprobs, dim=1).cpu()


def check_weights(own: Mapping[str, Tensor], given: Mapping[str, Tensor]) -> None:
    """Raise ``ValueError`` unless the given weights have the model's names and shapes."""
    missing, unknown = sorted(own.keys() - given.keys()), sorted(given.keys() - own.keys())
    if missing or unknown:
        raise ValueError(f"weights don't fit the model: missing {missing}, unknown {unknown}")
    for name, tensor in own.items():
        if tensor.shape != given[name].shape:
            raise ValueError(
                f"weight {name!r}: expected {tuple(tensor.shape)}, got {tuple(given[name].shape)}"
            )


def _draws(seeds: Sequence[int], sampling: Sampling) -> Tensor:
    """Draw (B, max_new_tokens) float64 numbers in [0, 1), each row from the row's seed."""
    generators = [torch.Generator().manual_seed(seed) for seed in seeds]
    size, dtype = sampling.max_new_tokens, torch.float64
    return torch.stack([torch.rand(size, dtype=dtype, generator=each) for each in generators])


def _sample(logits: Tensor, draw: Tensor, sampling: Sampling) -> Tensor:
    """Sample (B,) tokens by inversion, on the CPU, because its cumulative sums are reproducible."""
    scores = logits.double().cpu() / sampling.temperature
    cumulated = torch.softmax(scores, dim=-1).cumsum(dim=-1)
    total = cumulated[:, -1:]
    # Rounding must not raise the draw to the total, which no token exceeds.
    target = torch.minimum(draw[:, None] * total, torch.nextafter(total, torch.zeros_like(total)))
    return torch.searchsorted(cumulated, target, right=True).squeeze(1).to(logits.device)


def _pad_left(prompts: Prompts) -> tuple[Tensor, Tensor]:
    """Return (B, P) ids and mask with each row's padding on the left."""
    width = int(prompts.lengths.max())
    column = torch.arange(width)[None] - (width - prompts.lengths)[:, None]
    mask = column >= 0
    return prompts.input_ids.gather(1, column.clamp(min=0)), mask.long()
