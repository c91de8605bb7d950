"""How long generations take in runs that show a defect: seconds, by group id."""

from __future__ import annotations

from rlconform.grpo.simulation.scenario import uneven


def number_of(group_id: str) -> int:
    """Return the number of a group's prompt."""
    return int(group_id.removeprefix("p").partition("-")[0])


def quick(group_id: str) -> float:
    """Return less than half a second."""
    return 0.2 + 0.01 * (number_of(group_id) % 7)


def some_slow(group_id: str) -> float:
    """Let each fifth prompt take as long as several steps."""
    return 7.5 if number_of(group_id) % 5 == 1 else uneven(group_id)


def half_slow(group_id: str) -> float:
    """Let each second prompt take longer than a step."""
    return 4.0 if number_of(group_id) % 2 else 0.3


def longer_than_sync(_: str) -> float:
    """Let all prompts take as long."""
    return 2.5


def one_overdue(group_id: str) -> float:
    """Let one prompt take 150 seconds."""
    return 150.0 if group_id == "p6" else quick(group_id)
