"""``MegatronGroups``: a rank's process groups, and how ranks fail together.

    join_groups, on every rank         Megatron's groups (tp, pp, dp, ep, ...)
                                       control: all ranks, for small objects on the CPU
                                       replica: the ranks of a replica, if rank 0 reads for them

    agree, on every rank
      action() ──▶ value or error ──▶ all ranks know every rank's ──▶ value, or all raise
                                      each waits for every other

A rank that failed before a collective of the model would leave the others waiting in it until the
timeout. Therefore ``agree`` comes before every pass.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, NamedTuple, TypeVar

import torch.distributed as dist
from megatron.core import parallel_state
from megatron.core.tensor_parallel import model_parallel_cuda_manual_seed

from rlconform.grpo.config.megatron import MegatronConfig
from rlconform.grpo.failures import RankFailed
from rlconform.grpo.workers.rank_layout import RankLayout
from rlconform.plane import ModelRanks, ReplicaGroup

T = TypeVar("T")


class MegatronGroups(NamedTuple):
    """This process's groups under one layout."""

    layout: RankLayout
    experts: int  # expert_model_parallel_size
    timeout_s: float
    control: dist.ProcessGroup
    replicas: list[dist.ProcessGroup]  # of each replica, for ``ReplicaGroup`` alone

    @property
    def rank(self) -> int:
        """This rank, in all of them."""
        return dist.get_rank()

    @property
    def dp_rank(self) -> int:
        """The replica that this rank belongs to."""
        return self.layout.dp_rank(self.rank)

    @property
    def model_ranks(self) -> ModelRanks:
        """This rank's place in its replica."""
        return self.layout.model_ranks(self.rank)

    @property
    def counts(self) -> bool:
        """Whether this rank's metrics are its replica's: one of the ranks that compute the loss."""
        last = self.model_ranks.pp == self.layout.pp - 1
        return last and self.model_ranks.tp == self.model_ranks.cp == 0

    def replica(self, megatron: MegatronConfig) -> ReplicaGroup | None:
        """Return the group in which rank 0 reads for its replica; None if each rank reads."""
        if not self.layout.has_leader(megatron.fetch_policy):
            return None
        return ReplicaGroup(self.replicas[self.dp_rank], timeout_s=self.timeout_s)

    def gather(self, value: Any) -> list[Any]:
        """Return every rank's value, by rank; collective."""
        values: list[Any] = [None] * self.layout.world
        dist.all_gather_object(values, value, group=self.control)
        return values

    def agree(
        self,
        action: Callable[[], T],
        describe: Callable[[T], Any] = lambda _: None,
        check: Callable[[Sequence[Any]], None] = lambda _: None,
    ) -> T:
        """Return the action's value on this rank, once every rank has one; collective.

        ``check`` gets what ``describe`` says of every rank's value, and may raise.

        Raises:
            Exception: The error of this rank's action.
            RankFailed: The action of another rank failed.
        """
        value: Any = None
        error: Exception | None = None
        try:
            value = action()
            said = describe(value)
        except Exception as raised:  # noqa: BLE001 - raised below, after the other ranks know
            error, said = raised, None
        reports = self.gather((said, "" if error is None else f"{type(error).__name__}: {error}"))
        if error is not None:
            raise error
        if failed := {rank: text for rank, (_, text) in enumerate(reports) if text}:
            rank, text = next(iter(failed.items()))
            raise RankFailed(
                f"ranks {[*failed]} of {self.layout.world} failed; rank {rank}: {text}"
            )
        check([each for each, _ in reports])
        result: T = value
        return result


_joined: list[MegatronGroups] = []


def join_groups(
    layout: RankLayout, megatron: MegatronConfig, timeout_s: float, seed: int
) -> MegatronGroups:
    """Set up Megatron's groups in this process, or keep those of the same layout; collective."""
    experts = megatron.expert_model_parallel_size
    if not _joined or _joined[0][:3] != (layout, experts, timeout_s):
        _leave_groups()
        parallel_state.initialize_model_parallel(
            layout.tp,
            layout.pp,
            context_parallel_size=layout.cp,
            expert_model_parallel_size=experts,
            expert_tensor_parallel_size=1,
            distributed_timeout_minutes=timeout_s / 60,
        )
        timeout = timedelta(seconds=timeout_s)
        control = dist.new_group(backend="gloo", timeout=timeout)
        backend = "cpu:gloo,cuda:nccl" if dist.get_backend() == "nccl" else "gloo"
        replicas = [
            dist.new_group(layout.replica(dp_rank), backend=backend, timeout=timeout)
            for dp_rank in range(layout.dp)
        ]
        _joined.append(MegatronGroups(layout, experts, timeout_s, control, replicas))
    _check_places(_joined[0])
    model_parallel_cuda_manual_seed(seed, force_reset_rng=True)
    return _joined[0]


def _leave_groups() -> None:
    while _joined:
        groups = _joined.pop()
        for group in (groups.control, groups.replicas[groups.dp_rank], *_groups_of_megatron()):
            dist.destroy_process_group(group)
        parallel_state.destroy_model_parallel()  # forgets them
        gc.collect()  # a model before may be garbage that still holds them, and their threads


def _groups_of_megatron() -> list[dist.ProcessGroup]:
    """List the groups that ``parallel_state`` has made in this process, each once.

    Each has threads and connections, which would add up over the builds of a process.
    """
    found: dict[int, dist.ProcessGroup] = {}
    for value in vars(parallel_state).values():
        values = value.values() if isinstance(value, dict) else value
        for each in values if isinstance(value, dict | list | tuple) else [value]:
            if isinstance(each, dist.ProcessGroup) and each is not dist.group.WORLD:
                found[id(each)] = each
    return list(found.values())


def _check_places(groups: MegatronGroups) -> None:
    """Raise unless ``RankLayout`` and Megatron number the ranks alike."""
    own = (groups.model_ranks.tp, groups.model_ranks.cp, groups.model_ranks.pp, groups.dp_rank)
    of_megatron = (
        parallel_state.get_tensor_model_parallel_rank(),
        parallel_state.get_context_parallel_rank(),
        parallel_state.get_pipeline_model_parallel_rank(),
        parallel_state.get_data_parallel_rank(),
    )
    if own != of_megatron:
        raise RuntimeError(
            f"rank {groups.rank}: expected tp, cp, pp, dp = {own}; Megatron has {of_megatron}"
        )
