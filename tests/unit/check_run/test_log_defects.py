"""A log that is not whole passes no rule, and what it can't prove is only suspected."""

from __future__ import annotations

from pathlib import Path

import pytest

from rlconform.check_run.judge import judge_run
from rlconform.check_run.verdict import RuleOutcome, exit_code

from .framework_model import right_run
from .log_builder import write_files
from .scenario import Scenario

UNDECIDED = {RuleOutcome.INDETERMINATE, RuleOutcome.NOT_APPLICABLE}


def whole(folder: Path, **changes: object) -> list[Path]:
    return write_files(right_run(Scenario(seed=3, **changes)), folder)


def test_a_whole_log_passes(tmp_path: Path) -> None:
    whole(tmp_path)
    verdicts = judge_run([tmp_path]).verdicts
    assert exit_code(verdicts, allow_indeterminate=False) == 0


@pytest.mark.parametrize("role", ["trainer", "rollout", "reward"])
@pytest.mark.parametrize("damage", ["gap", "torn", "not_closed", "unreadable", "version"])
def test_a_damaged_log_never_passes(tmp_path: Path, role: str, damage: str) -> None:
    path = next(path for path in whole(tmp_path) if role in path.name)
    lines = path.read_bytes().splitlines(keepends=True)
    damaged = {
        "gap": [*lines[:3], *lines[4:]],
        "torn": [*lines[:-1], lines[-1][:50]],
        "not_closed": lines[:-1],
        "unreadable": [*lines[:3], b"{}\n", *lines[4:]],
        "version": [*lines[:3], lines[3].replace(b'"schema":1', b'"schema":9'), *lines[4:]],
    }
    path.write_bytes(b"".join(damaged[damage]))
    report = judge_run([tmp_path])
    assert {verdict.outcome for verdict in report.verdicts} <= UNDECIDED
    assert report.holes
    assert all(
        path.name in verdict.missing[0]
        for verdict in report.verdicts
        if verdict.outcome is RuleOutcome.INDETERMINATE
    )
    assert exit_code(report.verdicts, allow_indeterminate=False) == 1
    assert exit_code(report.verdicts, allow_indeterminate=True) == 0


def test_a_missing_file_leaves_what_rests_on_it_undecided(tmp_path: Path) -> None:
    """Nothing says that a process existed whose file is gone; its rows then lack their ends."""
    for path in whole(tmp_path):
        if "reward" in path.name:
            path.unlink()
    outcomes = {verdict.rule: verdict.outcome for verdict in judge_run([tmp_path]).verdicts}
    assert outcomes["reward"] is not RuleOutcome.PASS


def test_a_damaged_log_still_proves_what_its_records_show(tmp_path: Path) -> None:
    paths = whole(tmp_path)
    trainer = next(path for path in paths if "trainer" in path.name)
    lines = trainer.read_bytes().splitlines(keepends=True)
    trained = next(number for number, line in enumerate(lines) if b'"type":"trained"' in line)
    again = lines[trained].replace(b'"rows":[0', b'"rows":[0,0')
    trainer.write_bytes(b"".join([*lines[:trained], again, *lines[trained + 2 :]]))
    outcomes = {verdict.rule: verdict.outcome for verdict in judge_run([tmp_path]).verdicts}
    assert outcomes["exactly_once"] is RuleOutcome.FAIL


@pytest.mark.parametrize("cut", [0, 20])
def test_the_file_of_a_process_that_is_reported_lost_may_end_anywhere(
    tmp_path: Path, cut: int
) -> None:
    paths = whole(tmp_path, engine_dies_in_step=1, steps=4)
    dead = next(path for path in paths if "rollout-200" in path.name)
    lines = dead.read_bytes().splitlines(keepends=True)
    torn = b'{"schema":1,"run":"r1","seq":999,"cl'[: cut or None]
    dead.write_bytes(b"".join(lines[:-1]) + (torn if cut else b""))
    report = judge_run([tmp_path])
    assert report.holes == ()
    assert exit_code(report.verdicts, allow_indeterminate=False) == 0


def test_proofs_of_closed_groups_are_read_again(tmp_path: Path) -> None:
    paths = whole(tmp_path)
    trainer = next(path for path in paths if "trainer" in path.name)
    lines = trainer.read_bytes().splitlines(keepends=True)
    number = next(number for number, line in enumerate(lines) if b'"type":"trained"' in line)
    cleared = next(n for n, line in enumerate(lines) if n > number and b'"type":"cleared"' in line)
    head, _, _ = lines[cleared].partition(b'"event":')
    _, _, event = lines[number].partition(b'"event":')
    lines[cleared] = head + b'"event":' + event
    trainer.write_bytes(b"".join(lines))
    verdict = next(v for v in judge_run([tmp_path]).verdicts if v.rule == "exactly_once")
    assert [one.seq for one in verdict.anomalies[0].proof] == [number, cleared]
