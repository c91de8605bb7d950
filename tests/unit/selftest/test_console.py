"""The console of the self-test: wrong outcomes are last, in the table and after all else."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

from rlconform.cli import app, self_test
from rlconform.mutants.async_trainer.registry import all_trainer_defects
from rlconform.selftest.classify import TrialOutcome, TrialResult
from rlconform.selftest.console import print_wrong, result_table

RESULTS = [
    TrialResult("survivor", TrialOutcome.SURVIVED, {}, 1.0, "passed by [PUT-02]"),
    *(TrialResult(f"killed_{n}", TrialOutcome.KILLED, {"PUT-02": "a"}, 1.0) for n in range(40)),
    TrialResult("alarm", TrialOutcome.FALSE_ALARM, {"GET-01": "b"}, 1.0, "GET-01: b"),
    TrialResult("memory", TrialOutcome.PASSED, {}, 1.0),
]


def new_console() -> tuple[Console, io.StringIO]:
    """Return a console of 100 columns, and what it prints into."""
    text = io.StringIO()
    return Console(file=text, width=100), text


def test_wrong_outcomes_are_the_last_rows_of_the_table_and_keep_their_order() -> None:
    console, text = new_console()
    console.print(result_table(RESULTS))
    names = [line.split()[0] for line in text.getvalue().splitlines()[1:]]
    assert len(names) == len(RESULTS)
    assert names[:2] == ["killed_0", "killed_1"]
    assert names[-3:] == ["memory", "survivor", "alarm"]


def test_each_wrong_target_is_named_with_its_detail_and_no_right_one() -> None:
    console, text = new_console()
    print_wrong(console, RESULTS, not_tried=3)
    assert text.getvalue().splitlines() == [
        "survived survivor: passed by [PUT-02]",
        "false alarm alarm: GET-01: b",
        "Interrupted: 3 were not tried.",
    ]


def test_nothing_is_printed_if_all_is_right() -> None:
    console, text = new_console()
    print_wrong(console, [one for one in RESULTS if one.name.startswith("killed")])
    assert text.getvalue() == ""


def test_the_command_ends_with_what_was_wrong(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    name = "torn_weights_kept"
    defects = {name: replace(all_trainer_defects()[name], evidence="no such text")}
    monkeypatch.setattr(self_test, "all_defects", lambda: defects)
    run = CliRunner().invoke(app, ["self-test", "--mutant", name, "--out", str(tmp_path)])
    assert run.exit_code == 1
    after = " ".join(run.output.split()).partition("self-test.html ")[2]
    assert after.startswith(f"killed for another reason {name}: versions: expected 'no such text'")
