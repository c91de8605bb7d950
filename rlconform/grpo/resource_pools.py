"""``plan_pools``: which worker of a run gets which part of which pool; a pure function.

    cluster:, reward_model:, Ray's nodes ──▶ PoolPlan ── ``placement_groups`` ──▶ Ray's options

    rollout   a bundle per rollout worker
    reward    n_gpus_per_node x nnodes bundles, a reward worker on each (``enable_resource_pool``);
              without a pool of their own, reward worker i is on the bundle of rollout worker i
    train     a bundle per rank; or ranks are on the bundles of rollout workers, or also of reward
              workers (``cluster.train_pool``), which rest while the policy trains

A bundle is one GPU, or one CPU on ``device: cpu``. Its workers get equal shares, which decide where
Ray puts them; they don't limit what a worker uses. No two ranks are on one bundle, because ranks of
one GPU can't communicate through nccl.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from rlconform.contract import ConfigError
from rlconform.grpo.config import ClusterConfig, RewardModelConfig

Kind = Literal["train", "rollout", "reward"]

#: Ray's resource of one node, by which a bundle is bound to it: ``node:`` and the node's address.
_NODE, _HEAD = "node:", "node:__internal_head__"


@dataclass(frozen=True)
class PoolPart:
    """Bundles that Ray reserves together: a whole pool, or its part on one node."""

    pool: Kind
    #: Whether the bundles are on one node; otherwise they are wherever there is room.
    one_node: bool
    bundles: tuple[Mapping[str, float], ...]  # resources of each
    node: str = ""  # Ray's resource of the node that the part must be on, if the pool has several

    def needed(self) -> Counter[str]:
        """Return the CPUs and GPUs of all bundles."""
        total: Counter[str] = Counter()
        for bundle in self.bundles:
            total.update({name: int(count) for name, count in bundle.items()})
        return total


@dataclass(frozen=True)
class PlaceInPool:
    """Where a worker is, and what it gets of its bundle."""

    part: int  # index in ``PoolPlan.parts``
    bundle: int
    share: float


@dataclass(frozen=True)
class PoolPlan:
    """The pools of a run, and the place of every worker by kind and index."""

    parts: list[PoolPart]
    places: dict[Kind, list[PlaceInPool]]
    unit: Literal["CPU", "GPU"]  # what ``PlaceInPool.share`` is a share of

    def needed(self) -> Counter[str]:
        """Return the CPUs and GPUs of all pools."""
        return sum((part.needed() for part in self.parts), Counter())


@dataclass
class _Slots:
    """A pool's bundles while workers are put on them."""

    kind: Kind
    count: int
    nodes: int | None  # on which the bundles are in equal parts; None for any
    workers: list[list[Kind]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.workers = [[] for _ in range(self.count)]


def plan_pools(
    cluster: ClusterConfig,
    reward: RewardModelConfig | None,
    nodes: Sequence[Mapping[str, float]],
    replica_ranks: int = 1,
) -> PoolPlan:
    """Plan the pools of a run.

    Args:
        cluster: The policy's ranks and the rollout workers.
        reward: The reward workers; None without any.
        nodes: The resources of each of Ray's nodes, as in ``ray.nodes()``.
        replica_ranks: Ranks of each of the ``cluster.dp_size`` replicas of the model.

    Raises:
        ConfigError: The sizes don't go together, or Ray's nodes have too little; the message says
            what would fit.
    """
    rollout = _Slots("rollout", cluster.rollout_workers, cluster.rollout_nnodes)
    _check_even("cluster.rollout_workers", rollout, "cluster.rollout_nnodes")
    placed: dict[Kind, list[tuple[_Slots, int]]] = {
        "rollout": [(rollout, index) for index in range(rollout.count)],
        "reward": [],
    }
    pools = [rollout]
    if reward is not None:
        slots = _reward_slots(reward, rollout)
        pools += [slots] if slots is not rollout else []
        placed["reward"] = [(slots, index) for index in range(reward.dp_size)]
    ranks = cluster.dp_size * replica_ranks
    placed["train"] = _train_places(cluster, ranks, pools)
    for kind, all_places in placed.items():
        for slots, index in all_places:
            slots.workers[index].append(kind)
    return _fitted(cluster, [pool for pool in pools if pool.count], placed, nodes)


def _reward_slots(reward: RewardModelConfig, rollout: _Slots) -> _Slots:
    """Return the reward workers' pool, which may be the rollout workers'."""
    size = reward.n_gpus_per_node * reward.nnodes
    if reward.enable_resource_pool:
        if reward.dp_size != size:
            raise ConfigError(
                f"reward_model.dp_size={reward.dp_size} workers don't fill a pool of nnodes="
                f"{reward.nnodes} x n_gpus_per_node={reward.n_gpus_per_node}: set "
                f"reward_model.dp_size={size}, or nnodes=1 and n_gpus_per_node={reward.dp_size}"
            )
        return _Slots("reward", size, reward.nnodes)
    if size != 1:
        raise ConfigError(
            f"reward_model.nnodes={reward.nnodes} and n_gpus_per_node={reward.n_gpus_per_node} are "
            "the size of a pool of its own: set reward_model.enable_resource_pool=true, or leave "
            "them out"
        )
    if reward.dp_size > rollout.count:
        raise ConfigError(
            f"reward_model.dp_size={reward.dp_size} workers don't fit the pool of "
            f"cluster.rollout_workers={rollout.count}, one on each bundle: set "
            f"reward_model.dp_size to at most {rollout.count}, or "
            f"reward_model.enable_resource_pool=true with n_gpus_per_node={reward.dp_size}"
        )
    return rollout


def _train_places(
    cluster: ClusterConfig, ranks: int, pools: list[_Slots]
) -> list[tuple[_Slots, int]]:
    """Return the ranks' places, and add the pool of those that share none to ``pools``."""
    shared_kinds: tuple[Kind, ...] = {
        "own": (),
        "rollout": ("rollout",),
        "rollout_and_reward": ("rollout", "reward"),
    }[cluster.train_pool or ("rollout" if cluster.device == "cuda" else "own")]  # type: ignore[assignment]
    places = [(pool, i) for pool in pools if pool.kind in shared_kinds for i in range(pool.count)]
    places = places[:ranks]
    if places and cluster.train_nnodes is not None:
        raise ConfigError(
            f"cluster.train_nnodes={cluster.train_nnodes} is the size of a pool of the ranks' own: "
            "set cluster.train_pool=own, or leave it out"
        )
    train = _Slots("train", ranks - len(places), cluster.train_nnodes)
    _check_even("cluster.dp_size", train, "cluster.train_nnodes")
    pools.append(train)
    return [*places, *((train, index) for index in range(train.count))]


def _check_even(key: str, slots: _Slots, nodes_key: str) -> None:
    if slots.nodes is not None and slots.count % slots.nodes:
        fitting = [n for n in range(1, slots.count + 1) if slots.count % n == 0]
        raise ConfigError(
            f"{key}={slots.count} can't be spread evenly over {nodes_key}={slots.nodes}: set "
            f"{nodes_key} to {' or '.join(map(str, fitting))}"
        )


def _fitted(
    cluster: ClusterConfig,
    pools: Sequence[_Slots],
    placed: Mapping[Kind, Sequence[tuple[_Slots, int]]],
    nodes: Sequence[Mapping[str, float]],
) -> PoolPlan:
    """Number the bundles, after a check that Ray's nodes have room for them."""
    unit: Literal["CPU", "GPU"] = "GPU" if cluster.device == "cuda" else "CPU"
    parts: list[PoolPart] = []
    first_part: dict[Kind, int] = {}
    for pool in pools:
        first_part[pool.kind] = len(parts)
        bundles = tuple(
            {"GPU": 1.0, "CPU": float(len(workers))} if unit == "GPU" else {"CPU": 1.0}
            for workers in pool.workers
        )
        size = _part_size(pool)
        parts += [
            PoolPart(pool.kind, pool.nodes is not None, bundles[start : start + size])
            for start in range(0, pool.count, size)
        ]
    places = {
        kind: [
            PlaceInPool(
                first_part[pool.kind] + index // _part_size(pool),
                index % _part_size(pool),
                1 / len(pool.workers[index]),
            )
            for pool, index in of_kind
        ]
        for kind, of_kind in placed.items()
    }
    plan = PoolPlan(parts, places, unit)
    _check_totals(plan, cluster, nodes)
    return replace(plan, parts=_on_nodes(plan, nodes))


def _part_size(pool: _Slots) -> int:
    return pool.count // (pool.nodes or 1)


def _check_totals(
    plan: PoolPlan, cluster: ClusterConfig, nodes: Sequence[Mapping[str, float]]
) -> None:
    """Compare with all of Ray's resources: actors without room would wait forever."""
    ranks = len(plan.places["train"])
    sharded = ranks != cluster.dp_size
    workers = {
        "the ranks of cluster.dp_size and policy.megatron_cfg" if sharded else "cluster.dp_size": (
            ranks
        ),
        "cluster.rollout_workers": cluster.rollout_workers,
        "reward_model.dp_size": len(plan.places["reward"]),
    }
    asked = " with ".join(f"{key}={count}" for key, count in workers.items() if count)
    for name, count in plan.needed().items():
        if count > (has := sum(node.get(name, 0) for node in nodes)):
            raise ConfigError(
                f"{asked} on {cluster.device} takes {count} {name}s, and Ray has {has:g} here: "
                "lower them, or start the run from a process that has joined a larger Ray"
            )


def _on_nodes(plan: PoolPlan, nodes: Sequence[Mapping[str, float]]) -> list[PoolPart]:
    """Return the parts, each of a pool with several bound to a node of its own.

    ``ConfigError`` if no node has room for a part. The largest parts on one node choose first.
    """
    several = {kind for kind, count in Counter(p.pool for p in plan.parts).items() if count > 1}
    free, taken = [dict(node) for node in nodes], set[tuple[Kind, int]]()
    bound = list(plan.parts)
    for number in sorted(
        range(len(bound)), key=lambda i: (not bound[i].one_node, -len(bound[i].bundles))
    ):
        part = bound[number]
        chosen = 0
        for piece in [part] if part.one_node else _single_bundles(part):
            need = piece.needed()
            fitting = [
                index
                for index, node in enumerate(free)
                if (part.pool, index) not in taken
                and all(node.get(name, 0) >= count for name, count in need.items())
            ]
            if not fitting:
                raise ConfigError(_no_node(plan, part, nodes))
            chosen = fitting[0]
            for name, count in need.items():
                free[chosen][name] -= count
        if part.pool in several:  # whose parts have one piece
            taken.add((part.pool, chosen))
            bound[number] = replace(part, node=_address(nodes[chosen]))
    return bound


def _single_bundles(part: PoolPart) -> list[PoolPart]:
    return [replace(part, bundles=(bundle,)) for bundle in part.bundles]


def _address(node: Mapping[str, float]) -> str:
    return next((name for name in node if name.startswith(_NODE) and name != _HEAD), "")


def _no_node(plan: PoolPlan, part: PoolPart, nodes: Sequence[Mapping[str, float]]) -> str:
    count = sum(each.pool == part.pool for each in plan.parts)
    there = ", ".join(f"{node.get(plan.unit, 0):g}" for node in nodes)
    where = f"{count} nodes with {len(part.bundles)} {plan.unit}s each" if part.one_node else "room"
    key = {"train": "cluster.train_nnodes", "rollout": "cluster.rollout_nnodes"}.get(
        part.pool, "reward_model.nnodes and n_gpus_per_node"
    )
    return (
        f"the {part.pool} pool needs {where}, beside the other pools; Ray's nodes have {there} "
        f"{plan.unit}s: change {key} so that each part fits a node, or use fewer workers"
    )
