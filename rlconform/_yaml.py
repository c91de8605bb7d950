"""Reads a YAML file as a mapping; all commands report a bad file with the same message."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import MarkedYAMLError, YAMLError  # type: ignore[import-untyped]

from rlconform._files import LARGEST_BY_HAND, excerpt, read_bytes
from rlconform._yaml_limits import check_aliases, check_interpolations
from rlconform.contract.errors import ConfigError

#: What PyYAML raises for a value that its tag does not fit, such as ``!!int x``, or a huge number.
_OF_TAGS = (ValueError, LookupError, TypeError, OverflowError, RecursionError)


def read_mapping(path: Path) -> DictConfig:
    """The file's keys and values, interpolations not yet resolved.

    Raises:
        ConfigError: The file can't be read, isn't YAML, or does not hold a mapping.
    """
    data = read_bytes(path, "name a YAML file", LARGEST_BY_HAND)
    try:
        text = data.decode("utf-8")
        check_aliases(text, str(path))
        loaded = OmegaConf.load(io.StringIO(text))
        if isinstance(loaded, DictConfig):
            check_interpolations(OmegaConf.to_container(loaded), str(path))
    except MarkedYAMLError as error:
        line = f", line {error.problem_mark.line + 1}" if error.problem_mark else ""
        raise ConfigError(f"{path}{line}: not valid YAML: {error.problem}") from error
    except ConfigError:
        raise
    except OSError as error:  # what OmegaConf raises for a scalar
        raise ConfigError(f"{path}: not a mapping of keys") from error
    except (YAMLError, OmegaConfBaseException, *_OF_TAGS) as error:
        raise ConfigError(f"{path}: not valid YAML: {excerpt(str(error))}") from error
    if not isinstance(loaded, DictConfig):
        raise ConfigError(f"{path}: not a mapping of keys to values")
    return loaded


def resolved(tree: DictConfig, where: str) -> dict[str, Any]:
    """Return the tree as plain data; ``ConfigError`` if an interpolation leads nowhere."""
    try:
        loaded = OmegaConf.to_container(tree, resolve=True)
    except (OmegaConfBaseException, RecursionError) as error:
        raise ConfigError(f"{where}: {excerpt(str(error))}") from error
    assert isinstance(loaded, dict)  # made of a mapping
    return {str(key): value for key, value in loaded.items()}


def read_config(path: Path | None) -> dict[str, Any]:
    """Return the target's configuration in the file, its interpolations resolved; {} for None.

    Raises:
        ConfigError: As for ``read_mapping``, or an interpolation leads nowhere.
    """
    if path is None:
        return {}
    return resolved(read_mapping(path), str(path))
