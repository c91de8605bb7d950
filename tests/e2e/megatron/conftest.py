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
from rlconform.contract.fields import INPUT_IDS, INPUT_LENGTHS, ROUTED_EXPERTS
from rlconform.grpo.actors import RunActors
from rlconform.grpo.config import ClusterConfig, MasterConfig, load_config
from rlconform.grpo.models import load_model_config
from rlconform.grpo.plane_traffic import Attach
from rlconform.grpo.rollout.plane_worker import PlaneRolloutWorker
from rlconform.grpo.router_replay.canaries import canary_routes
from rlconform.grpo.router_replay.route_format import RouteFormat
from rlconform.grpo.trainers.legacy_policy import LegacyPolicy
from rlconform.grpo.workers.plane_policy_worker import PlanePolicyWorker
from rlconform.grpo.workers.policy_worker import PolicyWorker
from rlconform.grpo.workers.worker_group import WorkerGroup

_KEYS = {
    "tp": "tensor_model_parallel_size",
    "pp": "pipeline_model_parallel_size",
    "cp": "context_parallel_size",
    "ep": "expert_model_parallel_size",
    "sp": "sequence_parallel",
    "zero": "optimizer.use_distributed_optimizer",
    "fetch": "fetch_policy",
    "recompute": "activation_checkpointing",
}

N, WIDTH = 16, 12
PAD = 0  # of the tiny models


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
    "pp2 recompute": Layout(2, "pp=2 recompute=true"),
    "cp2": Layout(2, "cp=2"),
    "cp2 ep2": Layout(2, "cp=2 ep=2"),
    "tp2 cp2": Layout(4, "tp=2 cp=2"),
    "tp2 dp2": Layout(4, "tp=2 zero=true"),
    "tp2 sp dp2": Layout(4, "tp=2 sp=true"),
    "pp2 ep2": Layout(4, "pp=2 ep=2"),
}


def batch(config: MasterConfig | None = None) -> TensorDict:
    """Rows of several lengths, with all columns that training reads.

    Two have the pad token within them, as an engine may sample it; it must get no gradient.
    For a configuration with router replay they have canary routes.
    """
    draws = torch.Generator().manual_seed(0)
    lengths = torch.randint(3, WIDTH + 1, (N,), generator=draws)
    valid = torch.arange(WIDTH) < lengths[:, None]
    per_token = ("generation_logprobs", "prev_logprobs", "reference_policy_logprobs", "advantages")
    noise = {name: torch.randn((N, WIDTH), generator=draws) * valid for name in per_token}
    ids = torch.randint(4, 14, (N, WIDTH), generator=draws) * valid
    ids[2, 2] = ids[9, 1] = PAD
    routes: dict[str, Tensor] = {}
    if config is not None and config.policy.router_replay.enabled:
        routes[ROUTED_EXPERTS] = canary_rows(config, lengths.tolist())
    return TensorDict(
        {
            INPUT_IDS: ids,
            INPUT_LENGTHS: lengths,
            "token_mask": (valid & (torch.arange(WIDTH) >= 2)).int(),
            "sample_mask": (torch.arange(N) != 5).float(),
            **noise,
            **routes,
        },
        batch_size=[N],
    )


def canary_rows(config: MasterConfig, lengths: list[int]) -> Tensor:
    """Make routes (N, WIDTH, L, K), unlike those of any router; a row's last token has none."""
    model: Any = load_model_config(config.policy.model_name)
    layers, experts = model.num_hidden_layers, model.num_experts
    route_format = RouteFormat(layers, model.num_experts_per_tok, experts)
    routes = route_format.blank(len(lengths), WIDTH)
    for row, length in enumerate(lengths):
        routes[row, : length - 1] = canary_routes(length - 1, route_format, row * WIDTH)
    return routes


#: What each rank imports.
MODULES = ("transformers", "megatron.core.models.gpt", "rlconform.grpo.workers.plane_policy_worker")
CPU_COMPAT = Path(__file__).with_name("cpu_compat.py")
CONTEXT_ATTENTION = Path(__file__).with_name("context_attention.py")
PLANTED_ORDERS = Path(__file__).with_name("planted_orders.py")


class CpuRank(PlanePolicyWorker):
    """A rank whose process lets Megatron use the CPU, see ``cpu_compat``; it has a plane or none.

    ``test_failures`` breaks a rank by ``break_passes`` and ``break_write``, ``test_replay`` by
    ``plant``; ``test_layouts`` lets it split rows by ``split_context``.
    """

    orders = str(PLANTED_ORDERS)
    context_attention = str(CONTEXT_ATTENTION)

    def __init__(self, rank: int, world: int, device: str, compat: str = str(CPU_COMPAT)) -> None:
        import runpy

        runpy.run_path(compat)["use_cpu_for_cuda"]()
        super().__init__(rank, world, device)

    def break_passes(self, rank: int) -> None:
        """Make the model fail on one rank, in the second micro-batch."""
        policy: Any = self.policy
        passes: list[None] = []

        def fail(_model: Any, _given: Any) -> None:
            passes.append(None)
            if len(passes) == 2:
                raise ArithmeticError("this rank is broken")

        if self.rank == rank:
            policy.model.register_forward_pre_hook(fail)

    def break_write(self, rank: int) -> None:
        """Make the next write of one rank fail."""
        client: Any = self._attached().client
        whole = client.put_samples

        def put(*_args: Any, **_options: Any) -> Any:
            client.put_samples = whole
            raise OSError("no space left in the plane")

        if self.rank == rank:
            client.put_samples = put

    def split_context(self, on: bool) -> None:
        """Make this process accept context parallelism, as with Transformer Engine; or not."""
        import runpy

        from rlconform.grpo.workers.megatron import policy

        if on:
            runpy.run_path(self.context_attention)["attend_over_context"]()
        policy.HAS_TRANSFORMER_ENGINE = on

    def plant(self, defect: str) -> None:
        """Give router replay of this process a defect of ``planted_orders``, or none for ""."""
        import runpy

        runpy.run_path(self.orders)["plant"](defect)

    def routers(self) -> list[int]:
        """Return the number of routes that each router of this process has left."""
        from megatron.core.transformer.moe.router_replay import RouterReplay

        return [
            len(each.replay_backward_list) + (each.target_topk_idx is not None)
            for each in RouterReplay.global_router_replay_instances
        ]

    def read(self, shard: Any, fields: list[str]) -> list[Any]:
        """Fetch a shard as a pass would; return the columns, object columns as lists."""
        fetched = self._fetch(shard, fields).batch
        columns = [fetched.get(field) for field in fields]
        return [each if isinstance(each, Tensor) else each.tolist() for each in columns]

    def threads(self) -> int:
        """Return the number of threads of this process."""
        return len(os.listdir("/proc/self/task"))

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


@pytest.fixture
def replay_rows() -> Callable[[MasterConfig], TensorDict]:
    """``replay_rows(config)``: the rows with canary routes."""
    return batch


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
        compute(batch(config))
        for compute in (policy.get_logprobs, policy.get_reference_policy_logprobs)
    )
    updates = policy.train(batch(config))
    after = policy.get_logprobs(batch(config))
    return Updated(logprobs, reference, updates, after, weights_of(group))


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
