"""Tries the defects of the trainer, its steps and its parts, and what is right, in turn.

A planted class replaces the real one in the calling process, so these trials are not parallel. What
tries them imports the trainer, which takes seconds and two packages more, so only functions do it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from importlib.util import find_spec
from typing import Protocol

from rlconform.contract import ConfigError
from rlconform.mutants.defect import Defect
from rlconform.selftest.classify import TrialResult

#: Packages that the trainer needs.
_NEEDED = ("ray", "transformers")


class DefectCase(Protocol):
    """Something to try: with a defect, or right."""

    @property
    def name(self) -> str:
        """Name of the trial."""
        ...

    def attempt(self) -> TrialResult:
        """Try it."""
        ...


def all_defects() -> Mapping[str, Defect]:
    """Return all defects by name; ``ConfigError`` if a package is missing that they need."""
    missing = [name for name in _NEEDED if find_spec(name) is None]
    if missing:
        raise ConfigError(
            f"the defects of the trainer need the Python packages {', '.join(missing)}: "
            'pip install "rlconform[grpo]", or leave them out with --no-check-run'
        )
    from rlconform.mutants.async_parts.registry import all_part_defects  # noqa: PLC0415
    from rlconform.mutants.async_trainer.registry import all_trainer_defects  # noqa: PLC0415
    from rlconform.mutants.router_replay.registry import all_replay_defects  # noqa: PLC0415

    return {**all_trainer_defects(), **all_replay_defects(), **all_part_defects()}


def defect_cases(defects: Mapping[str, Defect], *, right: bool) -> list[DefectCase]:
    """Return a case for each defect and, if wanted, each right run, step and part."""
    from rlconform.selftest.part_trials import part_cases  # noqa: PLC0415
    from rlconform.selftest.replay_trials import replay_cases  # noqa: PLC0415
    from rlconform.selftest.trainer_trials import trainer_cases  # noqa: PLC0415

    kinds = (trainer_cases, replay_cases, part_cases)
    return [case for cases in kinds for case in cases(defects, right=right)]


def part_rules() -> tuple[str, ...]:
    """Return the rules of the judges of parts."""
    from rlconform.selftest.parts import PART_RULES  # noqa: PLC0415

    return PART_RULES


def run_defect_cases(cases: Sequence[DefectCase]) -> Iterator[TrialResult]:
    """Try every case in turn; yield its result, with its time, when it is ready."""
    for case in cases:
        began = time.monotonic()
        result = case.attempt()
        yield replace(result, seconds=time.monotonic() - began)
