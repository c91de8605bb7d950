"""From what the user typed to a ``Target``, and from a target to an open client.

``memory`` (built in) · ``acme`` (entry point of the group ``rlconform.targets``) ·
``module:attribute`` (a ``Target``, or a factory called as ``factory(cfg, bootstrap=...)``).
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Mapping
from importlib.metadata import entry_points
from typing import Any

from rlconform.backends import BUILTIN
from rlconform.contract import (
    CLIENT_METHODS,
    ConfigError,
    DataPlaneClient,
    Target,
    did_you_mean,
    missing_methods,
)

ENTRY_POINT_GROUP = "rlconform.targets"


class TargetError(ConfigError):
    """The target can't be found, or what was found is no target."""


def resolve_target(spec: str) -> Target:
    """The target that ``spec`` names.

    Raises:
        TargetError: Unknown name, a module that doesn't import, or an attribute that is neither a
            ``Target`` nor a callable; the message says what to mend.
    """
    found = _load(BUILTIN.get(spec) or _entry_points().get(spec) or spec, spec)
    if isinstance(found, Target):
        return found
    if callable(found):
        return _target_of_factory(spec, found)
    raise TargetError(
        f"target {spec!r} is a {type(found).__name__}: expected a rlconform.contract.Target or a "
        f"callable factory(cfg, bootstrap=...) that returns a client"
    )


def open_client(target: Target, config: Mapping[str, Any], bootstrap: bool) -> DataPlaneClient:
    """Open the target's client and make sure that it is one.

    Raises:
        TargetError: What came back lacks methods of the protocol.
    """
    client: Any = target.open(config or target.config, bootstrap)
    if missing := missing_methods(client):
        raise TargetError(
            f"target {target.name!r} opened a {type(client).__name__} without "
            f"{', '.join(missing)}: a client has the methods {', '.join(CLIENT_METHODS)}"
        )
    return client  # type: ignore[no-any-return]


def open_target(
    spec: str, config: Mapping[str, Any] | None = None, bootstrap: bool = True
) -> DataPlaneClient:
    """Resolve and open in one step, as reproducer scripts do."""
    return open_client(resolve_target(spec), config or {}, bootstrap)


def known_targets() -> list[str]:
    """Names that need no module path: built in, then from entry points."""
    return list(dict.fromkeys([*BUILTIN, *sorted(_entry_points())]))


def _entry_points() -> dict[str, str]:
    return {point.name: point.value for point in entry_points(group=ENTRY_POINT_GROUP)}


def _load(path: str, spec: str) -> object:
    module_name, _, attribute = path.partition(":")
    if not attribute:
        raise TargetError(
            f"unknown target {spec!r}{did_you_mean(spec, known_targets()) or '.'} "
            f"Known: {', '.join(known_targets())}; or name one as module:attribute"
        )
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        found: object = importlib.import_module(module_name)
    except Exception as error:
        raise TargetError(
            f"target {spec!r}: module {module_name!r} does not import: "
            f"{type(error).__name__}: {error}"
        ) from error
    for name in attribute.split("."):
        if not hasattr(found, name):
            raise TargetError(
                f"target {spec!r}: module {module_name!r} has no attribute {attribute!r}"
            )
        found = getattr(found, name)
    return found


def _target_of_factory(spec: str, factory: Callable[..., DataPlaneClient]) -> Target:
    module = sys.modules.get(getattr(factory, "__module__", ""))
    return Target(
        name=spec,
        version=str(getattr(module, "__version__", "")),
        open=lambda cfg, bootstrap: factory(cfg, bootstrap=bootstrap),
    )
