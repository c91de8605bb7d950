"""Lists of recipes in ``ci/suites``, and what must hold of lists and recipes; pure functions.

suites, recipes ── list_problems ───▶ texts, [] if all is well
GPU hours ──────── budget_problems ─▶
name, values ───── name_problems, size_problems ─▶
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from omegaconf import OmegaConf
from pydantic import PositiveFloat

from rlconform._resources import resource_dir
from rlconform._yaml import read_mapping
from rlconform.grpo.config.base import ConfigModel
from rlconform.launch.names import RecipeName
from rlconform.launch.recipes import parse_section

Values = Mapping[str, Any]

#: Keys of ``policy.megatron_cfg`` by what names call them.
_SIZE_KEYS = {
    "tp": "tensor_model_parallel_size",
    "pp": "pipeline_model_parallel_size",
    "cp": "context_parallel_size",
    "ep": "expert_model_parallel_size",
}


class SuiteConfig(ConfigModel):
    """A list of recipes that are run together."""

    budget_gpu_hours: PositiveFloat
    recipes: list[str]


@dataclass(frozen=True)
class Suite:
    """A list with its name."""

    name: str
    config: SuiteConfig


def load_suites() -> list[Suite]:
    """Read all lists; ``ConfigError`` names a wrong key."""
    files = sorted((resource_dir("ci") / "suites").glob("*.yaml"))
    return [
        Suite(
            file.stem,
            parse_section(
                SuiteConfig, file.stem, OmegaConf.to_container(read_mapping(file)), str(file)
            ),
        )
        for file in files
    ]


def list_problems(suites: Sequence[Suite], recipes: Iterable[str]) -> list[str]:
    """Return entries without a recipe, recipes without an entry, and entries of several lists."""
    known = set(recipes)
    listed = Counter(name for suite in suites for name in suite.config.recipes)
    return [
        *(f"{name}: listed, and no recipe" for name in sorted(listed.keys() - known)),
        *(f"{name}: in no list" for name in sorted(known - listed.keys())),
        *(f"{name}: listed {count} times" for name, count in listed.items() if count > 1),
    ]


def budget_problems(suites: Sequence[Suite], gpu_hours: Callable[[str], float]) -> list[str]:
    """Return the lists whose recipes take more GPU hours than their budgets."""
    problems = []
    for suite in suites:
        total = sum(map(gpu_hours, suite.config.recipes))
        if total > suite.config.budget_gpu_hours:
            problems.append(
                f"{suite.name}: {total:g} GPU hours, above its budget of "
                f"{suite.config.budget_gpu_hours:g}"
            )
    return problems


def name_problems(name: RecipeName, values: Values) -> list[str]:
    """Compare what a recipe's name says with its values."""
    job, policy = values["job"], values["policy"]
    megatron = policy.get("megatron_cfg") or {}
    plane = values["data_plane"]
    sampler = (values.get("async_rl") or {}).get("sampler") or {}
    said: dict[str, Any] = {
        "nodes": name.nodes,
        "gpus_per_node": 0 if name.tiny else name.gpus_per_node,
        "megatron": name.strategy == "megatron",
        "plane": name.plane,
        "steps_off": name.steps_off,
        "noncolocated": "noncolocated" in name.flags or name.steps_off is not None,
        "r3": "r3" in name.flags,
    }
    held: dict[str, Any] = {
        "nodes": job["nodes"],
        "gpus_per_node": job["gpus_per_node"],
        "megatron": bool(megatron.get("enabled")),
        "plane": _plane_of(plane),
        "steps_off": sampler.get("max_lookahead_versions") if values.get("async_rl") else None,
        "noncolocated": values["cluster"].get("train_pool") == "own",
        "r3": bool((policy.get("router_replay") or {}).get("enabled")),
    }
    if name.strategy == "fsdp2":
        said["parallelism"], held["parallelism"] = "fsdp2", policy["parallelism"]
    for kind, size in name.sizes:
        said[kind], held[kind] = size, megatron.get(_SIZE_KEYS[kind], 1)
    for flag, mode in (("seqpack", "sequence_packing"), ("dynbatch", "dynamic_batching")):
        if flag in name.flags:
            said["packing"], held["packing"] = mode, policy["packing"]["mode"]
    return [
        f"{name}: its name says {key} {said[key]!r}, its values {held[key]!r}"
        for key in said
        if said[key] != held[key]
    ]


def size_problems(name: RecipeName, values: Values) -> list[str]:
    """Compare the sizes of ranks, engines and experts with the devices of the job."""
    cluster, job = values["cluster"], values["job"]
    megatron = values["policy"].get("megatron_cfg") or {}
    tp, pp, cp, ep = (
        megatron.get(key, 1) if megatron.get("enabled") else 1 for key in _SIZE_KEYS.values()
    )
    ranks = cluster["dp_size"] * tp * pp * cp
    generation = values["generation"]
    per_engine = (
        generation["vllm"]["tensor_parallel_size"] if generation["backend"] == "vllm" else 1
    )
    engines = cluster["rollout_workers"] * per_engine
    own = cluster.get("train_pool") == "own"
    problems = []
    if not name.tiny:
        devices = job["nodes"] * job["gpus_per_node"]
        needed = (
            {"ranks and engines": ranks + engines} if own else {"ranks": ranks, "engines": engines}
        )
        problems += [
            f"{name}: {count} GPUs for {what}, and the job has {devices}"
            for what, count in needed.items()
            if count != devices
        ]
    if ranks // pp % ep:
        problems.append(f"{name}: {ranks // pp} ranks can't be split into {ep} parts of experts")
    for what, count in (("train", ranks), ("rollout", engines)):
        nodes = cluster.get(f"{what}_nnodes")
        if nodes is not None and (count % nodes or nodes > job["nodes"]):
            problems.append(f"{name}: {count} on cluster.{what}_nnodes {nodes}")
    return problems


def _plane_of(block: Values) -> str | None:
    if not block["enabled"]:
        return None
    backends = {"simple": "tq_simple", "mooncake_cpu": "tq_mooncake"}
    return backends.get(block.get("backend") or "", str(block["impl"]))
