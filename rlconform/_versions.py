"""Versions of installed packages, for the headers of reports."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version


def installed_versions(packages: Sequence[str]) -> dict[str, str]:
    """The version of each package, or "not installed"."""
    found = {}
    for name in packages:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "not installed"
    return found
