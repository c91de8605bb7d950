"""Checkpoints of a Megatron policy: one file per rank, for the same layout of ranks.

    folder/megatron_rank_<rank>.pt     layout, weights, optimizer, updates done, random generators

Megatron's distributed checkpoint would load under another layout too, but megatron-core 0.16.1
can't load the state of a distributed optimizer that wraps torch's AdamW (KeyError: 'step').
"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from megatron.core.tensor_parallel import get_cuda_rng_tracker

from rlconform.contract import ConfigError
from rlconform.grpo.workers.rank_layout import RankLayout


def save_rank(
    folder: Path, rank: int, layout: RankLayout, model: Any, optimizer: Any, updates: int
) -> None:
    """Write this rank's file."""
    folder.mkdir(parents=True, exist_ok=True)
    state = {
        "layout": asdict(layout),
        "model": dict(model.module.named_parameters()),
        "optimizers": [
            {"state": inner.state_dict(), "weights": _weights(inner)} for inner in _inner(optimizer)
        ],
        "updates": updates,
        "generators": {
            "cpu": torch.get_rng_state(),
            "cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_available() else [],
            "megatron": get_cuda_rng_tracker().get_states(),
        },
    }
    torch.save(state, _file(folder, rank))


def load_rank(folder: Path, rank: int, layout: RankLayout, model: Any, optimizer: Any) -> int:
    """Load this rank's file; return the number of updates done.

    ``ConfigError`` if the checkpoint was written under another layout.
    """
    file = _file(folder, rank)
    if not file.exists():
        raise ConfigError(f"{folder} has no state of rank {rank}: set {_KEYS} as in the first run")
    state = torch.load(file, weights_only=True, map_location="cpu")
    if state["layout"] != asdict(layout):
        raise ConfigError(
            f"{folder} was written with {state['layout']}; got {asdict(layout)}: set {_KEYS} as in "
            f"the first run"
        )
    with torch.no_grad():
        for name, weight in model.module.named_parameters():
            weight.copy_(state["model"][name])
        for inner, saved in zip(_inner(optimizer), state["optimizers"], strict=True):
            for weight, value in zip(_weights(inner), saved["weights"], strict=True):
                weight.copy_(value)
            inner.load_state_dict(saved["state"])
    generators = state["generators"]
    torch.set_rng_state(generators["cpu"])
    if torch.cuda.is_available():
        torch.cuda.set_rng_state_all(generators["cuda"])
    get_cuda_rng_tracker().set_states(generators["megatron"])
    return int(state["updates"])


_KEYS = "cluster.dp_size and policy.megatron_cfg"


def _file(folder: Path, rank: int) -> Path:
    return folder / f"megatron_rank_{rank}.pt"


def _inner(optimizer: Any) -> list[Any]:
    """Return torch's optimizers within Megatron's: of dense weights, and of experts."""
    chained = getattr(optimizer, "chained_optimizers", [optimizer])
    return [each.optimizer for each in chained if each.optimizer is not None]


def _weights(inner: Any) -> list[Any]:
    """Return what an optimizer updates: the weights, or this rank's float32 parts of them."""
    return [weight for group in inner.param_groups for weight in group["params"]]
