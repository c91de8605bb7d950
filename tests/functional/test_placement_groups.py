"""Resource pools as placement groups of a real Ray."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import ray
from ray.util import placement_group, placement_group_table, remove_placement_group

from rlconform.backends.ray_runtime import ensure_ray
from rlconform.grpo.config import ClusterConfig, RewardModelConfig
from rlconform.grpo.failures import WorkerLost
from rlconform.grpo.placement_groups import PlacementGroups, ray_nodes
from rlconform.grpo.resource_pools import Kind, plan_pools

pytestmark = [pytest.mark.timeout(300), pytest.mark.xdist_group("placement_groups")]

CPUS = 16
#: For Ray to start a process on a busy machine.
SOON = 200


class Resident:
    """An actor that tells where it is."""

    def group(self) -> str:
        """Id of its placement group."""
        return str(ray.util.get_current_placement_group().id.hex())


@pytest.fixture(scope="module", autouse=True)
def runtime() -> Iterator[None]:
    with ensure_ray():
        yield


def reserved() -> dict[str, list[dict[str, float]]]:
    """The bundles of each placement group that is not removed, by id."""
    return {
        group: [entry["bundles"][index] for index in sorted(entry["bundles"])]
        for group, entry in placement_group_table().items()
        if entry["state"] != "REMOVED"
    }


@pytest.fixture
def open_pools() -> Iterator[Callable[..., PlacementGroups]]:
    """``open_pools(cluster, reward)``: they are closed after the test, and leave nothing."""
    opened: list[PlacementGroups] = []
    before = reserved()

    def start(cluster: dict[str, Any], reward: dict[str, Any]) -> PlacementGroups:
        conf = ClusterConfig.model_validate({"timeout_s": float(SOON), **cluster})
        plan = plan_pools(conf, RewardModelConfig.model_validate(reward), ray_nodes())
        opened.append(PlacementGroups(plan, conf.timeout_s))
        return opened[-1]

    yield start
    for pools in opened:
        pools.close()
        pools.close()
    assert reserved() == before


@pytest.fixture
def other_user() -> Iterator[None]:
    """Somebody else uses all CPUs but two."""
    group = placement_group([{"CPU": CPUS - 2}])
    assert group.wait(SOON)
    yield
    remove_placement_group(group)


def test_workers_are_in_their_pools_and_give_them_back(
    open_pools: Callable[..., PlacementGroups],
) -> None:
    pools = open_pools({"dp_size": 2, "rollout_workers": 2}, {"dp_size": 1})
    assert sorted(reserved().values()) == [[{"CPU": 1.0}] * 2] * 2
    kinds: list[Kind] = ["train", "rollout", "reward"]
    actors = [ray.remote(Resident).options(**pools.options(kind)[0]).remote() for kind in kinds]
    train, rollout, reward = ray.get([actor.group.remote() for actor in actors], timeout=SOON)
    assert reward == rollout != train
    assert {train, rollout} == reserved().keys()
    pools.close()
    assert reserved() == {}
    # All cores are free again: Ray reserves all of them.
    whole = placement_group([{"CPU": 1}] * CPUS)
    assert whole.wait(SOON)
    remove_placement_group(whole)


def test_a_pool_of_its_own_is_apart(open_pools: Callable[..., PlacementGroups]) -> None:
    pools = open_pools(
        {"dp_size": 3, "train_pool": "rollout_and_reward"},
        {"enable_resource_pool": True, "n_gpus_per_node": 2, "dp_size": 2},
    )
    assert sorted(map(len, reserved().values())) == [1, 2]
    strategies = {
        kind: [each["scheduling_strategy"].placement_group.id for each in pools.options(kind)]
        for kind in ("rollout", "reward", "train")
    }
    assert strategies["train"] == [*strategies["rollout"], *strategies["reward"]]
    assert [each["num_cpus"] for each in pools.options("train")] == [0.5] * 3


@pytest.mark.usefixtures("other_user")
def test_resources_that_others_use_are_told_and_nothing_stays_reserved(
    open_pools: Callable[..., PlacementGroups],
) -> None:
    before = reserved()
    with pytest.raises(WorkerLost, match=r"bundles of the train pool in 2 s .* CPUs are free"):
        open_pools({"dp_size": 4, "timeout_s": 2.0}, {"dp_size": 1})
    assert reserved() == before
