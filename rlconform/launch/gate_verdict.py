"""``GateVerdict``: whether a run passes one of its gates, and why not."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class GateOutcome(StrEnum):
    """What a gate decides; only ``PASS`` is a pass."""

    PASS = "pass"
    FAIL = "fail"
    NOT_RUN = "not run"  # what it judges does not exist


@dataclass(frozen=True)
class GateVerdict:
    """The outcome of one gate."""

    gate: str
    outcome: GateOutcome
    message: str

    @property
    def passed(self) -> bool:
        """Whether the gate passes."""
        return self.outcome is GateOutcome.PASS


def passed(gate: str, message: str) -> GateVerdict:
    """Return a pass."""
    return GateVerdict(gate, GateOutcome.PASS, message)


def failed(gate: str, message: str) -> GateVerdict:
    """Return a failure."""
    return GateVerdict(gate, GateOutcome.FAIL, message)


def not_run(gate: str, message: str) -> GateVerdict:
    """Return the verdict of a gate that had nothing to judge."""
    return GateVerdict(gate, GateOutcome.NOT_RUN, f"the gate never ran: {message}")
