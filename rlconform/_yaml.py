"""Reads a YAML file as a mapping; all commands report a bad file with the same message."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import MarkedYAMLError, YAMLError  # type: ignore[import-untyped]

from rlconform.contract.errors import ConfigError


def read_mapping(path: Path) -> DictConfig:
    """The file's keys and values, interpolations not yet resolved.

    Raises:
        ConfigError: The file can't be read, isn't YAML, or does not hold a mapping.
    """
    try:
        loaded = OmegaConf.load(path)
    except MarkedYAMLError as error:
        line = f", line {error.problem_mark.line + 1}" if error.problem_mark else ""
        raise ConfigError(f"{path}{line}: not valid YAML: {error.problem}") from error
    except (YAMLError, UnicodeDecodeError, OmegaConfBaseException) as error:
        raise ConfigError(f"{path}: not valid YAML: {' '.join(str(error).split())}") from error
    except OSError as error:  # OmegaConf raises one without errno for a scalar
        why = f"{error.strerror}; name a YAML file" if error.strerror else "not a mapping of keys"
        raise ConfigError(f"{path}: {why}") from error
    if not isinstance(loaded, DictConfig):
        raise ConfigError(f"{path}: not a mapping of keys to values")
    return loaded


def read_config(path: Path | None) -> dict[str, Any]:
    """Return the target's configuration in the file, its interpolations resolved; {} for None.

    Raises:
        ConfigError: As for ``read_mapping``, or an interpolation leads nowhere.
    """
    if path is None:
        return {}
    try:
        loaded = OmegaConf.to_container(read_mapping(path), resolve=True)
    except OmegaConfBaseException as error:
        raise ConfigError(f"{path}: {error}") from error
    assert isinstance(loaded, dict)  # made of a mapping
    return {str(key): value for key, value in loaded.items()}
