"""Lists the defects of router replay by name; it imports the trainer."""

from __future__ import annotations

from rlconform.mutants import router_replay
from rlconform.mutants.defect import defects_of
from rlconform.mutants.router_replay.defect import ReplayDefect


def all_replay_defects() -> dict[str, ReplayDefect]:
    """Return each defect by its name."""
    return defects_of(router_replay, ReplayDefect)
