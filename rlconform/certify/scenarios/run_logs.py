"""``RunLogs``: where the runs of a check write their events, and how these are judged.

check ── judging(name) ──▶ folder ◀── events ── the run
            └─ at the end: check-run ──▶ JudgedRun ──▶ the check's result ──▶ certificate
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from rlconform.certify.assertions.expect import ContractViolation
from rlconform.certify.judged_runs import JudgedRun, judge_folder
from rlconform.check_run.verdict import RuleOutcome


class RunLogs:
    """Judges the runs of one check; ``judged`` grows by one run after the other."""

    def __init__(self, folder: Path, judged: list[JudgedRun]) -> None:
        self._folder, self._judged = folder, judged

    @contextmanager
    def judging(self, name: str) -> Iterator[str]:
        """Yield the option with which a run writes its events, and judge them after the block.

        A run that raises is judged too, and its error goes on.

        Raises:
            ContractViolation: A rule fails.
            pytest.skip.Exception: The events leave a rule undecided, so the check is NOT_TESTED.
        """
        folder = self._folder / f"run-{len(self._judged)}"
        try:
            yield f"logger.events_dir={folder}"
        finally:
            run = judge_folder(name, folder)
            self._judged.append(run)
        expect_clean(run)


def expect_clean(run: JudgedRun) -> None:
    """Expect no rule of check-run to fail on a run; skip if one can't decide."""
    for rule in run.of(RuleOutcome.FAIL):
        raise ContractViolation(
            f"a run ({run.name}) that rule {rule.rule} of check-run passes",
            f"{rule.count} anomalies, first: {rule.anomalies[0].sentence}",
        )
    if undecided := run.of(RuleOutcome.INDETERMINATE):
        lacks = "; ".join(f"{rule.rule}: {', '.join(rule.missing)}" for rule in undecided)
        pytest.skip(f"the events of the run ({run.name}) decide not every rule: {lacks}")
