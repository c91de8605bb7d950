"""Two rollout workers as Ray actors: refits of all, digests, groups in flight beside control calls.

driver ── generate_group ──▶ thread of worker 0, which waits before its token 1
       ── refit, abort ────▶ other threads of worker 0, while the group waits
       ── release ─────────▶ the group goes on
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import pytest
import ray
import torch
from torch import Tensor

from rlconform.certify.target import open_target
from rlconform.contract.fields import INPUT_IDS
from rlconform.grpo.actors import RunActors
from rlconform.grpo.config import ClusterConfig, MasterConfig
from rlconform.grpo.failures import DataFailure, ModelFailure, TornWeights, WorkerDied
from rlconform.grpo.generation import GenerationEngine, ShouldStop, never_stop
from rlconform.grpo.rewards.reward_workers import RewardWorkers
from rlconform.grpo.rollout.groups import AbortedGroup, GroupRollout
from rlconform.grpo.rollout.plane_worker import PlaneRolloutWorker
from rlconform.grpo.rollout.worker import ROLLOUT_FIELDS, TOKEN_VERSIONS
from rlconform.grpo.tasks import Problem, build_task
from rlconform.grpo.workers.plane_policy_worker import PlanePolicyWorker

pytestmark = pytest.mark.timeout(180)

PARTITION = "train"
FIELDS = [*ROLLOUT_FIELDS, TOKEN_VERSIONS]
GROUP = 4
TIMEOUT_S = 60.0


class HeldWorker(PlaneRolloutWorker):
    """A rollout worker whose groups wait before token 1 until they are released."""

    held = False

    def hold(self) -> None:
        """Let the groups that begin from now on wait."""
        self.held, self._waiting, self._release = True, threading.Semaphore(0), threading.Event()

    def wait_until_held(self, groups: int) -> bool:
        """Wait until this many groups wait; return whether they do."""
        return all(self._waiting.acquire(timeout=TIMEOUT_S) for _ in range(groups))

    def release(self) -> None:
        """Let them go on."""
        self._release.set()
        self.held = False

    def build(self, config: MasterConfig, reward_workers: RewardWorkers | None = None) -> None:
        super().build(config, reward_workers)
        engine, generate = self.engine, self.engine.generate

        def generate_held(*args: Any, should_stop: ShouldStop = never_stop, **kwargs: Any) -> Any:
            number = iter(range(1000))

            def stop() -> bool:
                if next(number) == 1 and self.held:
                    self._waiting.release()
                    assert self._release.wait(TIMEOUT_S)
                return should_stop()

            return generate(*args, should_stop=stop, **kwargs)

        engine.generate = generate_held  # type: ignore[method-assign]

    def tear(self) -> None:
        """Lose the last layer of the weights of each later refit."""
        engine: GenerationEngine = self.engine
        load = engine._load_weights

        def load_torn(weights: Mapping[str, Tensor]) -> str:
            torn = torch.zeros_like(weights["lm_head.weight"])
            return load({**weights, "lm_head.weight": torn})

        engine._load_weights = load_torn  # type: ignore[method-assign]


@pytest.fixture(scope="module")
def actors(runs: Any) -> Iterator[RunActors]:  # noqa: ARG001 - starts Ray
    cluster = ClusterConfig(rollout_workers=2, timeout_s=TIMEOUT_S)
    started = RunActors(PlanePolicyWorker, HeldWorker, cluster, groups_in_flight=2)
    yield started
    started.shutdown()


@pytest.fixture(scope="module")
def plane_name() -> str:
    return "ray_store"


@pytest.fixture
def config(small: Callable[..., MasterConfig], actors: RunActors, owner: Any) -> MasterConfig:
    """The configuration of a run that the actors are built and attached for."""
    conf = small("tiny_llama_copy", "cluster.dp_size=1")
    actors.build(conf)
    attach = partial(open_target, "ray_store", bootstrap=False)
    actors.call_rollout_workers(HeldWorker.attach, attach)
    owner.register_partition(PARTITION, FIELDS, 64, ["train"], GROUP)
    return conf


def problem(conf: MasterConfig) -> Problem:
    return build_task(conf.data, conf.grpo.seed, "train").problem(0)


def start(actors: RunActors, index: int, conf: MasterConfig, group_id: str) -> Any:
    return actors.start_on_rollout_worker(
        index, HeldWorker.generate_group, problem(conf), group_id, PARTITION
    )


def test_all_workers_get_the_weights_and_generate_the_same_rows(
    actors: RunActors, config: MasterConfig, owner: Any
) -> None:
    actors.refit(3)
    groups: list[GroupRollout] = []
    tokens: list[list[Tensor]] = []
    for index in range(2):
        group = ray.get(start(actors, index, config, "g"), timeout=TIMEOUT_S)
        assert isinstance(group, GroupRollout)
        batch = owner.get_samples(group.meta.sample_ids, PARTITION, [INPUT_IDS])
        tokens.append([row.clone() for row in batch[INPUT_IDS].unbind()])
        owner.clear_samples(group.meta.sample_ids, PARTITION)
        groups.append(group)
    assert [(group.start_version, group.end_version) for group in groups] == [(3, 3)] * 2
    assert groups[0].summaries == groups[1].summaries
    assert all(torch.equal(one, other) for one, other in zip(*tokens, strict=True))


def test_a_refit_and_an_abort_reach_groups_in_flight(
    actors: RunActors, config: MasterConfig, owner: Any
) -> None:
    actors.call_rollout_worker(HeldWorker.hold)
    calls = {name: start(actors, 0, config, name) for name in "ab"}
    assert actors.call_rollout_worker(HeldWorker.wait_until_held, 2)
    actors.refit(1)
    actors.call_rollout_worker(HeldWorker.abort, ["a"])
    actors.call_rollout_worker(HeldWorker.release)
    aborted, whole = (ray.get(calls[name], timeout=TIMEOUT_S) for name in "ab")
    assert isinstance(aborted, AbortedGroup)
    assert isinstance(whole, GroupRollout)
    assert (whole.start_version, whole.end_version) == (0, 1)
    with pytest.raises(LookupError):
        owner.get_samples(["a_g0"], PARTITION, [INPUT_IDS])
    # Another worker goes on.
    again = ray.get(
        actors.start_on_rollout_worker(
            1, HeldWorker.generate_group, problem(config), "a", PARTITION, aborted.partial
        ),
        timeout=TIMEOUT_S,
    )
    assert isinstance(again, GroupRollout)
    assert (again.start_version, again.end_version) == (0, 1)
    owner.clear_samples([*whole.meta.sample_ids, *again.meta.sample_ids], PARTITION)


def test_a_worker_with_other_weights_is_named(actors: RunActors, config: MasterConfig) -> None:  # noqa: ARG001
    actors.refit(1)
    ray.get(actors.start_on_rollout_worker(1, HeldWorker.tear), timeout=TIMEOUT_S)
    with pytest.raises(TornWeights, match=r"version 2: .* rollout worker 1 holds") as caught:
        actors.refit(2)
    assert "rollout worker 0" not in str(caught.value)


def test_typed_failures_come_through_ray(
    actors: RunActors, config: MasterConfig, small: Callable[..., MasterConfig]
) -> None:
    long = Problem("long", ({"role": "user", "content": "1" * 30},), "1")
    with pytest.raises(DataFailure, match="'long' has 33 tokens"):
        actors.call_rollout_worker(HeldWorker.generate_group, long, "long", PARTITION)
    with pytest.raises(DataFailure):
        actors.call_rollout_worker(HeldWorker.collect, [long], "train")
    conf = small("tiny_llama_copy", "cluster.dp_size=1")
    actors.build(conf)
    weights = actors.workers.all(PlanePolicyWorker.weights)[0]
    broken = {name: torch.full_like(leaf, float("nan")) for name, leaf in weights.items()}
    actors.call_rollout_worker(HeldWorker.refit, broken, 1)
    with pytest.raises(ModelFailure, match="NaN or infinite"):
        actors.call_rollout_worker(HeldWorker.generate_group, problem(config), "broken", PARTITION)


def test_the_living_workers_are_called_until_none_is_left(
    runs: Any,  # noqa: ARG001 - starts Ray
    small: Callable[..., MasterConfig],
) -> None:
    cluster = ClusterConfig(rollout_workers=2, timeout_s=TIMEOUT_S)
    lost = RunActors(PlanePolicyWorker, HeldWorker, cluster)
    ray.kill(lost.rollout_workers[1])
    assert lost.call_rollout_workers(HeldWorker.detach) == [None]
    assert lost.living == [0]
    with pytest.raises(WorkerDied, match=r"expected 2 rollout workers; \[1\] have died"):
        lost.build(small("tiny_llama_copy", "cluster.dp_size=1"))
    ray.kill(lost.rollout_workers[0])
    with pytest.raises(WorkerDied, match="a rollout worker's detach: the actor died"):
        lost.call_rollout_workers(HeldWorker.detach)
    with pytest.raises(WorkerDied, match="all rollout workers have died"):
        lost.call_rollout_worker(HeldWorker.detach)
    lost.shutdown()
    lost.shutdown()
