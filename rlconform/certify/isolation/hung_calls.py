"""Which calls have hung in which checks, and when a kind of call is given up.

A call that hangs costs its deadlines, and mostly a fresh test process, so that a plane which always
hangs would cost hours. Once a kind of call has hung in several checks of unlike requirements, it is
not made again: the checks that need it are not tested, for that reason. Pure, no I/O.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Self

#: Checks in which a kind of call hangs until it is given up, and of how many requirements.
CHECKS, REQUIREMENTS = 3, 2


class HungCalls:
    """The hangs of a run.

    Args:
        limit: Checks in which a kind of call may hang; 0 for no limit.

    Example:
        hangs = Hangs()
        hangs.note("get_data", "unit/contract/test_get.py::test_x", "GET-11")
        hangs.given_up  # {} until the third check
    """

    def __init__(self, limit: int = CHECKS) -> None:
        self.limit = limit
        self._checks: dict[str, dict[str, str]] = {}  # kind of call -> check -> requirement

    def note(self, kind: str, check_id: str, requirement: str) -> None:
        """A call of this kind hung in a check."""
        self._checks.setdefault(kind, {})[check_id] = requirement

    @property
    def given_up(self) -> Mapping[str, str]:
        """By kind of call, why it is not made again."""
        return {
            kind: f"{kind} hung in {len(checks)} checks ({', '.join(sorted({*checks.values()}))}) "
            "and is not called again"
            for kind, checks in self._checks.items()
            if 0 < self.limit <= len(checks) and len({*checks.values()}) >= REQUIREMENTS
        }

    def as_data(self) -> dict[str, object]:
        """All of it, for another process."""
        return {"limit": self.limit, "checks": self._checks}

    @classmethod
    def of(cls, data: Mapping[str, object]) -> Self:
        """From what ``as_data`` gave; an empty mapping gives no hangs and no limit."""
        hangs = cls(int(data.get("limit", 0)))  # type: ignore[call-overload]
        hangs._checks = dict(data.get("checks", {}))  # type: ignore[call-overload]
        return hangs
