"""A worker's ranks within its replica of the model, and which rank of the replica reads the plane.

A replica is the tensor-, context- and pipeline-parallel ranks that work on one DP shard. Its rank
tp = cp = pp = 0 writes results back; a ``FetchPolicy`` says which ranks read.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from rlconform.plane.group_broadcast import ReplicaGroup

FetchPolicy = Literal["auto", "independent", "leader_broadcast"]


@dataclass(frozen=True, kw_only=True)
class ModelRanks:
    """A worker's ranks within its replica of the model.

    No rank has a default: a worker with a forgotten rank would write as rank 0 does.

    Attributes:
        tp: Tensor-parallel rank.
        cp: Context-parallel rank.
        pp: Pipeline-parallel rank.

    Raises:
        ValueError: Not a non-negative integer.
    """

    tp: int
    cp: int
    pp: int

    def __post_init__(self) -> None:
        for name, rank in vars(self).items():
            if not isinstance(rank, int) or isinstance(rank, bool) or rank < 0:
                raise ValueError(f"{name} must be a rank, an integer from 0 on, got {rank!r}")

    @property
    def is_src(self) -> bool:
        """Whether this worker writes back for its replica."""
        return self.tp == self.cp == self.pp == 0


@dataclass(frozen=True)
class ChosenFetchPolicy:
    """How a worker fetches, never ``auto``, and why."""

    policy: FetchPolicy
    reason: str


def choose_policy(policy: FetchPolicy, replica: ReplicaGroup | None) -> ChosenFetchPolicy:
    """Resolve ``auto``. ``independent``: each rank reads; ``leader_broadcast``: the src rank does.

    ``auto`` chooses ``leader_broadcast`` for a replica of several ranks: the plane, which serves
    all replicas, then sends each row once per replica, and the replica's own links do the rest.

    Raises:
        ValueError: An unknown policy, or ``leader_broadcast`` without a replica group.
    """
    if policy not in get_args(FetchPolicy):
        raise ValueError(f"policy must be one of {get_args(FetchPolicy)}, got {policy!r}")
    if policy == "leader_broadcast" and replica is None:
        raise ValueError("leader_broadcast needs the replica group that the src rank reads for")
    if policy != "auto":
        return ChosenFetchPolicy(policy, "requested")
    if replica is None:
        return ChosenFetchPolicy("independent", "no replica group was given")
    if replica.size == 1:
        return ChosenFetchPolicy("independent", "the replica group is this rank alone")
    return ChosenFetchPolicy(
        "leader_broadcast", f"{replica.size} ranks share one shard: the plane sends it once"
    )
