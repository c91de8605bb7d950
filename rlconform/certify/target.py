"""Resolves the name of a target to a ``Target``, and opens its client.

``memory`` (built in) · ``acme`` (entry point of the group ``rlconform.targets``) ·
``module:attribute`` (a ``Target``, or a factory called as ``factory(cfg, bootstrap=...)``).
"""

from __future__ import annotations

import importlib
import operator
import os
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cache
from importlib.metadata import entry_points
from importlib.util import find_spec
from typing import Any

from rlconform.backends import BUILTIN, ONE_PROCESS
from rlconform.contract import (
    CLIENT_METHODS,
    ConfigError,
    DataPlaneClient,
    Level,
    Target,
    did_you_mean,
    missing_methods,
)

ENTRY_POINT_GROUP = "rlconform.targets"


class TargetError(ConfigError):
    """The target can't be found, or the object found is not a target."""


def check_target_name(spec: str, level: Level | None = None) -> None:
    """Raise ``TargetError`` for an unknown name, or a one-process plane at a higher level."""
    if spec in ONE_PROCESS and level not in {None, "unit"}:
        raise _of_one_process(spec, level)
    if not target_path(spec).partition(":")[2]:
        raise _unknown(spec)


def target_path(spec: str) -> str:
    """Return ``module:attribute`` of a target's name, or the name if it is not known."""
    return BUILTIN.get(spec) or _entry_points().get(spec) or spec


def resolve_target(spec: str, level: Level | None = None) -> Target:
    """Return the target that ``spec`` names, to be certified at ``level`` (None: its own level).

    Raises:
        TargetError: There is no such target, or its plane runs in one process and the level needs
            several; the message says how to fix it.
    """
    found = _load(target_path(spec), spec)
    if isinstance(found, Target):
        if found.level == "unit" and level not in {None, "unit"}:
            raise _of_one_process(spec, level)
        return found
    if callable(found):
        return _target_of_factory(spec, found, level or "unit")
    raise TargetError(
        f"target {spec!r} is a {type(found).__name__}: expected a rlconform.contract.Target or a "
        f"callable factory(cfg, bootstrap=...) that returns a client"
    )


def open_client(target: Target, config: Mapping[str, Any], bootstrap: bool) -> DataPlaneClient:
    """Open the target's client; raise ``TargetError`` if the client lacks methods."""
    from rlconform.certify.recording.base_exceptions import (  # noqa: PLC0415 - imports torch
        only_exceptions,
    )

    with only_exceptions("open"):
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
    """Resolve the target and open its client in one step."""
    return open_client(resolve_target(spec), config or {}, bootstrap)


def known_targets() -> list[str]:
    """Return the names that need no module path: built-in ones, then those of entry points."""
    return list(dict.fromkeys([*BUILTIN, *sorted(_entry_points())]))


@cache
def _entry_points() -> Mapping[str, str]:
    """Return paths by name of entry point; reading those of all packages takes 40 ms."""
    return {point.name: point.value for point in entry_points(group=ENTRY_POINT_GROUP)}


def _load(path: str, spec: str) -> Any:
    module_name, _, attribute = path.partition(":")
    if not attribute:
        raise _unknown(spec)
    _find_modules_here()
    try:
        found = importlib.import_module(module_name)
    except Exception as error:
        raised = f"{type(error).__name__}: {error}"
        text = f"target {spec!r}: module {module_name!r} does not import: {raised}"
        raise TargetError(text) from error
    try:
        return operator.attrgetter(attribute)(found)
    except AttributeError:
        text = f"target {spec!r}: module {module_name!r} has no attribute {attribute!r}"
        raise TargetError(text) from None


def _find_modules_here() -> None:
    with suppress(FileNotFoundError):  # the plane may have deleted its folder
        if os.getcwd() not in sys.path:
            sys.path.insert(0, os.getcwd())


def _of_one_process(spec: str, level: Level | None) -> TargetError:
    return TargetError(
        f"target {spec!r} declares level unit, a plane of one process, and --level {level} "
        f"needs several: leave --level out, or declare level='functional' in its Target "
        f"if other processes can attach to it"
    )


def _unknown(spec: str) -> TargetError:
    hint = _object_in_module(spec) or did_you_mean(spec, known_targets()) or "."
    return TargetError(
        f"unknown target {spec!r}{hint} "
        f"Known: {', '.join(known_targets())}; or name one as module:attribute"
    )


def _object_in_module(spec: str) -> str:
    """Return a hint if the user named a module or its file instead of an object in it; else ""."""
    name = spec.removesuffix(".py").strip("./").replace("/", ".")
    if not all(part.isidentifier() for part in name.split(".")):
        return ""
    _find_modules_here()
    try:
        found = find_spec(name)
    except ImportError:  # of a parent package
        return ""
    return f": it is a module, name the object in it, such as {name}:TARGET." if found else ""


def _target_of_factory(spec: str, factory: Callable[..., DataPlaneClient], level: Level) -> Target:
    """Return the target of a factory function, which declares no level, with the given level."""
    module = sys.modules.get(getattr(factory, "__module__", ""))

    def open_with_keyword(config: Mapping[str, Any], bootstrap: bool) -> DataPlaneClient:
        return factory(config, bootstrap=bootstrap)

    open_with_keyword.__wrapped__ = factory  # type: ignore[attr-defined]
    version = str(getattr(module, "__version__", ""))
    return Target(name=spec, version=version, open=open_with_keyword, level=level)
