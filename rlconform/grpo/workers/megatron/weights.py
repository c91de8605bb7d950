"""Loads this rank's weights part by part, and gathers all ranks' weights on rank 0.

    checkpoint folder ── read(part) ──▶ rank's weight      only this rank's parts are in memory
    ranks ── one weight at a time ──▶ rank 0: whole tensors in CPU memory, for the engines

Weights that several ranks hold are sent by one data-parallel rank. Every rank calls
``gather_weights``; rank 0 waits for each weight of each rank, the other ranks until it is sent.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import torch
import torch.distributed as dist
from megatron.core import parallel_state
from safetensors import safe_open
from torch import Tensor

from rlconform.contract import ConfigError
from rlconform.grpo.models import TINY_MODELS, tiny_model
from rlconform.grpo.models.checkpoint_weight_names import as_checkpoint, from_checkpoint
from rlconform.grpo.workers.megatron.weight_map import Span, WeightMap, WeightPart

_INDEX, _SINGLE = "model.safetensors.index.json", "model.safetensors"


class WeightSource(Protocol):
    """A checkpoint of which a rank reads parts."""

    def read(self, part: WeightPart) -> Tensor:
        """Return a part, on the CPU; ``ConfigError`` if the checkpoint lacks it."""
        ...


class WeightsInMemory:
    """The weights of a model that is created in code."""

    def __init__(self, weights: Iterable[tuple[str, Tensor]]) -> None:
        self._weights = dict(weights)

    def read(self, part: WeightPart) -> Tensor:
        """Return a view of the part."""
        if part.name not in self._weights:
            raise ConfigError(f"the model has no weight {part.name}")
        return _block(self._weights[part.name], part)


class WeightsInFolder:
    """The safetensors files of a folder, of which only the parts asked for are read."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        index = folder / _INDEX
        self._files: dict[str, str] = {}
        if index.exists():
            self._files = json.loads(index.read_text("utf-8"))["weight_map"]
        elif not (folder / _SINGLE).exists():
            raise ConfigError(f"{folder} has neither {_SINGLE} nor {_INDEX}")
        self._open: dict[str, Any] = {}

    def read(self, part: WeightPart) -> Tensor:
        """Read the part from its file."""
        file = self._files.get(part.name, _SINGLE if not self._files else "")
        if file and file not in self._open:
            self._open[file] = safe_open(self._folder / file, framework="pt", device="cpu")
        if not file or part.name not in self._open[file].keys():  # noqa: SIM118 - no mapping
            raise ConfigError(f"{self._folder} has no weight {part.name}")
        return _block(self._open[file].get_slice(part.name), part)


def open_weights(model_name: str, seed: int) -> WeightSource:
    """Open the weights of a tiny model, created from the seed, or of a folder."""
    if model_name in TINY_MODELS:
        return WeightsInMemory(as_checkpoint(tiny_model(model_name, seed).state_dict()))
    return WeightsInFolder(Path(model_name))


def load_weights(model: Any, source: WeightSource, weight_map: WeightMap) -> None:
    """Copy this rank's weights into a ``GPTModel``; rows beyond the vocabulary become zero."""
    with torch.no_grad():
        for name, weight in model.named_parameters():
            weight.zero_()
            row = 0
            for part in weight_map.parts(name):
                block = source.read(part)
                weight[row : row + block.shape[0]].copy_(block)
                row += block.shape[0]


class _Owned(NamedTuple):
    """A weight that this rank sends."""

    parts: list[WeightPart]
    shape: tuple[int, ...]


def gather_weights(
    model: Any, weight_map: WeightMap, dtype: torch.dtype, control: dist.ProcessGroup
) -> dict[str, Tensor]:
    """Return all weights by their names in memory on rank 0, {} on other ranks; collective.

    ``control`` is a group of all ranks for CPU tensors.
    """
    own = [
        (_Owned(weight_map.parts(name), tuple(weight.shape)), weight.detach())
        for name, weight in model.named_parameters()
        if _is_owner(weight)
    ]
    lists: list[list[_Owned]] = [[] for _ in range(dist.get_world_size())]
    dist.all_gather_object(lists, [owned for owned, _ in own], group=control)
    if dist.get_rank() != 0:
        for _, weight in own:
            dist.send(weight.cpu().contiguous(), 0, group=control)
        return {}
    extents = _extents(part for owned in lists for each in owned for part in each.parts)
    whole = {name: torch.empty(shape, dtype=dtype) for name, shape in extents.items()}
    for rank, owned in enumerate(lists):
        for number, each in enumerate(owned):
            if rank == 0:
                received = own[number][1].cpu()
            else:
                received = torch.empty(each.shape, dtype=dtype)
                dist.recv(received, rank, group=control)
            row = 0
            for part in each.parts:
                block = _block(whole[part.name], part)
                block.copy_(received[row : row + block.shape[0]])
                row += block.shape[0]
    if weight_map.sizes.tied:
        whole["lm_head.weight"] = whole["model.embed_tokens.weight"]
    return from_checkpoint(whole)


def _is_owner(weight: Tensor) -> bool:
    """Whether this rank is the first of those with equal weights of other data."""
    if getattr(weight, "allreduce", True):
        return bool(parallel_state.get_data_parallel_rank(with_context_parallel=True) == 0)
    return bool(parallel_state.get_expert_data_parallel_rank() == 0)


def _extents(parts: Iterable[WeightPart]) -> Mapping[str, tuple[int, ...]]:
    """Return the shapes that the parts of each tensor fill together."""
    extents: dict[str, tuple[int, ...]] = {}
    for part in parts:
        ends = tuple(span.stop for span in (part.rows, part.columns) if span is not None)
        known = extents.get(part.name, ends)
        extents[part.name] = tuple(map(max, known, ends))
    return extents


def _block(tensor: Any, part: WeightPart) -> Tensor:
    rows = slice(*part.rows)
    block: Tensor = tensor[rows] if part.columns is None else tensor[rows, slice(*part.columns)]
    _check_block(block, part)
    return block


def _check_block(block: Tensor, part: WeightPart) -> None:
    spans: list[Span] = [span for span in (part.rows, part.columns) if span is not None]
    expected = tuple(span.stop - span.start for span in spans)
    if tuple(block.shape) != expected:
        raise ConfigError(
            f"{part.name}: expected a part of shape {expected}; got {tuple(block.shape)}: "
            f"config.json and the weights don't fit"
        )
