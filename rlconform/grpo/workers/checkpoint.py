"""Checkpoints of a policy: weights, optimizer, schedule, and each rank's random generators.

    folder/weights/...        torch's distributed checkpoint with every rank's part of the weights
                              and of the optimizer's state, for DDP and FSDP alike
    folder/rank_<rank>.pt     random generators and schedule

Every function is collective: all ranks must call it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol

import torch
from torch import nn
from torch.distributed.checkpoint import state_dict_loader, state_dict_saver
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.optim import AdamW
from torch.optim.lr_scheduler import LambdaLR

from rlconform.contract import ConfigError

_WEIGHTS = "weights"


class SavedPolicy(Protocol):
    """What a checkpoint holds of a policy."""

    model: nn.Module
    optimizer: AdamW
    schedule: LambdaLR


def save_policy(policy: SavedPolicy, folder: Path, rank: int) -> None:
    """Write a checkpoint; collective."""
    folder.mkdir(parents=True, exist_ok=True)
    state_dict_saver.save(_distributed_state(policy), checkpoint_id=folder / _WEIGHTS)
    cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_available() else []
    generators = {"cpu": torch.get_rng_state(), "cuda": cuda}
    own = {"schedule": policy.schedule.state_dict(), "generators": generators}
    torch.save(own, folder / f"rank_{rank}.pt")


def load_policy(policy: SavedPolicy, folder: Path, rank: int) -> None:
    """Load a checkpoint; collective. ``ConfigError`` if it was written with fewer ranks."""
    rank_file = folder / f"rank_{rank}.pt"
    if not rank_file.exists():
        raise ConfigError(
            f"{folder} has no state of rank {rank}: the checkpoint was written with fewer "
            f"ranks; set cluster.dp_size to their number"
        )
    state = _distributed_state(policy)
    state_dict_loader.load(state, checkpoint_id=folder / _WEIGHTS)
    set_state_dict(
        policy.model,
        policy.optimizer,
        model_state_dict=state["model"],
        optim_state_dict=state["optimizer"],
    )
    own = torch.load(rank_file, weights_only=True)
    policy.schedule.load_state_dict(own["schedule"])
    torch.set_rng_state(own["generators"]["cpu"])
    if torch.cuda.is_available():
        torch.cuda.set_rng_state_all(own["generators"]["cuda"])


def _distributed_state(policy: SavedPolicy) -> dict[str, Any]:
    model, optimizer = get_state_dict(policy.model, policy.optimizer)
    return {"model": model, "optimizer": optimizer}
