"""Fixtures for tests on a GPU: actors of one run at a time, since a machine may have one GPU."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import pytest
import torch

from rlconform.backends.ray_runtime import ensure_ray
from rlconform.certify.target import open_target
from rlconform.grpo.actors import RunActors
from rlconform.grpo.compare_runs import TrainingRecord, run_to_end
from rlconform.grpo.config import MasterConfig
from rlconform.grpo.rollout.plane_worker import PlaneRolloutWorker
from rlconform.grpo.rollout.worker import RolloutWorker
from rlconform.grpo.trainers.async_plane import AsyncPlaneTrainer
from rlconform.grpo.trainers.legacy import LegacyTrainer
from rlconform.grpo.trainers.plane import PlaneTrainer
from rlconform.grpo.workers.plane_policy_worker import PlanePolicyWorker
from rlconform.grpo.workers.policy_worker import PolicyWorker

PLANE = "ray_store"


@pytest.fixture(scope="session")
def gpus() -> int:
    """The number of GPUs of this machine; tests are skipped if there is none."""
    count = torch.cuda.device_count()
    if count == 0:
        pytest.skip("this machine has no GPU")
    return count


@pytest.fixture(scope="session")
def gpu_ray(gpus: int) -> Iterator[int]:
    """A Ray of the tests' own, with all GPUs of the machine; their number."""
    with ensure_ray(object_store_bytes=2**28):
        yield gpus


Train = Callable[[MasterConfig], TrainingRecord]


@pytest.fixture
def in_memory(gpu_ray: int) -> Train:
    """``in_memory(config)`` trains without a plane, on actors that end with the run."""
    assert gpu_ray > 0

    def train(config: MasterConfig) -> TrainingRecord:
        actors = RunActors(
            PolicyWorker, RolloutWorker, config.cluster, reward_model=config.reward_model
        )
        try:
            return run_to_end(LegacyTrainer(config, actors))
        finally:
            actors.shutdown()

    return train


@pytest.fixture
def through_plane(gpu_ray: int) -> Train:
    """``through_plane(config)`` trains through a plane, on actors that end with the run."""
    assert gpu_ray > 0

    def train(config: MasterConfig) -> TrainingRecord:
        trainer_class = PlaneTrainer if config.async_rl is None else AsyncPlaneTrainer
        actors = RunActors(
            PlanePolicyWorker, PlaneRolloutWorker, config.cluster, groups_in_flight=8,
            reward_model=config.reward_model,
        )  # fmt: skip
        owner = open_target(PLANE)
        try:
            trainer = trainer_class(
                config, actors, owner, partial(open_target, PLANE, bootstrap=False)
            )
            try:
                return run_to_end(trainer)
            finally:
                trainer.shutdown()
        finally:
            actors.shutdown()
            owner.close()

    return train
