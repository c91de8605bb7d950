"""Loads a configuration from YAML and ``key=value`` overrides; errors name the source and the key.

tiny_moe_copy.yaml ── defaults: ──▶ tiny_llama_copy.yaml, read first, then overlaid
data_plane=NAME    ── replaces the whole data_plane block
key=value ...      ── overlaid last; then interpolations are resolved and the tree is validated
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from pydantic import BaseModel, ValidationError
from yaml import YAMLError  # type: ignore[import-untyped]

from rlconform._files import excerpt
from rlconform._resources import resource_dir
from rlconform._yaml import read_mapping
from rlconform._yaml_limits import check_interpolations
from rlconform.contract import ConfigError, did_you_mean
from rlconform.grpo.config.async_rl import SAMPLERS
from rlconform.grpo.config.master import MasterConfig

#: Key that names another file in the same folder, whose values this file overrides.
DEFAULTS = "defaults"
#: Section that is replaced as a whole, because each plane has its own keys.
PLANE = "data_plane"
#: Files that may name each other as defaults in a row.
MOST_DEFAULTS = 8


def load_config(source: str | Path, overrides: Sequence[str] = ()) -> MasterConfig:
    """Load a configuration.

    Args:
        source: A YAML file, or the name of one in ``reference_configs/grpo``, such as
            ``tiny_llama_copy``.
        overrides: ``key=value`` each, with a dotted key and a YAML value, such as
            ``policy.optimizer.lr=1e-3``. ``data_plane=NAME`` replaces the whole section by the one
            of ``reference_configs/data_plane/NAME.yaml`` or of a YAML file; dotted keys then
            change single values.

    Raises:
        ConfigError: The file can't be read or isn't YAML, or a key is missing, unknown or has an
            invalid value; the message names the first such key.
    """
    tree = with_overrides(read_tree(_find(str(source), "grpo")), overrides)
    return parse_config(tree, str(source))


def with_overrides(tree: DictConfig, overrides: Sequence[str]) -> DictConfig:
    """Return a tree with ``key=value`` overrides, see ``load_config``."""
    tree = DictConfig(tree)
    values = []
    for override in overrides:
        key, equals, name = override.partition("=")
        if not equals or not key.strip():
            raise ConfigError(f"override {override!r} is not key=value")
        if key.strip() == PLANE:
            tree[PLANE] = plane_block(name.strip())
        else:
            values.append(override)
    try:
        overlaid = OmegaConf.merge(tree, OmegaConf.from_dotlist(values))
    except (YAMLError, OmegaConfBaseException) as error:
        raise ConfigError(f"overrides {values}: {error}") from error
    assert isinstance(overlaid, DictConfig)  # two mappings make a mapping
    return overlaid


def parse_config(
    tree: Mapping[str, Any] | DictConfig, source: str = "the configuration"
) -> MasterConfig:
    """Validate a plain or OmegaConf tree; a ``ConfigError`` names ``source`` and the wrong key."""
    plain: Any = tree
    try:
        if OmegaConf.is_config(tree):
            check_interpolations(OmegaConf.to_container(tree), source)  # of all files together
            plain = OmegaConf.to_container(tree, resolve=True, throw_on_missing=True)
    except OmegaConfBaseException as error:
        first_line = excerpt(str(error).partition("\n")[0])
        raise ConfigError(f"{source}: {error.full_key}: {first_line}") from error
    except RecursionError as error:
        raise ConfigError(f"{source}: an interpolation leads back to itself") from error
    try:
        return MasterConfig.model_validate(plain)
    except ValidationError as invalid:
        raise ConfigError(f"{source}: {_first_error(invalid)}") from None


def reference_config_names(kind: str = "grpo") -> list[str]:
    """List the reference configurations: of runs (``grpo``) or of planes (``data_plane``)."""
    return sorted(path.stem for path in (resource_dir("reference_configs") / kind).glob("*.yaml"))


def _find(source: str, kind: str) -> Path:
    """Return the path of the file, or of the reference configuration with that name."""
    if Path(source).is_file() or Path(source).suffix:
        return Path(source)
    names = reference_config_names(kind)
    if source not in names:
        raise ConfigError(
            f"{source}: no such file, and no reference configuration; there are {', '.join(names)}"
        )
    return resource_dir("reference_configs") / kind / f"{source}.yaml"


def plane_block(source: str) -> DictConfig:
    """Read the ``data_plane`` section of a file or of a reference configuration."""
    path = _find(source, PLANE)
    block = read_tree(path).get(PLANE)
    if not isinstance(block, DictConfig):
        raise ConfigError(f"{path}: no {PLANE} section")
    return block


def read_tree(path: Path, visited: tuple[Path, ...] = ()) -> DictConfig:
    """Read a file and overlay it on the file that it names under ``defaults``."""
    if path.resolve() in visited:
        raise ConfigError(f"{path}: its {DEFAULTS} form a cycle")
    if len(visited) > MOST_DEFAULTS:
        raise ConfigError(f"{path}: its {DEFAULTS} name more than {MOST_DEFAULTS} files in a row")
    own = read_mapping(path)
    try:
        base = own.pop(DEFAULTS, None)
        if base is None:
            return own
        below = read_tree(path.parent / str(base), (*visited, path.resolve()))
        merged = OmegaConf.merge(below, own)
    except (OmegaConfBaseException, RecursionError) as error:
        raise ConfigError(f"{path}: {excerpt(str(error))}") from error
    assert isinstance(merged, DictConfig)  # two mappings make a mapping
    return merged


def _first_error(invalid: ValidationError) -> str:
    wrong = invalid.errors()[0]
    # The location names which section of a union was meant, which is no key.
    location = [str(part) for part in wrong["loc"] if part not in SAMPLERS]
    key = excerpt(".".join(location))
    reason = excerpt(wrong["msg"].removeprefix("Value error, "))
    reason = reason[:1].lower() + reason[1:]
    if wrong["type"] == "missing":
        return f"{key} is missing"
    if wrong["type"] == "extra_forbidden":
        keys = [name for part in wrong["loc"] for name in _keys_of_sampler(part)]
        known = keys or _keys_below(location[:-1])
        there = f"; there are {', '.join(sorted(known))}" if len(location) == 1 else ""
        return f"there is no key {key}{did_you_mean(location[-1], known) or there}"
    if isinstance(wrong["input"], str | int | float | bool | None):
        return f"{key} is {excerpt(repr(wrong['input']))}: {reason}"
    return f"{key}: {reason}" if key else reason


def _keys_of_sampler(name: str | int) -> list[str]:
    """List the keys of a sampler's section; return [] for another name."""
    section = SAMPLERS.get(str(name))
    return [] if section is None else list(section.model_fields)


def _keys_below(path: Sequence[str]) -> list[str]:
    """List the keys of the section at this path; return [] if the path is no section."""
    section: type[BaseModel] = MasterConfig
    for name in path:
        field = section.model_fields.get(name)
        kinds = () if field is None else (field.annotation, *get_args(field.annotation))
        below = [k for k in kinds if isinstance(k, type) and issubclass(k, BaseModel)]
        if not below:
            return []
        section = below[0]
    return list(section.model_fields)
