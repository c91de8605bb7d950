"""Two verdicts of a recipe are compared gate by gate; a regression is exit code 1."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from rlconform.cli import app
from rlconform.contract import ConfigError
from rlconform.launch.compare_verdicts import (
    GateChangeKind,
    changes_sentence,
    compare_verdicts,
    is_worse,
    read_verdict,
)

RECIPE = "grpo-llama3.1-8b-instruct-2n8g-fsdp2-ray_store"


def written(folder: Path, recipe: str = RECIPE, **gates: str) -> Path:
    folder.mkdir()
    verdict = {
        "schema": 1,
        "level": "e2e",
        "recipe": recipe,
        "passed": all(outcome == "pass" for outcome in gates.values()),
        "gates": [
            {"gate": gate, "outcome": outcome.replace("_", " "), "message": f"{gate} said so"}
            for gate, outcome in gates.items()
        ],
    }
    (folder / "verdict.json").write_text(json.dumps(verdict))
    return folder


@pytest.mark.parametrize(
    ("old", "new", "kind"),
    [
        ("pass", "fail", GateChangeKind.WORSE),
        ("pass", "not_run", GateChangeKind.WORSE),
        ("pass", None, GateChangeKind.WORSE),
        (None, "fail", GateChangeKind.WORSE),
        ("fail", "pass", GateChangeKind.BETTER),
        ("not_run", "pass", GateChangeKind.BETTER),
        (None, "pass", GateChangeKind.NEW),
        ("fail", "not_run", GateChangeKind.OTHER),
        ("fail", None, GateChangeKind.OTHER),
        ("pass", "pass", None),
        ("fail", "fail", None),
    ],
)
def test_a_gate_is_better_worse_or_new(
    tmp_path: Path, old: str | None, new: str | None, kind: GateChangeKind | None
) -> None:
    places = [
        written(tmp_path / name, steps="pass", **({"parity": outcome} if outcome else {}))
        for name, outcome in (("old", old), ("new", new))
    ]
    changes = compare_verdicts(*map(read_verdict, places))
    assert [(change.gate, change.kind) for change in changes] == (
        [("parity", kind)] if kind else []
    )
    assert is_worse(changes) is (kind is GateChangeKind.WORSE)
    ran = CliRunner().invoke(app, ["diff", *map(str, places)])
    assert ran.exit_code == (1 if kind is GateChangeKind.WORSE else 0), ran.output
    assert changes_sentence(changes) in ran.output


def test_of_two_gates_of_a_name_the_failed_one_counts(tmp_path: Path) -> None:
    old = written(tmp_path / "old", a="pass")
    twice = json.loads((old / "verdict.json").read_text())
    twice["gates"] = [{"gate": "a", "outcome": x, "message": ""} for x in ("fail", "pass")]
    new = written(tmp_path / "new")
    (new / "verdict.json").write_text(json.dumps(twice))
    assert is_worse(compare_verdicts(read_verdict(old), read_verdict(new)))


def test_runs_of_different_recipes_are_not_compared(tmp_path: Path) -> None:
    old, new = written(tmp_path / "old"), written(tmp_path / "new", RECIPE + "-tiny")
    with pytest.raises(ConfigError, match="expected two runs of"):
        compare_verdicts(read_verdict(old), read_verdict(new))


@pytest.mark.parametrize("text", [None, "no json", '{"schema": 2}', "[]"])
def test_a_verdict_that_cannot_be_read_is_no_success(tmp_path: Path, text: str | None) -> None:
    old, new = written(tmp_path / "old", a="pass"), tmp_path / "new"
    new.mkdir()
    if text is not None:
        (new / "verdict.json").write_text(text)
    ran = CliRunner().invoke(app, ["diff", str(old), str(new)])
    assert ran.exit_code == 2, ran.output
    assert "diff: " in ran.output
