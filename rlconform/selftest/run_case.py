"""``RunCase``: a run that writes files into a folder, which are judged; with a defect, or right.

RunCase.attempt ── the run, in this process ──▶ files in a folder ── judged ──▶ TrialResult
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Generic, Protocol, Self, TypeVar

from rlconform.mutants.defect import Defect, RunDefect
from rlconform.selftest.classify import TrialResult

D = TypeVar("D", bound=RunDefect)


class WrittenRun(Protocol):
    """A run that writes what is judged into a folder."""

    def run(self, folder: Path, /) -> object:
        """Make the run."""
        ...


@dataclass(frozen=True)
class RunCase(ABC, Generic[D]):
    """A run to try: with a defect, or a right one."""

    name: str
    scenario: WrittenRun
    defect: D | None = None

    @classmethod
    def of(
        cls, kind: type[D], defects: Mapping[str, Defect], right: Mapping[str, WrittenRun]
    ) -> list[Self]:
        """Return a case for each defect of the kind and each right run."""
        broken = {name: one for name, one in defects.items() if isinstance(one, kind)}
        return [
            *(cls(name, one.when, one) for name, one in broken.items()),
            *(cls(name, one) for name, one in right.items()),
        ]

    def attempt(self) -> TrialResult:
        """Make the run, and judge what it has written."""
        with TemporaryDirectory() as name:
            folder = Path(name)
            if self.defect is not None:
                return self.judge_defect(self.defect, folder, self.defect.write(folder))
            self.scenario.run(folder)
            return self.judge_right(folder)

    @abstractmethod
    def judge_defect(self, defect: D, folder: Path, end: str) -> TrialResult:
        """Judge the files of a run with a defect, which ended with the error ``end``, or ""."""

    @abstractmethod
    def judge_right(self, folder: Path) -> TrialResult:
        """Judge the files of a right run."""
