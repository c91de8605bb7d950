"""Identifies the adapter that was certified: module, digest of its source, distributions.

Two reports with the same digest judged the same code, whatever version it declares.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
import sys
from collections.abc import Callable
from importlib.metadata import packages_distributions, version
from pathlib import Path
from typing import Any

from rlconform.contract import Target


def adapter_of(target: Target) -> dict[str, Any]:
    """The adapter behind ``target.open`` as plain data, for the report's header.

    ``module`` defines the function that opens the plane; ``distributions`` has the versions by name
    of those that provide it. ``sha256`` and ``files`` are absent for a module without a file.
    """
    module_name = getattr(_function_of(target.open), "__module__", None) or ""
    names = packages_distributions().get(module_name.partition(".")[0], [])
    adapter: dict[str, Any] = {
        "module": module_name,
        "distributions": {name: version(name) for name in sorted(set(names))},
    }
    files = source_files(module_name)
    if files:
        adapter |= {"sha256": source_digest(files), "files": len(files)}
    return adapter


def source_files(module_name: str) -> dict[str, Path]:
    """The Python files of a module's package by name, or the module's own if it has none.

    The class that ``open`` returns is usually in another file of the package.
    """
    module = sys.modules.get(module_name)
    if module is None or not getattr(module, "__file__", None):
        return {}
    path = Path(str(module.__file__))
    if not module.__package__:
        return {path.name: path}
    return {str(file.relative_to(path.parent)): file for file in path.parent.rglob("*.py")}


def source_digest(files: dict[str, Path]) -> str:
    """SHA-256 over the files sorted by name, as ``sha256sum`` of them prints it: digest, name."""
    lines = [
        f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {name}\n"
        for name, path in sorted(files.items())
    ]
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def _function_of(opener: Callable[..., Any]) -> Any:
    """The vendor's function or class inside wrappers, partials and callable objects."""
    found: Any = inspect.unwrap(opener)
    while isinstance(found, functools.partial):
        found = inspect.unwrap(found.func)
    return found if hasattr(found, "__qualname__") else type(found)
