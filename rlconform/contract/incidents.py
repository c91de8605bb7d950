"""Field failures as data: what went wrong in real data planes, and which check would see it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

from rlconform.contract.errors import ConfigError
from rlconform.contract.schema import TomlTable

TABLE = TomlTable(
    file="incidents.toml",
    name="failure",
    required=frozenset({"id", "system", "what"}),
    optional={"requirements": (), "checks": (), "excluded": ""},
)


@dataclass(frozen=True)
class Incident:
    """One thing that went wrong in the field.

    Attributes:
        id: Stable name; a requirement's ``seen`` refers to it.
        system: Where it was seen.
        what: What happened, in a sentence.
        requirements: Ids of the requirements that it breaks.
        checks: Ids of the checks that see it, ``path below suites/::function``; beside a reason
            in ``excluded`` the kit's own tests, which hold rlconform to it.
        excluded: Why no check that verdicts count sees it, where none does.
    """

    id: str
    system: str
    what: str
    requirements: tuple[str, ...]
    checks: tuple[str, ...]
    excluded: str


@cache
def load_incidents() -> dict[str, Incident]:
    """All failures by id, in the file's order.

    Raises:
        ConfigError: A row lacks a key, has one too many, holds a value of another type, or names
            neither checks nor a reason why there is none.
    """
    loaded: dict[str, Incident] = {}
    for row in TABLE.rows():
        failure = _parse(row)
        if failure.id in loaded:
            raise ConfigError(f"{TABLE.file}: {failure.id} stands twice")
        loaded[failure.id] = failure
    return loaded


def _parse(row: dict[str, Any]) -> Incident:
    failure = Incident(**TABLE.filled(row))
    if not failure.checks and not failure.excluded:
        raise ConfigError(
            f"{TABLE.file}: {failure.id} must have checks, or excluded, the reason why it has none"
        )
    if failure.checks and not failure.excluded and not failure.requirements:
        raise ConfigError(f"{TABLE.file}: {failure.id}.requirements is empty, but it has checks")
    return failure
