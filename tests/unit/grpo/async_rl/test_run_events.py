"""Asynchronous runs on a simulated clock write events that ``check-run`` finds nothing in."""

from __future__ import annotations

from pathlib import Path

import pytest

from rlconform.check_run.judge import RunReport, judge_run
from rlconform.check_run.verdict import RuleOutcome
from rlconform.grpo.replay.slots import Failure

from .simulated_log import SimulatedLog
from .simulated_run import Faults, World, run_steps
from .test_async_controller import PROMPTS, SAMPLERS, STEPS, TROUBLES, config, uneven


def not_clean(report: RunReport, *, undecided: bool = True) -> list[str]:
    """What keeps a rule from passing, one line each; with or without what the log lacks."""
    allowed = {RuleOutcome.PASS, RuleOutcome.NOT_APPLICABLE}
    return [
        f"{verdict.rule}: {line}"
        for verdict in report.verdicts
        if verdict.outcome not in allowed
        for line in (*(one.sentence for one in verdict.anomalies), *(verdict.missing * undecided))
    ]


@pytest.mark.parametrize("trouble", TROUBLES)
@pytest.mark.parametrize("sampler", SAMPLERS)
def test_the_log_of_every_run_is_clean(
    sampler: str, trouble: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = dict(TROUBLES[trouble])
    failing, restarts = options.pop("failing", ()), options.pop("restarts", ())
    failure = options.pop("failure", Failure.INFRA)
    world = World(
        uneven,
        faults=Faults(dict.fromkeys(failing, failure)),
        log=SimulatedLog(tmp_path, monkeypatch),
    )
    run_steps(
        config(SAMPLERS[sampler], **options), world, prompts=PROMPTS, steps=STEPS, restarts=restarts
    )
    report = judge_run([tmp_path])
    assert not_clean(report) == []
    assert report.overview.fates["trained"] == PROMPTS * STEPS
