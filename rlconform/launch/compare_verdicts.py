"""Compares the verdicts of two runs of a recipe, gate by gate; pure functions.

verdict.json of the earlier run ──┐
verdict.json of the later run ────┴─▶ a GateChange per gate that differs, worse ones first
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from rlconform._files import excerpt, is_file, parse_model, read_text
from rlconform.contract import ConfigError
from rlconform.launch.gate_verdict import GateOutcome, GateVerdict

FILE = "verdict.json"


class WrittenVerdict(BaseModel):
    """What a comparison reads of a certificate of level e2e; see ``launch.certificate``."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    version: Annotated[Literal[1, 2], Field(alias="schema")]
    recipe: str
    passed: bool
    gates: tuple[GateVerdict, ...]


class GateChangeKind(StrEnum):
    """How a gate changed."""

    WORSE = "worse"
    BETTER = "better"
    NEW = "new"
    OTHER = "other"


@dataclass(frozen=True)
class GateChange:
    """A gate whose outcome differs; None where a run does not have the gate."""

    kind: GateChangeKind
    gate: str
    old: GateVerdict | None
    new: GateVerdict | None


def is_verdict(place: Path) -> bool:
    """Return whether this is the folder of a judged job, or its verdict's file."""
    return is_file(place / FILE) or place.name == FILE


def read_verdict(place: Path) -> WrittenVerdict:
    """Read a job's verdict; ``ConfigError`` if there is none or it can't be read."""
    path = place if place.name == FILE else place / FILE
    text = read_text(path, "name the folder of a judged job")
    return parse_model(WrittenVerdict, text, str(path))


def compare_verdicts(old: WrittenVerdict, new: WrittenVerdict) -> list[GateChange]:
    """Return the gates whose outcomes differ; ``ConfigError`` for runs of different recipes."""
    if old.recipe != new.recipe:
        one, other = excerpt(old.recipe), excerpt(new.recipe)
        raise ConfigError(f"expected two runs of {one}; got one of {other}")
    before, after = _by_gate(old.gates), _by_gate(new.gates)
    changes = []
    for gate in dict.fromkeys([*after, *before]):
        was, now = before.get(gate), after.get(gate)
        if (was and was.outcome) != (now and now.outcome):
            changes.append(GateChange(_kind(was, now), gate, was, now))
    return sorted(changes, key=lambda change: list(GateChangeKind).index(change.kind))


def is_worse(changes: Iterable[GateChange]) -> bool:
    """Return whether a gate is worse than it was."""
    return any(change.kind is GateChangeKind.WORSE for change in changes)


def changes_sentence(changes: Sequence[GateChange]) -> str:
    """Return the comparison in one sentence."""
    counts = {kind: sum(change.kind is kind for change in changes) for kind in GateChangeKind}
    said = [f"{count} {kind}" for kind, count in counts.items() if count]
    return f"gates: {', '.join(said)}" if said else "no gate changed"


def _kind(was: GateVerdict | None, now: GateVerdict | None) -> GateChangeKind:
    if now is None:  # a gate that was taken out judges nothing any more
        return GateChangeKind.WORSE if was is not None and was.passed else GateChangeKind.OTHER
    if was is None:
        return GateChangeKind.NEW if now.passed else GateChangeKind.WORSE
    if was.passed:
        return GateChangeKind.WORSE
    return GateChangeKind.BETTER if now.passed else GateChangeKind.OTHER


def _by_gate(gates: Iterable[GateVerdict]) -> Mapping[str, GateVerdict]:
    """Key the gates by name; one that failed wins over another of the same name."""
    ordered = sorted(gates, key=lambda gate: gate.outcome is not GateOutcome.PASS)
    return {gate.gate: gate for gate in ordered}
