"""Defects of router replay: declared well, and judged rightly by ``check-r3``."""

from __future__ import annotations

from pathlib import Path

import pytest

from rlconform.grpo.router_replay.check import TraceVerdict, check_trace
from rlconform.grpo.router_replay.trace_records import Fetched, Produced, read_trace
from rlconform.grpo.simulation.replay_step import REPLAY_SCENARIOS
from rlconform.mutants.async_trainer.registry import all_trainer_defects
from rlconform.mutants.router_replay.defect import ReplayDefect
from rlconform.mutants.router_replay.registry import all_replay_defects
from rlconform.selftest.classify import GOOD, TrialOutcome
from rlconform.selftest.defect_trials import all_defects, defect_cases, run_defect_cases
from rlconform.selftest.replay_trials import (
    judge_replay,
    judge_right_replay,
    replay_cases,
)
from rlconform.selftest.rule_matrix import CHECK_R3, RULES, render_rule_matrix, rule_lines

DEFECTS = all_replay_defects()
SHIFTED = DEFECTS["routes_shifted_by_one"]


def test_the_catalogue_says_where_each_defect_comes_from() -> None:
    assert len(DEFECTS) >= 14
    assert not DEFECTS.keys() & all_trainer_defects().keys()
    assert DEFECTS.items() <= all_defects().items()
    for defect in DEFECTS.values():
        assert defect.rationale
        assert defect.seen
        assert defect.found_by == (CHECK_R3,)
        assert defect.broken.__mro__[1].__module__.startswith("rlconform.grpo.")
    assert CHECK_R3 in RULES


@pytest.mark.parametrize("name", REPLAY_SCENARIOS)
def test_a_right_step_passes(name: str, tmp_path: Path) -> None:
    REPLAY_SCENARIOS[name].run(tmp_path)
    records = read_trace(tmp_path)
    result = judge_right_replay(name, check_trace(records))
    assert (result.kind, result.detail) == (TrialOutcome.PASSED, "")
    # The step has what shows the defects: rows of several lengths and turns, ranks of two kinds.
    produced = [record for record in records if isinstance(record, Produced)]
    assert len({len(record.hashes) for record in produced}) > 1
    ranks = {str(record.rank) for record in records if isinstance(record, Fetched)}
    assert ranks == {"rank dp=0", "rank dp=0 tp=1", "rank dp=1", "rank dp=1 tp=1"}
    hashes = [tuple(token) for record in produced for token in record.hashes[:-1]]
    assert len(set(hashes)) == len(hashes)  # canaries


@pytest.mark.parametrize("defect", DEFECTS.values(), ids=DEFECTS)
def test_every_defect_is_found_for_its_reason(defect: ReplayDefect, tmp_path: Path) -> None:
    end = defect.write(tmp_path)
    result = judge_replay(defect, check_trace(read_trace(tmp_path)), end)
    assert result.kind in GOOD, result.detail


def test_verdicts_of_trials() -> None:
    nothing = TraceVerdict(1, 1, ())
    other = TraceVerdict(1, 1, ("something else",))
    survived = judge_replay(SHIFTED, nothing, "RuntimeError: x")
    assert survived.kind is TrialOutcome.SURVIVED
    assert survived.detail == "passed by check_r3; the trainer ended with RuntimeError"
    assert judge_replay(SHIFTED, other).kind is TrialOutcome.KILLED_FOR_OTHER_REASON
    assert judge_right_replay("step", other).kind is TrialOutcome.FALSE_ALARM


def test_the_self_test_tries_defects_and_right_steps() -> None:
    chosen = {SHIFTED.name: SHIFTED}
    others = ("run ", "part ")
    cases = [case for case in defect_cases(chosen, right=True) if not case.name.startswith(others)]
    assert [case.name for case in cases] == [SHIFTED.name, *(f"step {n}" for n in REPLAY_SCENARIOS)]
    assert replay_cases(chosen, right=False) == cases[:1]
    (killed,) = run_defect_cases(cases[:1])
    assert killed.kind is TrialOutcome.KILLED
    (line,) = rule_lines(chosen, [killed])
    assert [cell.kind for cell in line.cells].count("sole") == 1
    assert all(f"| {name} |" in render_rule_matrix(DEFECTS) for name in DEFECTS)
