"""``RuleCoverage``: which rules of ``check-run`` an importer or hook lets be decided."""

from __future__ import annotations

from typing import NamedTuple


class RuleCoverage(NamedTuple):
    """Names of rules, each with what it decides, or with what its decision lacks.

    A rule in ``undecided`` may still find anomalies; it never passes.
    """

    decided: dict[str, str]
    undecided: dict[str, str]
