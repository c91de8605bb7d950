"""Incidents: defects seen in real data planes, and the checks that would have found them."""

from __future__ import annotations

from functools import cache

from pydantic.dataclasses import dataclass

from rlconform.contract.schema import ROW_CONFIG, load_rows

FILE = "incidents.toml"


@dataclass(frozen=True, kw_only=True, config=ROW_CONFIG)
class Incident:
    """One defect that was seen in a real data plane, ``system``.

    Attributes:
        id: Stable name; a requirement's ``seen`` refers to it.
        what: What happened, in a sentence.
        requirements: Ids of the requirements that the defect breaks.
        checks: Ids of the checks that find the defect, ``path below suites/::function``; if
            ``excluded`` is given too, ids of rlconform's tests that check its own code for it.
        excluded: Why no check that counts in a verdict finds the defect; empty if a check does.
    """

    id: str
    system: str
    what: str
    requirements: tuple[str, ...] = ()
    checks: tuple[str, ...] = ()
    excluded: str = ""

    def __post_init__(self) -> None:
        if not self.checks and not self.excluded:
            raise ValueError("checks is empty: expected excluded, the reason why")
        if self.checks and not self.excluded and not self.requirements:
            raise ValueError("requirements is empty, but there are checks")


@cache
def load_incidents() -> dict[str, Incident]:
    """Load all incidents by id, in the file's order; raise the errors of ``load_rows``."""
    return load_rows(Incident, FILE, "failure")
