"""Requirements as data: ``requirements.toml`` as frozen records, in the contract's order."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

from rlconform.contract.errors import ConfigError
from rlconform.contract.schema import TomlTable
from rlconform.contract.target import CAPABILITIES, LEVELS, Level

Strength = Literal["MUST", "SHOULD"]
Scope = Literal["plane", "kit"]

#: The requirement set that a certificate is issued against. Rows whose ``since`` is ``DRAFT`` are
#: part of the contract, but their checks aren't published yet: no verdict counts them.
CURRENT_SET = "2026.11"
DRAFT = "draft"

TABLE = TomlTable(
    file="requirements.toml",
    name="requirement",
    required=frozenset({"id", "level", "title", "sentence", "why", "profile", "since"}),
    optional={
        "scope": "plane",
        "capability": (),
        "excluded": "",
        "seen": (),
        "unchecked": "",
    },
)


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
        excluded: Why no mutant is caught by it alone, where none is.
        seen: Ids of field failures of this kind; ``incidents.toml`` tells of them.
        unchecked: Why nothing checks it yet, where nothing does.
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
    excluded: str
    seen: tuple[str, ...]
    unchecked: str = ""

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
    loaded: dict[str, Requirement] = {}
    for row in TABLE.rows():
        requirement = _parse(row)
        if requirement.id in loaded:
            raise ConfigError(f"{TABLE.file}: {requirement.id} stands twice")
        loaded[requirement.id] = requirement
    return loaded


def requirement_set_digest() -> str:
    """SHA-256 of the requirement file, so that a certificate names the text it was judged by."""
    return hashlib.sha256(TABLE.text().encode()).hexdigest()


_ALLOWED: dict[str, tuple[str, ...]] = {
    "level": ("MUST", "SHOULD"),
    "scope": ("plane", "kit"),
    "profile": LEVELS,
    "capability": CAPABILITIES,
}


def _parse(row: dict[str, Any]) -> Requirement:
    filled = TABLE.filled(row)
    for key, allowed in _ALLOWED.items():
        values = filled[key] if isinstance(filled[key], tuple) else (filled[key],)
        if wrong := [value for value in values if value not in allowed]:
            raise ConfigError(
                f"{TABLE.file}: {filled['id']}.{key} is {wrong[0]!r}: one of {', '.join(allowed)}"
            )
    return Requirement(**filled)
