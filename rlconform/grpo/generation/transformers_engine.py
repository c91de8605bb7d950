"""Generates with a model of transformers, token by token with a key-value cache, on CPU or GPU.

    prompts, padded on the left ──▶ forward ──▶ last logits ──▶ one token per row ─┐
                                       ▲                                           │
                                       └── until every row is finished, or cut ◀───┘

Each row has its own random generator, so the other rows of the batch don't change its random
numbers, only the rounding of its logits. Each turn of the loop holds the engine's lock; between two
turns other threads generate, and a refit may replace the weights.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

import torch
from torch import Tensor
from transformers import DynamicCache, PreTrainedModel

from rlconform.grpo.failures import ModelFailure
from rlconform.grpo.generation.base import (
    GenerationEngine,
    OnFinished,
    Prefix,
    Prompts,
    Responses,
    Sampling,
    ShouldStop,
)
from rlconform.grpo.models import weights_digest
from rlconform.grpo.models.logprobs import pick_logprobs
from rlconform.grpo.router_replay.column import joined_routes
from rlconform.grpo.router_replay.recorder import RouteRecorder


class TransformersEngine(GenerationEngine):
    """Generates with a model in this process, ``batch_size`` rows at once or, if None, all rows.

    After a refit in the middle of a response, ``recompute_kv_cache`` computes the cache of the
    tokens so far again under the new weights, which costs a forward pass over them: later tokens
    are those of the new weights. Without it, new weights attend to keys and values of the old ones.
    Either way the logprobs are those of the distribution that was sampled from. A response that
    goes on from a prefix always gets a new cache.

    With ``record_routes`` it records the experts of each token in its first forward pass, for
    router replay; ``ConfigError`` if the model has no routers.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        batch_size: int | None = None,
        *,
        recompute_kv_cache: bool = False,
        record_routes: bool = False,
    ) -> None:
        super().__init__()
        self._model = model
        self._recorder = RouteRecorder(model) if record_routes else None
        self.route_format = None if self._recorder is None else self._recorder.format
        model.train(False)
        self._batch_size = batch_size
        self._recompute_kv_cache = recompute_kv_cache

    @torch.no_grad()
    def _generate(
        self,
        prompts: Prompts,
        seeds: Sequence[int],
        sampling: Sampling,
        prefixes: Sequence[Prefix],
        should_stop: ShouldStop,
        on_finished: OnFinished,
    ) -> Responses:
        size = self._batch_size or len(prompts)
        spans = [slice(start, start + size) for start in range(0, len(prompts), size)]
        return Responses.joined(
            self._generate_batch(
                _Batch(
                    self._model,
                    Prompts(prompts.input_ids[rows], prompts.lengths[rows]),
                    seeds[rows],
                    sampling,
                    prefixes[rows],
                    self._recorder,
                ),
                should_stop,
                partial(_shifted, on_finished, rows.start),
            )
            for rows in spans
        )

    def _generate_batch(
        self, batch: _Batch, should_stop: ShouldStop, on_finished: OnFinished
    ) -> Responses:
        while not batch.finished and not should_stop():
            with self._lock:
                batch.add_token(self.weight_version, self._recompute_kv_cache)
            for row, response, truncated in batch.newly_finished():
                on_finished(row, response, truncated)
        return batch.responses()

    @torch.no_grad()
    def _load_weights(self, weights: Mapping[str, Tensor]) -> str:
        own = self._model.state_dict()
        check_weights(own, weights)
        for name, tensor in own.items():
            tensor.copy_(weights[name])
        return weights_digest(own)


def _shifted(
    on_finished: OnFinished, start: int, row: int, response: Prefix, truncated: bool
) -> None:
    """Report a row of a batch that begins at row ``start`` of all rows."""
    on_finished(start + row, response, truncated)


class _Batch:
    """B rows that get their tokens together; tokens after a row's end are meaningless."""

    def __init__(
        self,
        model: PreTrainedModel,
        prompts: Prompts,
        seeds: Sequence[int],
        sampling: Sampling,
        prefixes: Sequence[Prefix],
        recorder: RouteRecorder | None,
    ) -> None:
        device = model.device
        self._model, self._sampling, self._prefixes = model, sampling, prefixes
        ids, mask = _pad_left(_with_prefixes(prompts, prefixes))
        #: (B, T) tokens so far, and whether they are valid; the new ones start at ``_start``.
        self._ids, self._mask = ids.to(device), mask.to(device)
        self._start = ids.shape[1]
        self._padding = (mask == 0).sum(dim=1).to(device)  # (B,) columns before the prompt
        self._logprobs = torch.empty(len(prompts), 0, device=device)
        self._versions: list[int] = []
        self._draws = _draws(seeds, sampling)
        self._had = torch.tensor([len(prefix) for prefix in prefixes])
        self._budget = (sampling.max_new_tokens - self._had).to(device)
        self._stops = torch.tensor(sampling.stop_token_ids, dtype=torch.int64, device=device)
        self._stopped = torch.zeros(len(prompts), dtype=torch.bool, device=device)
        self._counts = torch.zeros(len(prompts), dtype=torch.int64, device=device)  # of new tokens
        self._told = torch.zeros(len(prompts), dtype=torch.bool, device=device)
        self._cache = DynamicCache(config=model.config)
        self._cached = 0  # tokens in the cache
        self._recorder = recorder
        self._routes: Tensor | None = None  # (B, T, L, K) of the tokens that were passed first

    @property
    def finished(self) -> bool:
        """Whether every row has its stop token or ``max_new_tokens`` tokens."""
        return bool(self._ended().all())

    def add_token(self, version: int, recompute_kv_cache: bool) -> None:
        """Add a token to every row, with the current weights, which have this version."""
        if recompute_kv_cache and self._versions and version != self._versions[-1]:
            self._cache, self._cached = DynamicCache(config=self._model.config), 0
        sampling = self._sampling
        logits = self._logits()
        token = (
            logits.argmax(dim=-1) if sampling.greedy else _sample(logits, self._draw(), sampling)
        )
        logprobs = pick_logprobs(logits, token, sampling.logprob_temperature)
        going = ~self._ended()
        self._counts += going
        self._stopped |= going & torch.isin(token, self._stops)
        self._ids = torch.cat([self._ids, token[:, None]], dim=1)
        self._mask = torch.cat([self._mask, self._mask.new_ones(len(token), 1)], dim=1)
        self._logprobs = torch.cat([self._logprobs, logprobs[:, None]], dim=1)
        self._versions.append(version)

    def newly_finished(self) -> list[tuple[int, Prefix, bool]]:
        """Return number, response and truncation of the rows that the last token has finished."""
        new = self._ended() & ~self._told
        self._told |= new
        return [
            (row, self._row(row), not self._stopped[row])
            for row in new.nonzero().flatten().tolist()
        ]

    def responses(self) -> Responses:
        """Return prefixes and new tokens; rows that are not finished have them up to now."""
        rows = [self._row(row) for row in range(len(self._prefixes))]
        return Responses(
            [row.token_ids for row in rows],
            [row.logprobs for row in rows],
            [row.versions for row in rows],
            (self._ended() & ~self._stopped).cpu(),
            self._ended().cpu(),
            None if self._recorder is None else [row.routes for row in rows],
        )

    def _row(self, row: int) -> Prefix:
        """Return the prefix and the new tokens of a row, up to its end or to now."""
        prefix, count = self._prefixes[row], int(self._counts[row])
        ids = self._ids[row, self._start : self._start + count].cpu()
        logprobs = self._logprobs[row, :count].cpu()
        versions = torch.tensor(self._versions[:count], dtype=torch.int64)
        return Prefix(
            torch.cat([prefix.token_ids, ids]),
            torch.cat([prefix.logprobs, logprobs]),
            torch.cat([prefix.versions, versions]),
            self._routes_of(row, count),
        )

    def _routes_of(self, row: int, count: int) -> Tensor | None:
        """Return the routes of a row's tokens, but the last of its ``count`` new ones."""
        earlier = self._prefixes[row].routes
        if self._routes is None or not count:
            return earlier
        columns = slice(int(self._padding[row]), self._start + count - 1)
        return joined_routes(earlier, self._routes[row, columns].cpu())

    def _ended(self) -> Tensor:
        return self._stopped | (self._counts == self._budget)

    def _draw(self) -> Tensor:
        """Return the (B,) draws of the next token; those of rows that have ended are any."""
        number = (self._had + len(self._versions)).clamp(max=self._draws.shape[1] - 1)
        return self._draws.gather(1, number[:, None]).squeeze(1)

    def _logits(self) -> Tensor:
        """Compute (B, V) logits of the next token from the tokens that the cache lacks."""
        if self._recorder is None:
            logits = self._forward()
        else:
            logits, routes = self._recorder.record(self._forward)
            self._add_routes(routes.view(len(self._ids), -1, *routes.shape[1:]))
        self._cached = self._ids.shape[1]
        # The maximum is NaN if a logit is, and infinite if one is +inf or all are -inf.
        wrong = (~logits.amax(dim=-1).isfinite()).nonzero().flatten().tolist()
        if wrong:
            raise ModelFailure(
                f"rows {wrong} of {len(logits)} have logits that are NaN or infinite"
            )
        return logits

    def _forward(self) -> Tensor:
        columns = torch.arange(self._cached, self._ids.shape[1], device=self._ids.device)
        logits: Tensor = self._model(
            input_ids=self._ids[:, self._cached :],
            attention_mask=self._mask,
            position_ids=(columns - self._padding[:, None]).clamp(min=0),
            past_key_values=self._cache,
            use_cache=True,
            logits_to_keep=1,
        ).logits[:, -1]
        return logits

    def _add_routes(self, routes: Tensor) -> None:
        """Add the routes (B, t, L, K) of the t tokens of a pass that have none yet."""
        if self._routes is None:
            self._routes = routes
            return
        known = self._routes.shape[1]  # the cache of these tokens may have been computed again
        self._routes = torch.cat([self._routes, routes[:, known - self._cached :]], dim=1)


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


def _with_prefixes(prompts: Prompts, prefixes: Sequence[Prefix]) -> Prompts:
    """Append the prefixes' tokens to the prompts."""
    lengths = prompts.lengths.tolist()
    rows = zip(prompts.input_ids, lengths, prefixes, strict=True)
    return Prompts.of([torch.cat([ids[:n], prefix.token_ids]) for ids, n, prefix in rows], 0)


def _pad_left(prompts: Prompts) -> tuple[Tensor, Tensor]:
    """Return (B, P) ids and mask with each row's padding on the left."""
    width = int(prompts.lengths.max())
    column = torch.arange(width)[None] - (width - prompts.lengths)[:, None]
    mask = column >= 0
    return prompts.input_ids.gather(1, column.clamp(min=0)), mask.long()
