"""``load_recipe``: a configuration of GRPO with its job and its gates, found by name.

    reference_configs/e2e/FAMILY.yaml      read over its ``defaults``
    overlays/PLANE.yaml                    replaces data_plane, adds gates; ``legacy`` by default
    overlays/tiny*.yaml                    for ``-tiny``: CPUs, a small model, short rows
    --steps, key=value                     last

So a plane is no copy of a recipe, and a twin keeps the structure of what it stands for: the same
trainer, packing, parallelism, asynchrony and nodes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from omegaconf import DictConfig, OmegaConf
from pydantic import ValidationError

from rlconform._resources import resource_dir
from rlconform.contract import ConfigError, did_you_mean
from rlconform.grpo.config import MasterConfig, parse_config
from rlconform.grpo.config.base import ConfigModel
from rlconform.grpo.config.load import PLANE, plane_block, read_tree, with_overrides
from rlconform.launch.jobs import GatesConfig, JobConfig
from rlconform.launch.names import PLANES, PlaneSuffix, RecipeName, parse_name

#: Sections that are the launcher's; the rest is the configuration of the run.
JOB, GATES = "job", "gates"
#: Planes of tiny twins, sized for a laptop, in ``reference_configs/data_plane``.
_SMALL_PLANES = {
    "ray_store": "ray_store",
    "tq_simple": "transfer_queue_simple",
    "tq_mooncake": "transfer_queue_mooncake_cpu",
}

S = TypeVar("S", bound=ConfigModel)


@dataclass(frozen=True)
class Recipe:
    """A recipe with its plane and overrides, validated."""

    name: RecipeName
    job: JobConfig
    gates: GatesConfig
    config: MasterConfig
    tree: dict[str, Any]  # the configuration as plain values, from which ``config`` was made

    @property
    def steps(self) -> int:
        """The planned last step."""
        return self.config.grpo.max_num_steps

    @property
    def gpu_hours(self) -> float:
        """The GPU hours that all runs take at most."""
        return self.job.gpu_hours(self.steps)


def load_recipe(name: str, overrides: Sequence[str] = (), steps: int | None = None) -> Recipe:
    """Load the recipe of this name; ``steps`` is short for ``grpo.max_num_steps``.

    Raises:
        ConfigError: There is no such recipe, or a key is missing, unknown or has an invalid value.
    """
    parsed = parse_name(name)
    tree = recipe_tree(parsed)
    asked = [*overrides, *([f"grpo.max_num_steps={steps}"] if steps is not None else [])]
    plain: Any = OmegaConf.to_container(with_overrides(tree, asked), resolve=True)
    job, gates = (plain.pop(section, None) for section in (JOB, GATES))
    return Recipe(
        parsed,
        parse_section(JobConfig, JOB, job, name),
        parse_section(GatesConfig, GATES, gates, name),
        parse_config(plain, name),
        plain,
    )


def parse_section(model: type[S], key: str, section: Any, source: str) -> S:
    """Validate a section; ``ConfigError`` names the source and the wrong key."""
    try:
        return model.model_validate(section or {})
    except ValidationError as invalid:
        wrong = invalid.errors()[0]
        where = ".".join([key, *map(str, wrong["loc"])])
        raise ConfigError(f"{source}: {where}: {wrong['msg']}") from None


def families() -> list[str]:
    """List the recipes' files by name, without planes."""
    return sorted(path.stem for path in _folder().glob("grpo-*.yaml"))


def planes_of(family: str) -> tuple[PlaneSuffix | None, ...]:
    """Return the planes of a recipe; None, the legacy trainer, only trains synchronously."""
    return PLANES if parse_name(family).steps_off is not None else (None, *PLANES)


def all_recipes() -> list[RecipeName]:
    """List every recipe: each file with each plane, and its tiny twin."""
    return [
        parse_name(f"{family}{f'-{plane}' if plane else ''}{twin}")
        for family in families()
        for plane in planes_of(family)
        for twin in ("", "-tiny")
    ]


def recipe_tree(name: RecipeName) -> DictConfig:
    """Return a recipe's values, interpolations not yet resolved."""
    if name.family not in families():
        hint = did_you_mean(name.family, families())
        raise ConfigError(f"recipe {name}: no file {name.family}.yaml in {_folder()}{hint}")
    if name.plane not in planes_of(name.family):
        raise ConfigError(
            f"recipe {name}: an asynchronous run needs a plane; append one of "
            f"{', '.join(f'-{plane}' for plane in PLANES)}"
        )
    tree = read_tree(_folder() / f"{name.family}.yaml")
    tree.pop(PLANE, None)  # each plane has its own keys
    tree = _overlaid(tree, name.plane or "legacy")
    if name.steps_off is not None:
        tree = _overlaid(tree, "async")
    for overlay in _twin_overlays(name) if name.tiny else ():
        tree = _overlaid(tree, overlay)
    if name.tiny and name.plane:
        tree[PLANE] = plane_block(_SMALL_PLANES[name.plane])
    return tree


def _twin_overlays(name: RecipeName) -> list[str]:
    """Name the overlays that make a recipe small, in their order."""
    overlays = ["tiny", "tiny-llama" if name.model.startswith("llama") else "tiny-qwen3-moe"]
    if name.strategy == "megatron":
        overlays.append("tiny-megatron")
    if name.steps_off is not None:
        overlays.append("tiny-async")
    return overlays


def _overlaid(tree: DictConfig, overlay: str) -> DictConfig:
    merged = OmegaConf.merge(tree, read_tree(_folder() / "overlays" / f"{overlay}.yaml"))
    assert isinstance(merged, DictConfig)  # two mappings make a mapping
    return merged


def _folder() -> Path:
    return resource_dir("reference_configs") / "e2e"
