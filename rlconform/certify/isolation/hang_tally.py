"""``HungCalls``: which kinds of calls have hung in which checks, and which are not made again.

A call that hangs costs its deadline and usually a fresh test process: a plane that always hangs
would take hours. Once a kind of call has hung in several checks of different requirements, it is
not made again, and the checks that need it are not tested.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

#: A kind of call is given up only after it has hung in checks of this many requirements.
MIN_REQUIREMENTS = 2


@dataclass
class HungCalls:
    """The calls that have hung in a run."""

    limit: int = 3  # checks in which a kind of call may hang; 0 for no limit
    checks: dict[str, dict[str, str]] = field(default_factory=dict)  # kind -> check -> requirement

    def note(self, kind: str, check_id: str, requirement: str) -> None:
        """Record that a call of this kind hung in a check."""
        self.checks.setdefault(kind, {})[check_id] = requirement

    @property
    def given_up(self) -> Mapping[str, str]:
        """Kinds of calls that are not made again, each with the reason."""
        return {
            kind: f"{kind} hung in {len(checks)} checks ({', '.join(sorted({*checks.values()}))}) "
            "and is not called again"
            for kind, checks in self.checks.items()
            if 0 < self.limit <= len(checks) and len({*checks.values()}) >= MIN_REQUIREMENTS
        }
