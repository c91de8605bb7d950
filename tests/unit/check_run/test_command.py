"""The commands ``check-run``, ``schema`` and ``events export``, and the forms of the report."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from xml.etree import ElementTree

import msgspec
import pytest
from typer.testing import CliRunner

from rlconform.cli import app

from .framework_model import right_run
from .log_builder import Line, lines_of, records_of_lines, write_files
from .planted import DEFECTS
from .scenario import Scenario


def run(*typed: object) -> tuple[int, str]:
    result = CliRunner().invoke(app, [str(word) for word in typed])
    return result.exit_code, result.output


@pytest.fixture
def right(tmp_path: Path) -> Path:
    write_files(right_run(Scenario(seed=3)), tmp_path / "right")
    return tmp_path / "right"


def renamed(lines: list[Line], name: str, to: str) -> list[Line]:
    return [
        line._replace(event=msgspec.structs.replace(line.event, group_id=to))
        if getattr(line.event, "group_id", None) == name
        else line
        for line in lines
    ]


@pytest.fixture
def wrong(tmp_path: Path) -> Path:
    """A run with two defects, and a group whose name is markup."""
    lines = lines_of(right_run(Scenario(seed=3)))
    for name in ("group_is_trained_twice", "reward_is_that_of_a_neighbour"):
        plant = next(defect.plant for defect in DEFECTS if defect.name == name)
        lines = plant(lines, Random(1)) or lines
    lines = renamed(lines, "g0", "<script>alert(1)</script>[red]")
    lines = renamed(lines, "g1", "<b>bold</b>")
    write_files(records_of_lines(lines), tmp_path / "wrong")
    return tmp_path / "wrong"


def test_a_right_run_exits_with_0(right: Path) -> None:
    code, output = run("check-run", right)
    assert code == 0
    assert "The run keeps all" in output
    assert output.count(" pass ") >= 10


def test_a_wrong_run_exits_with_1_and_says_why(wrong: Path) -> None:
    code, output = run("check-run", wrong)
    assert code == 1
    assert "The run breaks 2 of 12 rules: exactly_once, reward." in output
    assert "in a second one" in output
    assert "reward_computed" in output


def test_rules_can_be_chosen(wrong: Path) -> None:
    assert run("check-run", wrong, "--rule", "accounting")[0] == 0
    assert run("check-run", wrong, "--rule", "reward")[0] == 1
    code, output = run("check-run", wrong, "--rule", "rewards")
    assert code == 2
    assert "reward" in output


def test_an_undecided_run_exits_with_1_unless_it_is_allowed(right: Path) -> None:
    path = next(right.glob("*reward*"))
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:-1]))
    assert run("check-run", right)[0] == 1
    assert run("check-run", right, "--allow-indeterminate")[0] == 0


def test_a_run_to_which_no_rule_applies_exits_with_3(tmp_path: Path) -> None:
    write_files(right_run(Scenario(seed=3, plane=False)), tmp_path / "other")
    assert run("check-run", tmp_path / "other", "--rule", "plane_ops")[0] == 3


@pytest.mark.parametrize("made", ["nothing", "empty folder", "empty file", "text"])
def test_bad_input_is_one_sentence(tmp_path: Path, made: str) -> None:
    path = tmp_path / "there"
    if made == "empty folder":
        path.mkdir()
    elif made != "nothing":
        path.write_text("" if made == "empty file" else "no JSON\n")
    code, output = run("check-run", path)
    assert code == 2
    assert output.startswith("rlconform: check-run: ")
    assert len(output.strip().splitlines()) == 1


def test_a_report_that_can_not_be_written_is_one_sentence(right: Path, tmp_path: Path) -> None:
    code, output = run("check-run", right, "--html", tmp_path / "no" / "page.html")
    assert code == 2
    assert "can't be written" in output


def test_the_json_report_has_the_records_of_the_proofs(wrong: Path, tmp_path: Path) -> None:
    run("check-run", wrong, "--json", tmp_path / "report.json")
    report = json.loads((tmp_path / "report.json").read_text())
    rules = {rule["rule"]: rule for rule in report["rules"]}
    (anomaly,) = rules["exactly_once"]["anomalies"]
    assert anomaly["proven"]
    assert [record["event"]["type"] for record in anomaly["proof"]] == ["trained", "trained"]
    assert rules["accounting"]["outcome"] == "pass"
    assert report["groups"]["trained"] == 8


def test_the_junit_report_has_a_case_per_rule(wrong: Path, tmp_path: Path) -> None:
    run("check-run", wrong, "--junit", tmp_path / "junit.xml")
    suite = ElementTree.parse(tmp_path / "junit.xml").getroot()
    counts = {name: suite.get(name) for name in ("tests", "failures", "errors", "skipped")}
    assert counts == {"tests": "12", "failures": "2", "errors": "0", "skipped": "0"}
    failed = [case.get("name") for case in suite if case.find("failure") is not None]
    assert failed == ["exactly_once", "reward"]


def test_the_page_shows_what_is_wrong_first_and_escapes_names(wrong: Path, tmp_path: Path) -> None:
    run("check-run", wrong, "--html", tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert page.index("The run breaks 2 of 12 rules") < page.index("What is wrong")
    assert page.index("What is wrong") < page.index("<h2>Rules")
    assert page.index("<h2>Rules") < page.index("Groups over time")
    assert "<script" not in page
    assert "&lt;script&gt;" in page
    assert "<b>bold" not in page
    assert "prefers-color-scheme: dark" in page
    assert "http" not in page.replace("http-equiv", "")


def test_repeated_anomalies_of_a_rule_are_collapsed(tmp_path: Path) -> None:
    lines = lines_of(right_run(Scenario(seed=3, steps=12)))
    plants = {defect.name: defect.plant for defect in DEFECTS}
    for seed in range(7):
        lines = plants["group_is_trained_twice"](lines, Random(seed)) or lines
    for name in ("reward_is_that_of_a_neighbour", "failed_row_is_committed"):
        lines = plants[name](lines, Random(1)) or lines
    write_files(records_of_lines(lines), tmp_path / "log")
    run("check-run", tmp_path / "log", "--html", tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    first_sight = page[page.index("<h1>") : page.index("What is wrong")]
    for rule, cases in {"exactly_once": 7, "group_integrity": 1, "reward": 1}.items():
        assert f'href="#{rule}">{rule}</a> <span class="count">{cases} ' in first_sight
    open_ones, _, hidden = page.partition("<details>")
    assert page.count("<details>") == 1
    assert "<summary>and 5 more of exactly_once</summary>" in page
    section = open_ones[open_ones.index('<section id="exactly_once">') :]
    assert section.count("<article>") == 2
    assert hidden[: hidden.index("</details>")].count("<article>") == 5


def test_what_is_proven_comes_before_what_is_suspected(tmp_path: Path) -> None:
    lines = lines_of(right_run(Scenario(seed=3, steps=12)))
    plants = {defect.name: defect.plant for defect in DEFECTS}
    for name in ("group_is_lost", "group_is_trained_twice"):
        lines = plants[name](lines, Random(1)) or lines
    write_files(records_of_lines(lines), tmp_path / "log")
    path = next((tmp_path / "log").glob("*reward*"))  # its end is missing: absence proves nothing
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:-1]))
    run("check-run", tmp_path / "log", "--html", tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert "as trained or as dropped: perhaps not so in" in page
    assert "over all restarts: not so in 1 case<" in page
    assert page.index('<section id="exactly_once">') < page.index('<section id="accounting">')


def test_a_page_of_a_log_without_groups_can_be_made(tmp_path: Path) -> None:
    write_files(right_run(Scenario(seed=3))[:1], tmp_path / "log")
    assert run("check-run", tmp_path / "log", "--html", tmp_path / "page.html")[0] == 1
    assert "undecided" in (tmp_path / "page.html").read_text()


def test_the_schema_is_printed() -> None:
    code, output = run("schema", "events")
    assert code == 0
    assert "prompt_dispatched" in output
    assert json.loads(output)["title"] == "rlconform events, version 1"


def test_a_log_is_exported(right: Path, tmp_path: Path) -> None:
    out = tmp_path / "trace.json"
    code, output = run("events", "export", "--to", "perfetto", right, "--out", out)
    assert code == 0
    assert "trace events of 4 processes" in output
    assert json.loads(out.read_text())["traceEvents"]


@pytest.mark.parametrize("command", [["check-run"], ["schema"], ["events", "export"]])
def test_help_has_an_example(command: list[str]) -> None:
    code, output = run(*command, "--help")
    assert code == 0
    assert "Example" in output
