"""The contract's requirements: ``requirements.toml`` as frozen records, in the file's order."""

from __future__ import annotations

import hashlib
from functools import cache
from typing import Literal

from pydantic.dataclasses import dataclass

from rlconform.contract.schema import ROW_CONFIG, load_rows, read_text
from rlconform.contract.target import Capability, Level

Strength = Literal["MUST", "SHOULD"]
Scope = Literal["plane", "kit"]

FILE = "requirements.toml"
#: The requirement set that a certificate is issued against.
CURRENT_SET = "2027.03"
#: ``since`` of a row whose checks aren't published yet; no verdict counts it.
DRAFT = "draft"


@dataclass(frozen=True, kw_only=True, config=ROW_CONFIG)
class Requirement:
    """One requirement of the contract, a row of ``requirements.toml``.

    Attributes:
        id: Stable name, ``SECTION-NN``.
        level: The strength: MUST decides the verdict, SHOULD warns.
        scope: ``plane``, or ``kit`` for a requirement that no plane can break, which rlconform's
            own tests check.
        sentence: The requirement in full.
        why: What goes wrong if a plane breaks the requirement.
        capability: The requirement applies to planes that declare any of these; if empty, to all.
        profile: Smallest level of certification whose verdict counts the requirement.
        since: First requirement set that contains the requirement, or ``draft``.
        excluded: Why no mutant fails the checks of this requirement alone; empty if one does.
        seen: Ids of incidents of this kind, in ``incidents.toml``.
        unchecked: Why no check tests the requirement yet; empty if one does.
    """

    id: str
    level: Strength
    scope: Scope = "plane"
    title: str
    sentence: str
    why: str
    capability: tuple[Capability, ...] = ()
    profile: Level
    since: str
    excluded: str = ""
    seen: tuple[str, ...] = ()
    unchecked: str = ""

    @property
    def section(self) -> str:
        """The part of the id before the dash, e.g. ``CLAIM``."""
        return self.id.rpartition("-")[0]

    @property
    def published(self) -> bool:
        """Whether verdicts count the requirement."""
        return self.since != DRAFT and self.since <= CURRENT_SET


@cache
def load_requirements() -> dict[str, Requirement]:
    """Load all requirements by id, in the contract's order; raise the errors of ``load_rows``."""
    return load_rows(Requirement, FILE, "requirement")


def requirement_set_digest() -> str:
    """Return the SHA-256 of the requirement file, by which a certificate names its exact text."""
    return hashlib.sha256(read_text(FILE).encode()).hexdigest()
