"""Lists the defects of parts by name; it imports the trainer."""

from __future__ import annotations

from rlconform.mutants import async_parts
from rlconform.mutants.async_parts.part_defect import PartDefect
from rlconform.mutants.defect import defects_of


def all_part_defects() -> dict[str, PartDefect]:
    """Return each defect by its name."""
    return defects_of(async_parts, PartDefect)
