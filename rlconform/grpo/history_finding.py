"""``HistoryFinding``: what a judge of a recorded history objects to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class HistoryFinding:
    """One violation of a rule, with the parts of the history that show it."""

    rule: str
    sentence: str  # expected ...; got ...
    proof: tuple[Any, ...]  # at least one part
