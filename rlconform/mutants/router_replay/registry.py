"""Lists the defects of router replay by name; it imports the trainer."""

from __future__ import annotations

from functools import cache

from rlconform.mutants.router_replay import ranks, replays, rollouts
from rlconform.mutants.router_replay.defect import ReplayDefect


@cache
def all_replay_defects() -> dict[str, ReplayDefect]:
    """Return each defect by its name; names are unique, as those of classes are."""
    found = (
        value
        for module in (rollouts, ranks, replays)
        for value in vars(module).values()
        if isinstance(value, ReplayDefect)
    )
    return {defect.name: defect for defect in sorted(found, key=lambda defect: defect.name)}
