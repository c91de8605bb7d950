"""``PlacementGroups``: reserves the pools of a ``PoolPlan`` in Ray, and returns them.

    driver ── open ──▶ Ray: one placement group per part of a pool
           ── options(kind) ──▶ Ray's options of each worker of this kind
           ── close ──▶ Ray: the reservations end, after the workers were killed

The driver waits until Ray has reserved all of them, at most ``timeout_s``.
"""

from __future__ import annotations

import time
from typing import Any

import ray
from ray.util import placement_group, placement_group_table, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from rlconform.contract import ConfigError
from rlconform.grpo.failures import WorkerLost
from rlconform.grpo.resource_pools import Kind, PlaceInPool, PoolPart, PoolPlan

#: What a bundle takes of its node's own resource, of which each node has 1.
_TOKEN = 0.001


def ray_nodes() -> list[dict[str, float]]:
    """Return the resources of each of Ray's nodes, for ``plan_pools``."""
    nodes: list[dict[str, Any]] = ray.nodes()  # type: ignore[no-untyped-call]
    return [node["Resources"] for node in nodes if node["Alive"]]


class PlacementGroups:
    """The reserved pools of a run.

    Raises:
        WorkerLost: Ray did not reserve them in time, because others use its resources.
        ConfigError: Ray put two parts of a pool on one node.
    """

    def __init__(self, plan: PoolPlan, timeout_s: float) -> None:
        self._plan = plan
        self._groups: list[Any] = [_reserve(part) for part in plan.parts]
        try:
            self._wait(timeout_s)
            self._check_nodes()
        except BaseException:
            self.close()
            raise

    def options(self, kind: Kind, *, max_concurrency: int = 1) -> list[dict[str, Any]]:
        """Return the options of the workers of a kind, by index, for ``ActorClass.options``."""
        return [
            {
                **self._resources(place),
                "max_concurrency": max_concurrency,
                "scheduling_strategy": PlacementGroupSchedulingStrategy(
                    self._groups[place.part], placement_group_bundle_index=place.bundle
                ),
            }
            for place in self._plan.places[kind]
        ]

    def close(self) -> None:
        """Return the resources; Ray kills workers that still use them. Idempotent."""
        for group in self._groups:
            remove_placement_group(group)
        self._groups = []

    def _resources(self, place: PlaceInPool) -> dict[str, float]:
        if self._plan.unit == "GPU":
            return {"num_cpus": 1, "num_gpus": place.share}
        return {"num_cpus": place.share, "num_gpus": 0}

    def _wait(self, timeout_s: float) -> None:
        end = time.monotonic() + timeout_s
        for group, part in zip(self._groups, self._plan.parts, strict=True):
            if not group.wait(max(0.0, end - time.monotonic())):
                free: dict[str, float] = ray.available_resources()  # type: ignore[no-untyped-call]
                left = ", ".join(f"{free.get(name, 0):g} {name}s" for name in part.needed())
                raise WorkerLost(
                    f"expected Ray to reserve {len(part.bundles)} bundles of the {part.pool} pool "
                    f"in {timeout_s:g} s (cluster.timeout_s); {left} are free beside this run's: "
                    "end what uses the others"
                )

    def _check_nodes(self) -> None:
        """Compare the nodes of parts that must be on different ones."""
        on: dict[tuple[Kind, str], int] = {}
        for number, part in enumerate(self._plan.parts):
            if not part.node:
                continue
            table: dict[str, Any] = placement_group_table(self._groups[number])
            for node in set(table["bundles_to_node_id"].values()):
                if on.setdefault((part.pool, node), number) != number:
                    raise ConfigError(
                        f"expected the parts of the {part.pool} pool on different nodes; Ray has "
                        f"two on node {node}, whose address several nodes share: give each node "
                        "an address of its own, or set the pool's nnodes to 1"
                    )


def _reserve(part: PoolPart) -> Any:
    bundles = [{**bundle, **({part.node: _TOKEN} if part.node else {})} for bundle in part.bundles]
    return placement_group(bundles, strategy="STRICT_PACK" if part.one_node else "PACK")
