"""Fixtures for GRPO runs in one private Ray; all runs share the actors and planes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial

import pytest

from rlconform.backends.ray_runtime import ensure_ray
from rlconform.certify.scenarios.training_actors import RANKS, SMALL
from rlconform.certify.target import open_target
from rlconform.contract import DataPlaneClient
from rlconform.grpo.actors import RunActors
from rlconform.grpo.compare_runs import TrainingRecord, run_to_end
from rlconform.grpo.config import ClusterConfig, MasterConfig, load_config
from rlconform.grpo.plane_traffic import Attach
from rlconform.grpo.rollout.plane_worker import PlaneRolloutWorker
from rlconform.grpo.rollout.worker import RolloutWorker
from rlconform.grpo.trainers.async_plane import AsyncPlaneTrainer
from rlconform.grpo.trainers.legacy import LegacyTrainer
from rlconform.grpo.trainers.plane import PlaneTrainer
from rlconform.grpo.workers.plane_policy_worker import PlanePolicyWorker
from rlconform.grpo.workers.policy_worker import PolicyWorker

#: Planes that several processes can attach to.
PLANES = ("ray_store", "transfer_queue/simple", "transfer_queue/mooncake_cpu")


@dataclass
class Runs:
    """Runs trainers on actors that are already started."""

    legacy_actors: RunActors
    plane_actors: RunActors
    _legacy: dict[str, TrainingRecord] = field(default_factory=dict)

    def open_plane(self, name: str) -> DataPlaneClient:
        """Start a plane in the actors' Ray; return the owner's client."""
        return open_target(name)

    def legacy(self, config: MasterConfig) -> TrainingRecord:
        """Run in memory, once per configuration."""
        key = config.model_dump_json()
        if key not in self._legacy:
            self._legacy[key] = run_to_end(LegacyTrainer(config, self.legacy_actors))
        return self._legacy[key]

    def plane(
        self, config: MasterConfig, client: DataPlaneClient, attach: Attach
    ) -> TrainingRecord:
        """Run through the plane of ``client``; actors attach to it with ``attach``."""
        trainer_class = PlaneTrainer if config.async_rl is None else AsyncPlaneTrainer
        trainer = trainer_class(config, self.plane_actors, client, attach)
        try:
            return run_to_end(trainer)
        finally:
            trainer.shutdown()


@pytest.fixture(scope="session")
def runs() -> Iterator[Runs]:
    """Actors of the legacy and of the plane trainer, with ``RANKS`` ranks each."""
    cluster = ClusterConfig(dp_size=RANKS)
    with ensure_ray(object_store_bytes=2**28):
        legacy = RunActors(PolicyWorker, RolloutWorker, cluster)
        plane = RunActors(PlanePolicyWorker, PlaneRolloutWorker, cluster, groups_in_flight=8)
        yield Runs(legacy, plane)
        plane.shutdown()
        legacy.shutdown()


@pytest.fixture(scope="module", params=PLANES)
def plane_name(request: pytest.FixtureRequest) -> str:
    """The name of each plane, one after the other."""
    name: str = request.param
    return name


@pytest.fixture(scope="module")
def owner(plane_name: str, runs: Runs) -> Iterator[DataPlaneClient]:
    """The client that owns the plane, open for all tests of a module."""
    client = runs.open_plane(plane_name)
    yield client
    client.close()


@pytest.fixture
def attach(plane_name: str) -> Attach:
    """Opens a client of the plane in an actor."""
    return partial(open_target, plane_name, bootstrap=False)


@pytest.fixture
def small() -> Callable[..., MasterConfig]:
    """``small(name, *overrides)``: a reference configuration with smaller sizes."""
    return lambda name, *overrides: load_config(name, [*SMALL, *overrides])
