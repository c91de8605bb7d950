"""Makes the ``PlaneSession`` that pytest's options ask for."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rlconform._yaml import read_config
from rlconform.certify.plugin.plane_session import PlaneSession
from rlconform.certify.target import resolve_target

#: The plane under test if none is named.
DEFAULT_TARGET = "memory"


def session_of(options: pytest.Config, on_starting: Callable[[float], None]) -> PlaneSession:
    """Resolve the target and return its session; nothing is opened yet.

    Raises:
        ConfigError: The target or its configuration can't be found or used.
    """
    names = ("target", "level", "check-timeout")
    spec, level, check_s = (options.getoption(f"--rlconform-{name}") for name in names)
    target = resolve_target(spec or DEFAULT_TARGET, level)
    if check_s is not None:
        target = replace(target, timeouts=replace(target.timeouts, check=check_s))
    return PlaneSession(
        spec or DEFAULT_TARGET,
        target,
        _config(options),
        level or target.level,
        on_starting,
        spread=options.getoption("--rlconform-spread"),
    )


def _config(options: pytest.Config) -> dict[str, Any]:
    """Return the target's configuration: the runner passes JSON, a vendor names a file."""
    if text := options.getoption("--rlconform-target-config"):
        given: dict[str, Any] = json.loads(text)
        return given
    path = options.getoption("--rlconform-config")
    return read_config(Path(path) if path else None)
