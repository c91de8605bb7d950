"""Requirements as data: ``requirements.toml`` as frozen records, in the contract's order."""

from __future__ import annotations

import hashlib
import tomllib
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any, Literal

from rlconform.contract.errors import ConfigError
from rlconform.contract.target import CAPABILITIES, LEVELS, Level

Strength = Literal["MUST", "SHOULD"]
Scope = Literal["plane", "kit"]

#: The requirement set that a certificate is issued against. Rows whose ``since`` is ``DRAFT`` are
#: part of the contract, but their checks aren't published yet: no verdict counts them.
CURRENT_SET = "2026.11"
DRAFT = "draft"


@dataclass(frozen=True)
class Requirement:
    """One row of the contract.

    Attributes:
        id: Stable name, ``SECTION-NN``.
        level: MUST decides the verdict, SHOULD warns.
        scope: ``plane``, or ``kit`` for rows that no plane can break: rlconform's own tests hold
            them.
        title, sentence, why: What is asked, shortly and wholly, and what breaks without it.
        capability: Capabilities any of which makes the row apply; empty for every plane.
        profile: Smallest level of certification whose verdict counts the row.
        since: Requirement set that first held it, or ``draft``.
        mutants: Broken planes that its checks must catch.
        excluded: Why it has no mutant, where it has none.
        seen: Ids of field failures of this kind.
    """

    id: str
    level: Strength
    scope: Scope
    title: str
    sentence: str
    why: str
    capability: tuple[str, ...]
    profile: Level
    since: str
    mutants: tuple[str, ...]
    excluded: str
    seen: tuple[str, ...]

    @property
    def section(self) -> str:
        """The part of the id before the dash, e.g. ``CLAIM``."""
        return self.id.rpartition("-")[0]

    @property
    def published(self) -> bool:
        """Whether verdicts count the row."""
        return self.since != DRAFT and self.since <= CURRENT_SET


@cache
def load_requirements() -> dict[str, Requirement]:
    """All requirements by id, in the contract's order.

    Raises:
        ConfigError: A row lacks a key, has one too many, or holds a value that isn't allowed.
    """
    rows = tomllib.loads(_source())["requirement"]
    loaded: dict[str, Requirement] = {}
    for row in rows:
        requirement = _parse(row)
        if requirement.id in loaded:
            raise ConfigError(f"requirements.toml: {requirement.id} stands twice")
        loaded[requirement.id] = requirement
    return loaded


def requirement_set_digest() -> str:
    """SHA-256 of the requirement file, so that a certificate names the text it was judged by."""
    return hashlib.sha256(_source().encode()).hexdigest()


def _source() -> str:
    return (resources.files("rlconform.contract") / "requirements.toml").read_text("utf-8")


_REQUIRED = {"id", "level", "title", "sentence", "why", "profile", "since"}
_OPTIONAL: dict[str, Any] = {
    "scope": "plane",
    "capability": (),
    "mutants": (),
    "excluded": "",
    "seen": (),
}
_ALLOWED: dict[str, tuple[str, ...]] = {
    "level": ("MUST", "SHOULD"),
    "scope": ("plane", "kit"),
    "profile": LEVELS,
    "capability": CAPABILITIES,
}


def _parse(row: dict[str, Any]) -> Requirement:
    name = row.get("id", "a row without id")
    if missing := _REQUIRED - row.keys():
        raise ConfigError(f"requirements.toml: {name} lacks {', '.join(sorted(missing))}")
    if unknown := row.keys() - _REQUIRED - _OPTIONAL.keys():
        raise ConfigError(f"requirements.toml: {name} has unknown {', '.join(sorted(unknown))}")
    filled: dict[str, Any] = {
        key: tuple(value) if isinstance(value, list) else value
        for key, value in (_OPTIONAL | row).items()
    }
    for key, default in _OPTIONAL.items():
        if type(filled[key]) is not type(default):
            kind = "a list" if default == () else "text"
            raise ConfigError(f"requirements.toml: {name}.{key} must be {kind}")
    for key, allowed in _ALLOWED.items():
        values = filled[key] if isinstance(filled[key], tuple) else (filled[key],)
        if wrong := [value for value in values if value not in allowed]:
            raise ConfigError(
                f"requirements.toml: {name}.{key} is {wrong[0]!r}: one of {', '.join(allowed)}"
            )
    return Requirement(**filled)
