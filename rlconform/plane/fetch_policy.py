"""Where a worker stands among its siblings, and who of them talks to the plane.

Siblings are the tensor-, context- and pipeline-parallel ranks of one replica of the model: they
work on one DP shard. One of them, tp = cp = pp = 0, writes back; who reads is a policy.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from rlconform.plane.group_broadcast import ReplicaGroup

FetchPolicy = Literal["auto", "independent", "leader_broadcast"]


@dataclass(frozen=True, kw_only=True)
class ModelRanks:
    """A worker's place in its replica of the model.

    No rank has a default: a worker that was never told its place would write as the leader does.

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
    def leads(self) -> bool:
        """Whether this worker writes back for its siblings."""
        return self.tp == self.cp == self.pp == 0


@dataclass(frozen=True)
class ChosenFetchPolicy:
    """How a worker fetches, never ``auto``, and why."""

    policy: FetchPolicy
    reason: str


def choose_policy(policy: FetchPolicy, siblings: ReplicaGroup | None) -> ChosenFetchPolicy:
    """Who reads: ``independent``, each rank; ``leader_broadcast``, the first for all siblings.

    ``auto`` lets the leader read wherever it has siblings to read for: the rows leave the plane,
    which serves all replicas, once per replica, and spread over the replica's own links.

    Raises:
        ValueError: An unknown policy, or ``leader_broadcast`` without siblings.
    """
    if policy not in get_args(FetchPolicy):
        raise ValueError(f"policy must be one of {get_args(FetchPolicy)}, got {policy!r}")
    if policy == "leader_broadcast" and siblings is None:
        raise ValueError("leader_broadcast needs the group of siblings that the leader reads for")
    if policy != "auto":
        return ChosenFetchPolicy(policy, "asked for")
    if siblings is None:
        return ChosenFetchPolicy("independent", "no group of siblings was given")
    if siblings.size == 1:
        return ChosenFetchPolicy("independent", "the group of siblings is this rank alone")
    return ChosenFetchPolicy(
        "leader_broadcast", f"{siblings.size} ranks share one shard: the plane sends it once"
    )
