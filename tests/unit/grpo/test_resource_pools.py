"""Plans of resource pools: who is on which bundle, and what is refused."""

from __future__ import annotations

import re
from typing import Any

import pytest

from rlconform.grpo.config import ClusterConfig, RewardModelConfig
from rlconform.grpo.resource_pools import Kind, PoolPlan, plan_pools

Nodes = list[dict[str, float]]


def plan(cluster: dict[str, Any], reward: dict[str, Any] | None = None, *nodes: Any) -> PoolPlan:
    return plan_pools(
        ClusterConfig.model_validate(cluster),
        None if reward is None else RewardModelConfig.model_validate({"enable": True, **reward}),
        nodes or [{"CPU": 16.0, "GPU": 16.0}],
    )


def where(planned: PoolPlan, kind: Kind) -> list[tuple[str, int, float]]:
    """Pool, bundle and share of each worker."""
    return [
        (planned.parts[place.part].pool, place.bundle, place.share)
        for place in planned.places[kind]
    ]


def test_on_cpus_everybody_has_a_core() -> None:
    planned = plan({"dp_size": 2, "rollout_workers": 2}, {"enable_resource_pool": True})
    assert [(part.pool, part.bundles) for part in planned.parts] == [
        ("rollout", ({"CPU": 1.0},) * 2),
        ("reward", ({"CPU": 1.0},)),
        ("train", ({"CPU": 1.0},) * 2),
    ]
    assert where(planned, "train") == [("train", 0, 1.0), ("train", 1, 1.0)]
    assert where(planned, "rollout") == [("rollout", 0, 1.0), ("rollout", 1, 1.0)]
    assert where(planned, "reward") == [("reward", 0, 1.0)]
    assert planned.needed() == {"CPU": 5}


def test_without_a_pool_of_their_own_reward_workers_share_that_of_rollout_workers() -> None:
    planned = plan({"rollout_workers": 3}, {"dp_size": 2})
    assert where(planned, "reward") == [("rollout", 0, 0.5), ("rollout", 1, 0.5)]
    assert where(planned, "rollout") == [
        ("rollout", 0, 0.5),
        ("rollout", 1, 0.5),
        ("rollout", 2, 1.0),
    ]
    assert planned.needed() == {"CPU": 4}


def test_on_gpus_ranks_are_beside_rollout_workers_by_default() -> None:
    planned = plan({"dp_size": 3, "rollout_workers": 1, "device": "cuda"})
    assert where(planned, "train") == [("rollout", 0, 0.5), ("train", 0, 1.0), ("train", 1, 1.0)]
    assert planned.parts[0].bundles == ({"GPU": 1.0, "CPU": 2.0},)
    assert planned.needed() == {"GPU": 3, "CPU": 4}


def test_ranks_span_the_pools_of_workers_that_rest() -> None:
    cluster = {"dp_size": 4, "rollout_workers": 2, "train_pool": "rollout_and_reward"}
    own = {"enable_resource_pool": True, "n_gpus_per_node": 2, "dp_size": 2}
    planned = plan({**cluster, "device": "cuda"}, own)
    assert where(planned, "train") == [
        ("rollout", 0, 0.5),
        ("rollout", 1, 0.5),
        ("reward", 0, 0.5),
        ("reward", 1, 0.5),
    ]
    assert planned.needed() == {"GPU": 4, "CPU": 8}
    # On one bundle with both.
    shared = plan({**cluster, "dp_size": 2}, {"dp_size": 1})
    assert where(shared, "train") == [("rollout", 0, 1 / 3), ("rollout", 1, 0.5)]
    assert where(shared, "reward") == [("rollout", 0, 1 / 3)]
    assert shared.needed() == {"CPU": 2}


@pytest.mark.parametrize("dp_size", [1, 2, 5])
@pytest.mark.parametrize("pool", ["own", "rollout", "rollout_and_reward"])
@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize("own", [True, False])
def test_shares_fill_no_bundle_twice_and_no_two_ranks_share_one(
    dp_size: int, pool: str, device: str, own: bool
) -> None:
    planned = plan(
        {"dp_size": dp_size, "rollout_workers": 2, "train_pool": pool, "device": device},
        {"enable_resource_pool": own, "n_gpus_per_node": 2 if own else 1, "dp_size": 2},
    )
    assert {kind: len(places) for kind, places in planned.places.items()} == {
        "train": dp_size,
        "rollout": 2,
        "reward": 2,
    }
    used: dict[tuple[int, int], float] = {}
    for places in planned.places.values():
        at = [(place.part, place.bundle) for place in places]
        assert len(at) == len(set(at)), "workers of one kind are on bundles of their own"
        for place in places:
            key = (place.part, place.bundle)
            used[key] = used.get(key, 0) + place.share
    bundles = {(p, b) for p, part in enumerate(planned.parts) for b in range(len(part.bundles))}
    assert used.keys() == bundles
    assert all(total == pytest.approx(1) for total in used.values())


def test_a_pool_on_several_nodes_has_a_part_on_each() -> None:
    nodes = [
        {"GPU": 2.0, "CPU": 8.0, "node:10.0.0.1": 1.0, "node:__internal_head__": 1.0},
        {"GPU": 4.0, "CPU": 8.0, "node:10.0.0.2": 1.0},
        {"GPU": 4.0, "CPU": 8.0, "node:10.0.0.3": 1.0},
    ]
    planned = plan(
        {"dp_size": 4, "rollout_workers": 2, "device": "cuda", "train_pool": "own"}
        | {"train_nnodes": 2, "rollout_nnodes": 1},
        {"enable_resource_pool": True, "nnodes": 2, "n_gpus_per_node": 2, "dp_size": 4},
        *nodes,
    )
    assert [(part.pool, len(part.bundles), part.node) for part in planned.parts] == [
        ("rollout", 2, ""),
        ("reward", 2, "node:10.0.0.2"),
        ("reward", 2, "node:10.0.0.3"),
        ("train", 2, "node:10.0.0.2"),
        ("train", 2, "node:10.0.0.3"),
    ]
    assert all(part.one_node for part in planned.parts)
    assert [(place.part, place.bundle) for place in planned.places["train"]] == [
        (3, 0),
        (3, 1),
        (4, 0),
        (4, 1),
    ]


def test_ranks_may_be_anywhere_by_default() -> None:
    planned = plan({"dp_size": 4}, None, *[{"CPU": 3.0}] * 2)
    assert [part.one_node for part in planned.parts] == [False, False]


@pytest.mark.parametrize(
    ("device", "rollout_workers", "there", "said"),
    [
        ("cpu", 1, {"CPU": 5.0}, ""),
        ("cpu", 1, {"CPU": 4.0}, "takes 5 CPUs, and Ray has 4 "),
        ("cpu", 3, {"CPU": 7.0}, ""),
        ("cpu", 3, {"CPU": 6.0}, "takes 7 CPUs, and Ray has 6 "),
        ("cuda", 1, {"CPU": 5.0, "GPU": 4.0}, ""),
        ("cuda", 1, {"CPU": 5.0, "GPU": 3.0}, "takes 4 GPUs, and Ray has 3 "),
        ("cuda", 1, {"CPU": 5.0}, "takes 4 GPUs, and Ray has 0 "),
        ("cuda", 4, {"CPU": 8.0, "GPU": 4.0}, ""),
        ("cuda", 5, {"CPU": 9.0, "GPU": 4.0}, "takes 5 GPUs, and Ray has 4 "),
        ("cuda", 5, {"CPU": 8.0, "GPU": 5.0}, "takes 9 CPUs, and Ray has 8 "),
    ],
)
def test_actors_without_a_place_are_told(
    device: str, rollout_workers: int, there: dict[str, float], said: str
) -> None:
    cluster = {"dp_size": 4, "rollout_workers": rollout_workers, "device": device}
    if not said:
        assert len(plan(cluster, None, there).places["train"]) == 4
        return
    with pytest.raises(ValueError, match=said):
        plan(cluster, None, there)


@pytest.mark.parametrize(
    ("cluster", "reward", "nodes", "said"),
    [
        (
            {},
            {"enable_resource_pool": True, "nnodes": 2},
            [{"CPU": 8.0}],
            "dp_size=1 workers don't fill a pool of nnodes=2 x n_gpus_per_node=1: set "
            "reward_model.dp_size=2, or nnodes=1 and n_gpus_per_node=1",
        ),
        (
            {},
            {"dp_size": 2},
            [{"CPU": 8.0}],
            "dp_size=2 workers don't fit the pool of cluster.rollout_workers=1, one on each "
            "bundle: set reward_model.dp_size to at most 1",
        ),
        (
            {},
            {"n_gpus_per_node": 2, "dp_size": 2},
            [{"CPU": 8.0}],
            "are the size of a pool of its own: set reward_model.enable_resource_pool=true",
        ),
        (
            {"dp_size": 6, "train_nnodes": 4},
            None,
            [{"CPU": 8.0}],
            "dp_size=6 can't be spread evenly over cluster.train_nnodes=4: set "
            "cluster.train_nnodes to 1 or 2 or 3 or 6",
        ),
        (
            {"rollout_workers": 3, "rollout_nnodes": 2},
            None,
            [{"CPU": 8.0}],
            "cluster.rollout_workers=3 can't be spread evenly",
        ),
        (
            {"train_nnodes": 1, "train_pool": "rollout"},
            None,
            [{"CPU": 8.0}],
            "set cluster.train_pool=own, or leave it out",
        ),
        (
            {"dp_size": 4, "train_nnodes": 1},
            None,
            [{"CPU": 3.0}, {"CPU": 3.0}],
            "the train pool needs 1 nodes with 4 CPUs each, beside the other pools; Ray's nodes "
            "have 3, 3 CPUs: change cluster.train_nnodes",
        ),
        (
            {},
            {"enable_resource_pool": True, "n_gpus_per_node": 2, "nnodes": 2, "dp_size": 4},
            [{"CPU": 8.0}],
            "the reward pool needs 2 nodes with 2 CPUs each",
        ),
    ],
)
def test_wrong_sizes_say_what_would_fit(
    cluster: dict[str, Any], reward: dict[str, Any] | None, nodes: Nodes, said: str
) -> None:
    with pytest.raises(ValueError, match=re.escape(said)):
        plan(cluster, reward, *nodes)
