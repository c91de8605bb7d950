"""Identifies the adapter that was certified: module, digest of its source, distributions.

Two reports with the same digest judged the same code, whatever version it declares.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
import sys
from collections.abc import Callable, Mapping
from importlib.metadata import packages_distributions, version
from pathlib import Path
from typing import Any

from rlconform.contract import Target


def adapter_of(target: Target) -> dict[str, Any]:
    """Return what identifies the code behind ``target.open``, for the report's header.

    ``module`` defines the function that opens the plane; ``distributions`` maps the
    packages that provide it to versions. ``sha256`` and ``files`` are absent if it has no file.
    """
    module_name = getattr(_function_of(target.open), "__module__", None) or ""
    names = distributions_of_packages().get(module_name.partition(".")[0], [])
    adapter: dict[str, Any] = {
        "module": module_name,
        "distributions": {name: version(name) for name in sorted(set(names))},
    }
    files = source_files(module_name)
    if files:
        adapter |= {"sha256": source_digest(files), "files": len(files)}
    return adapter


@functools.cache
def distributions_of_packages() -> Mapping[str, list[str]]:
    """Return the distributions by package; reading all metadata takes a tenth of a second."""
    return packages_distributions()


def source_files(module_name: str) -> dict[str, Path]:
    """Return the Python files of a module's package by name; of a module without package, its file.

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
    """Return the SHA-256 of the files sorted by name, as ``sha256sum`` prints digest and name."""
    lines = [
        f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {name}\n"
        for name, path in sorted(files.items())
    ]
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def _function_of(opener: Callable[..., Any]) -> Any:
    """Return the vendor's function or class, without wrappers, partials and callable objects."""
    found: Any = inspect.unwrap(opener)
    while isinstance(found, functools.partial):
        found = inspect.unwrap(found.func)
    return found if hasattr(found, "__qualname__") else type(found)
