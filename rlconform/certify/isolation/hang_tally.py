"""Which calls have hung in which checks, and when a kind of call is given up.

A call that hangs costs its deadline and usually a fresh test process, so a plane that always hangs
would take hours. Once a kind of call has hung in several checks of different requirements, it is
not made again, and the checks that need it are not tested. Pure, no I/O.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Self

#: A kind of call is given up after it has hung in this many checks of this many requirements.
MAX_CHECKS, MIN_REQUIREMENTS = 3, 2


class HungCalls:
    """The calls that have hung in a run.

    Args:
        limit: Checks in which a kind of call may hang; 0 for no limit.

    Example:
        hangs = HungCalls()
        hangs.note("get_data", "unit/contract/test_get.py::test_x", "GET-11")
        hangs.given_up  # {} until the third check
    """

    def __init__(self, limit: int = MAX_CHECKS) -> None:
        self.limit = limit
        self._checks: dict[str, dict[str, str]] = {}  # kind of call -> check -> requirement

    def note(self, kind: str, check_id: str, requirement: str) -> None:
        """A call of this kind hung in a check."""
        self._checks.setdefault(kind, {})[check_id] = requirement

    @property
    def given_up(self) -> Mapping[str, str]:
        """The reason why a kind of call is not made again, by kind."""
        return {
            kind: f"{kind} hung in {len(checks)} checks ({', '.join(sorted({*checks.values()}))}) "
            "and is not called again"
            for kind, checks in self._checks.items()
            if 0 < self.limit <= len(checks) and len({*checks.values()}) >= MIN_REQUIREMENTS
        }

    def as_data(self) -> dict[str, object]:
        """The state as plain data, for another process."""
        return {"limit": self.limit, "checks": self._checks}

    @classmethod
    def of(cls, data: Mapping[str, object]) -> Self:
        """The inverse of ``as_data``; an empty mapping means no hangs and no limit."""
        hangs = cls(int(data.get("limit", 0)))  # type: ignore[call-overload]
        hangs._checks = dict(data.get("checks", {}))  # type: ignore[call-overload]
        return hangs
