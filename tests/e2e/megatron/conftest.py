"""Ranks of Megatron-core on the CPU, in groups of 1, 2 and 4 actors, for all layouts of a size."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from tensordict import TensorDict
from torch import Tensor

from rlconform.backends.ray_runtime import ensure_ray
from rlconform.backends.ray_worker_server import NEEDED_BY_WORKERS, start_separate_server
from rlconform.certify.scenarios.training_actors import SMALL
from rlconform.certify.target import open_target
from rlconform.contract.fields import INPUT_IDS, INPUT_LENGTHS
from rlconform.grpo.actors import RunActors
from rlconform.grpo.config import ClusterConfig, MasterConfig, load_config
from rlconform.grpo.plane_traffic import Attach
from rlconform.grpo.rollout.plane_worker import PlaneRolloutWorker
from rlconform.grpo.trainers.legacy_policy import LegacyPolicy
from rlconform.grpo.workers.plane_policy_worker import PlanePolicyWorker
from rlconform.grpo.workers.policy_worker import PolicyWorker
from rlconform.grpo.workers.worker_group import WorkerGroup

_KEYS = {
    "tp": "tensor_model_parallel_size",
    "pp": "pipeline_model_parallel_size",
    "ep": "expert_model_parallel_size",
    "sp": "sequence_parallel",
    "zero": "optimizer.use_distributed_optimizer",
    "fetch": "fetch_policy",
    "recompute": "activation_checkpointing",
}

N, WIDTH = 16, 12


class Layout(NamedTuple):
    """A number of ranks, and the options by which they divide the model."""

    world: int
    options: str  # such as "tp=2 sp=true"

    @property
    def overrides(self) -> list[str]:
        pairs = [option.split("=") for option in self.options.split()]
        megatron = [f"policy.megatron_cfg.{_KEYS[key]}={value}" for key, value in pairs]
        return ["policy.megatron_cfg.enabled=true", *megatron]


LAYOUTS = {
    "tp2": Layout(2, "tp=2"),
    "tp2 leader": Layout(2, "tp=2 fetch=leader"),
    "tp2 sp": Layout(2, "tp=2 sp=true"),
    "pp2": Layout(2, "pp=2"),
    "dp2": Layout(2, ""),
    "dp2 zero": Layout(2, "zero=true"),
    "ep2": Layout(2, "ep=2"),
    "ep2 zero": Layout(2, "ep=2 zero=true"),
    "tp2 sp ep2": Layout(2, "tp=2 sp=true ep=2"),
    "tp2 sp recompute": Layout(2, "tp=2 sp=true recompute=true"),
    "tp2 dp2": Layout(4, "tp=2 zero=true"),
    "tp2 sp dp2": Layout(4, "tp=2 sp=true"),
    "pp2 ep2": Layout(4, "pp=2 ep=2"),
}


def batch() -> TensorDict:
    """Rows of several lengths, with all columns that training reads.

    None has the pad token within it: transformers never trains that token, and Megatron does.
    """
    draws = torch.Generator().manual_seed(0)
    lengths = torch.randint(3, WIDTH + 1, (N,), generator=draws)
    valid = torch.arange(WIDTH) < lengths[:, None]
    per_token = ("generation_logprobs", "prev_logprobs", "reference_policy_logprobs", "advantages")
    noise = {name: torch.randn((N, WIDTH), generator=draws) * valid for name in per_token}
    return TensorDict(
        {
            INPUT_IDS: torch.randint(4, 14, (N, WIDTH), generator=draws) * valid,
            INPUT_LENGTHS: lengths,
            "token_mask": (valid & (torch.arange(WIDTH) >= 2)).int(),
            "sample_mask": (torch.arange(N) != 5).float(),
            **noise,
        },
        batch_size=[N],
    )


#: What each rank imports.
MODULES = ("transformers", "megatron.core.models.gpt", "rlconform.grpo.workers.plane_policy_worker")
CPU_COMPAT = Path(__file__).with_name("cpu_compat.py")


class CpuRank(PlanePolicyWorker):
    """A rank whose process lets Megatron use the CPU, see ``cpu_compat``; it has a plane or none.

    ``test_failures`` breaks a rank by ``break_passes``.
    """

    def __init__(self, rank: int, world: int, device: str, compat: str = str(CPU_COMPAT)) -> None:
        import runpy

        runpy.run_path(compat)["use_cpu_for_cuda"]()
        super().__init__(rank, world, device)

    def break_passes(self, rank: int) -> None:
        """Make the model fail on one rank, in the second micro-batch."""
        from contextlib import nullcontext

        policy: Any = self.policy
        passes: list[None] = []

        def fail(_rows: Any, _given: Any) -> Any:
            passes.append(None)
            if len(passes) == 2:
                raise ArithmeticError("this rank is broken")
            return nullcontext()

        if self.rank == rank:
            policy.passes.around_forward = fail

    def part_size(self) -> int:
        """Return the number of weights of this rank."""
        policy: Any = self.policy
        return sum(weight.numel() for weight in policy.model.parameters())


@pytest.fixture(scope="session", autouse=True)
def ray() -> Iterator[None]:
    """A Ray whose workers have Megatron imported, which takes seconds in each of eleven actors."""
    os.environ["TORCHDYNAMO_DISABLE"] = "1"  # before Megatron's import, see ``cpu_compat``
    start_separate_server([*NEEDED_BY_WORKERS, *MODULES])
    with ensure_ray(object_store_bytes=2**28):
        yield


@pytest.fixture(scope="session")
def groups() -> Iterator[Callable[[int], RunActors]]:
    """``groups(world)``: that many ranks and a rollout worker, started once."""
    started: dict[int, RunActors] = {}

    def of(world: int) -> RunActors:
        if world not in started:
            cluster = ClusterConfig(dp_size=world, timeout_s=300)
            started[world] = RunActors(CpuRank, PlaneRolloutWorker, cluster, groups_in_flight=8)
        return started[world]

    yield of
    for actors in started.values():
        actors.shutdown()


@pytest.fixture(scope="session")
def ranks(groups: Callable[[int], RunActors]) -> Callable[[int], WorkerGroup]:
    """``ranks(world)``: the policy workers of ``groups``."""
    return lambda world: groups(world).workers


@pytest.fixture(params=["ray_store"])
def plane_name(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture
def owner(plane_name: str) -> Iterator[Any]:
    """The client that owns the plane."""
    client = open_target(plane_name)
    yield client
    client.close()


@pytest.fixture
def attach(plane_name: str) -> Attach:
    return partial(open_target, plane_name, bootstrap=False)


@pytest.fixture(scope="session")
def rank_class() -> type[CpuRank]:
    return CpuRank


@pytest.fixture
def rows() -> TensorDict:
    return batch()


@pytest.fixture(scope="session")
def world_of() -> Callable[[str], int]:
    """``world_of(layout)``: its number of ranks."""
    return lambda name: LAYOUTS[name].world


@pytest.fixture(scope="session")
def configure() -> Callable[..., MasterConfig]:
    """``configure(model, layout, *overrides)``: a small run; the layout "torch" has no Megatron."""

    def of(model: str, layout: str, *overrides: str) -> MasterConfig:
        chosen = [] if layout == "torch" else LAYOUTS[layout].overrides
        common = [
            "policy.packing.sequence_length_round=2",
            "policy.optimizer.eps=1.0e-3",  # otherwise rounding errors alone change weights
            "policy.optimizer.weight_decay=0.01",
        ]
        return load_config(model, [*SMALL, *common, *chosen, *overrides])

    return of


class Updated(NamedTuple):
    """What a policy computes before, in, and after two updates."""

    logprobs: Tensor
    reference: Tensor
    updates: list[dict[str, float]]
    after: Tensor
    weights: dict[str, Tensor]


def update(group: WorkerGroup, config: MasterConfig) -> Updated:
    group.all(PolicyWorker.build, config)
    policy = LegacyPolicy(group, config)
    logprobs, reference = (
        compute(batch()) for compute in (policy.get_logprobs, policy.get_reference_policy_logprobs)
    )
    updates = policy.train(batch())
    return Updated(logprobs, reference, updates, policy.get_logprobs(batch()), weights_of(group))


@pytest.fixture(scope="session")
def updated(ranks: Callable[[int], WorkerGroup]) -> Callable[[int, MasterConfig], Updated]:
    """``updated(world, config)``: two updates on that many ranks, once per configuration."""
    done: dict[tuple[int, str], Updated] = {}

    def of(world: int, config: MasterConfig) -> Updated:
        key = (world, config.model_dump_json())
        if key not in done:
            done[key] = update(ranks(world), config)
        return done[key]

    return of


def weights_of(group: WorkerGroup) -> dict[str, Tensor]:
    whole, *_ = group.all(PolicyWorker.weights)
    return dict(whole)


@pytest.fixture(scope="session")
def weights() -> Callable[[WorkerGroup], dict[str, Tensor]]:
    """``weights(group)``: all weights by name."""
    return weights_of
