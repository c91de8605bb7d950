"""Lists the defects of the asynchronous trainer by name; it imports the trainer."""

from __future__ import annotations

from rlconform.mutants import async_trainer
from rlconform.mutants.async_trainer.defect import TrainerDefect
from rlconform.mutants.defect import defects_of


def all_trainer_defects() -> dict[str, TrainerDefect]:
    """Return each defect by its name."""
    return defects_of(async_trainer, TrainerDefect)
