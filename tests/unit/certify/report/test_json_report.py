"""``report.json`` is complete, has a digest, and is valid for any text from a plane."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from rlconform.certify.options import CertifyOptions
from rlconform.certify.report.json_report import build_report
from rlconform.certify.report.report_folder import write_report
from rlconform.certify.report.verdict import (
    Certificate,
    Conclusion,
    Verdict,
    requirement_results,
    verdict_of,
)
from rlconform.certify.reproduce.render import NOT_ALL
from rlconform.certify.results import CheckResult, Outcome, PlannedCheck, RunRecord
from rlconform.contract import CURRENT_SET, load_requirements
from rlconform.contract.requirements import requirement_set_digest

PASSED = PlannedCheck("unit/contract/test_get.py::test_order", "GET-01")
FAILED = PlannedCheck("unit/contract/test_get.py::test_repeat[a]", "GET-02")
AGAIN = PlannedCheck("unit/contract/test_get.py::test_repeat[b]", "GET-02")
CRASHED = PlannedCheck("unit/contract/test_put.py::test_jagged", "PUT-05")
OURS = PlannedCheck("unit/contract/test_put.py::test_dense", "PUT-04")
SKIPPED = PlannedCheck("unit/contract/test_put.py::test_cuda", "PUT-26", "cuda")
LEFT_OUT = PlannedCheck(
    "unit/contract/test_put.py::test_fp8", "PUT-02", "dtype_fp8", left_out="declares no fp8"
)

BODY = ("verdict", "causes", "requirements", "checks", "runs", "waivers", "notes")
HISTORY = '{"who": "a", "op": "get", "start": 1.0}\n{"who": "b", "op": "put", "start": 1.5}\n'


def sample_run() -> RunRecord:
    """A run with one check for each outcome."""
    results = [
        CheckResult(
            PASSED.id, "GET-01", Outcome.PASS, seconds=0.5, plane_seconds=0.25, start_seconds=0.5
        ),
        CheckResult(
            FAILED.id,
            "GET-02",
            Outcome.FAIL,
            evidence="expected row a; got row b",
            steps=["client.get_samples(...) -> {x: uint8[2x3]}"],
            seconds=0.125,
            reproducer="print('a')\n",
        ),
        CheckResult(AGAIN.id, "GET-02", Outcome.FAIL, evidence="b", reproducer="print('b')\n"),
        CheckResult(CRASHED.id, "PUT-05", Outcome.CRASH, evidence="killed", stacks="Thread 1"),
        CheckResult(OURS.id, "PUT-04", Outcome.SUITE_ERROR, evidence="NameError: x"),
        CheckResult(SKIPPED.id, "PUT-26", Outcome.NOT_TESTED, evidence="no GPU"),
    ]
    return RunRecord(
        target={"name": "acme", "version": "1", "level": "unit", "capabilities": {}},
        plan=[PASSED, FAILED, AGAIN, CRASHED, OURS, SKIPPED, LEFT_OUT],
        results={result.id: result for result in results},
        notes=["a note"],
        children=2,
        process_seconds=1.0,
        seconds=4.0,
        complete=True,
    )


def with_result(run: RunRecord, check: PlannedCheck, **changes: Any) -> RunRecord:
    run.results[check.id] = replace(run.results[check.id], **changes)
    return run


def certificate_on(run: RunRecord, **options: Any) -> Certificate:
    requirements = load_requirements()
    results = requirement_results(requirements, run.plan, run.results, "unit", {})
    conclusion = verdict_of(requirements, results, complete=run.complete)
    return Certificate(CertifyOptions("acme_plane:PLANE", **options), run, results, conclusion)


def report_on(run: RunRecord) -> dict[str, Any]:
    return build_report(certificate_on(run))


def written(run: RunRecord, folder: Path, **options: Any) -> dict[str, Any]:
    """The report, parsed from the written file."""
    assert write_report(certificate_on(run, **options), folder, force=True) == folder
    loaded: dict[str, Any] = json.loads((folder / "report.json").read_text("utf-8"))
    return loaded


def junit(folder: Path) -> ElementTree.Element:
    return ElementTree.parse(folder / "junit.xml").getroot()


def digest(report: dict[str, Any]) -> str:
    sealed: str = report["footer"]["body_sha256"]
    return sealed


# -- the document --------------------------------------------------------------------------------


def test_the_header_names_target_kit_and_versions(tmp_path: Path) -> None:
    run = sample_run()
    run.target |= {"config": {"port": 1}, "adapter": {"module": "acme_plane", "sha256": "ab"}}
    header = written(run, tmp_path, select="claim")["header"]
    assert header["target"]["name"] == "acme"
    assert header["target"]["spec"] == "acme_plane:PLANE"
    assert header["target"]["config"] == {"port": 1}
    assert header["target"]["adapter"] == {"module": "acme_plane", "sha256": "ab"}
    assert header["selected"] == "claim"
    assert header["requirement_set"] == CURRENT_SET
    assert header["requirement_set_sha256"] == requirement_set_digest()
    assert {"python", "torch", "tensordict"} <= header["versions"].keys()
    assert header["test_processes"] == 2
    assert header["seconds"] == {"total": 4.0, "processes": 1.5, "plane_calls": 0.25, "kit": 2.25}


def test_every_planned_check_is_in_the_report(tmp_path: Path) -> None:
    run = sample_run()
    checks = {check["id"]: check for check in written(run, tmp_path)["checks"]}
    assert list(checks) == [check.id for check in run.plan]
    assert checks[FAILED.id]["outcome"] == "FAIL"
    assert checks[FAILED.id]["steps"] == run.results[FAILED.id].steps
    assert checks[LEFT_OUT.id]["outcome"] == "NOT_TESTED"
    assert checks[LEFT_OUT.id]["left_out"] == "declares no fp8"


def test_every_counted_requirement_is_in_the_report(tmp_path: Path) -> None:
    rows = {row["id"]: row for row in written(sample_run(), tmp_path)["requirements"]}
    assert rows["GET-01"]["outcome"] == "PASS"
    assert (rows["GET-02"]["outcome"], rows["GET-02"]["reason"]) == (
        "FAIL",
        "expected row a; got row b (2 of 2 checks)",
    )
    assert (rows["GET-02"]["level"], rows["GET-02"]["title"]) == (
        "MUST",
        load_requirements()["GET-02"].title,
    )


@pytest.mark.parametrize("complete", [True, False])
def test_the_footer_counts_what_ran(tmp_path: Path, complete: bool) -> None:
    run = replace(sample_run(), complete=complete)
    footer = written(run, tmp_path)["footer"]
    assert footer["complete"] is complete
    assert (footer["checks_planned"], footer["checks_run"]) == (6, 6)


# -- the seal ------------------------------------------------------------------------------------


def test_a_reader_can_verify_the_digest(tmp_path: Path) -> None:
    odd = with_result(sample_run(), FAILED, evidence="ünï\x00\ud800\U0001f642\u2028")
    loaded = written(odd, tmp_path)
    body = {name: loaded[name] for name in BODY}
    text = json.dumps(body, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    assert hashlib.sha256(text.encode()).hexdigest() == digest(loaded)


CHANGES: dict[str, Callable[[RunRecord], RunRecord]] = {
    "an outcome": lambda run: with_result(run, FAILED, outcome=Outcome.PASS),
    "evidence": lambda run: with_result(run, FAILED, evidence="something else"),
    "steps": lambda run: with_result(run, FAILED, steps=[]),
    "stacks": lambda run: with_result(run, CRASHED, stacks="Thread 2"),
    "a time": lambda run: with_result(run, PASSED, seconds=0.6),
    "a warning": lambda run: with_result(run, PASSED, warnings=["a warning"]),
    "a note": lambda run: replace(run, notes=[]),
    "the plan": lambda run: replace(run, plan=run.plan[:-1]),
    "the end": lambda run: replace(run, complete=False),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_the_digest_changes_with_the_body(change: Callable[[RunRecord], RunRecord]) -> None:
    assert digest(report_on(change(sample_run()))) != digest(report_on(sample_run()))


def test_the_digest_is_stable() -> None:
    assert digest(report_on(sample_run())) == digest(report_on(sample_run()))


# -- the files -----------------------------------------------------------------------------------


NASTY = "\x00\x08\x0b\x1b[31m\udfff\ud800\ufffe\uffff<&>\"'\n\U0001f642"
HARMLESS = "\ufffd\ufffd\ufffd\ufffd[31m\ufffd\ufffd\ufffd\ufffd<&>\"'\n\U0001f642"

PLACES: dict[str, Callable[[RunRecord], RunRecord]] = {
    "evidence": lambda run: with_result(run, FAILED, evidence=NASTY),
    "steps": lambda run: with_result(run, FAILED, steps=[NASTY]),
    "stacks": lambda run: with_result(run, FAILED, stacks=NASTY),
    "a skip": lambda run: with_result(run, SKIPPED, evidence=NASTY),
    "why a check was left out": lambda run: replace(
        run, plan=[*run.plan[:-1], replace(LEFT_OUT, left_out=NASTY)]
    ),
    "a check's id": lambda run: replace(run, plan=[*run.plan, replace(LEFT_OUT, id=NASTY)]),
    "the target's name": lambda run: replace(run, target=run.target | {"name": NASTY}),
    "a note": lambda run: replace(run, notes=[NASTY]),
}


@pytest.mark.parametrize("change", PLACES.values(), ids=PLACES)
def test_control_characters_break_neither_file(
    tmp_path: Path, change: Callable[[RunRecord], RunRecord]
) -> None:
    assert NASTY in texts_in(written(change(sample_run()), tmp_path))
    assert junit(tmp_path).tag == "testsuite"


def texts_in(value: Any) -> list[str]:
    """Every string in a JSON document."""
    if isinstance(value, dict):
        return [text for held in value.values() for text in texts_in(held)]
    if isinstance(value, list):
        return [text for held in value for text in texts_in(held)]
    return [value] if isinstance(value, str) else []


def test_junit_shows_that_a_character_was_replaced(tmp_path: Path) -> None:
    written(with_result(sample_run(), FAILED, evidence=NASTY, steps=[NASTY]), tmp_path)
    failure = junit(tmp_path).find("testcase/failure")
    assert failure is not None
    assert failure.get("message") == HARMLESS
    assert f"\n{HARMLESS}\n" in (failure.text or "")


def test_one_reproducer_per_requirement_is_kept(tmp_path: Path) -> None:
    written(sample_run(), tmp_path)
    scripts = {path.name: path.read_text() for path in (tmp_path / "reproducers").iterdir()}
    assert scripts == {"GET-02.py": "print('a')\n"}


def test_the_shortest_sequential_reproducer_is_kept(tmp_path: Path) -> None:
    made = [
        {"reproducer": "t", "at_once": True},
        {"reproducer": "race", "history": "{}"},
        {"reproducer": "long calls"},
        {"reproducer": NOT_ALL},
        {"reproducer": "many calls " * 20},
    ]
    run = sample_run()
    for number, more in enumerate(made):
        run.results[str(number)] = replace(
            run.results[FAILED.id], id=str(number), requirement="CLAIM-02", **more
        )
    for best in ("long calls", "many calls " * 20, NOT_ALL, "race", "t"):
        written(run, tmp_path)
        assert (tmp_path / "reproducers" / "CLAIM-02.py").read_text() == best
        run.results = {k: r for k, r in run.results.items() if r.reproducer != best}


def test_the_report_has_the_sentence_and_reason_of_each_requirement(tmp_path: Path) -> None:
    report = written(sample_run(), tmp_path)
    known = load_requirements()
    assert report["requirements"]
    for row in report["requirements"]:
        assert (row["sentence"], row["why"]) == (known[row["id"]].sentence, known[row["id"]].why)


def test_a_history_is_written_beside_the_report(tmp_path: Path) -> None:
    report = written(with_result(sample_run(), FAILED, history=HISTORY), tmp_path)
    checks = {check["id"]: check for check in report["checks"]}
    assert (tmp_path / checks[FAILED.id]["history"]).read_text() == HISTORY
    assert checks[CRASHED.id]["history"] == ""
    assert HISTORY not in texts_in(report)
    written(sample_run(), tmp_path)
    assert list((tmp_path / "histories").iterdir()) == []


@pytest.mark.parametrize("name", ["a" * 400, "../../x", "a/b[c d]", "ünï\ud800"])
def test_a_history_has_a_safe_unique_name(tmp_path: Path, name: str) -> None:
    run = sample_run()
    for check_id in (name, f"x{name}"):
        run.plan.append(replace(FAILED, id=check_id))
        run.results[check_id] = replace(run.results[FAILED.id], id=check_id, history=HISTORY)
    written(run, tmp_path)
    assert len(list((tmp_path / "histories").iterdir())) == 2


def test_files_of_an_earlier_report_are_removed(tmp_path: Path) -> None:
    written(sample_run(), tmp_path)
    clean = replace(sample_run(), plan=[PASSED])
    clean.results = {PASSED.id: clean.results[PASSED.id]}
    assert [check["id"] for check in written(clean, tmp_path)["checks"]] == [PASSED.id]
    assert len(junit(tmp_path)) == 1
    assert list((tmp_path / "reproducers").iterdir()) == []


def test_the_folder_is_made(tmp_path: Path) -> None:
    folder = tmp_path / "reports" / "acme"
    written(sample_run(), folder)
    assert (folder / "report.json").is_file()


def test_the_verdict_is_in_the_body(tmp_path: Path) -> None:
    run = sample_run()
    conclusion = Conclusion(Verdict.CONDITIONAL, 1, ["GET-02 waived"])
    write_report(Certificate(CertifyOptions("x"), run, [], conclusion), tmp_path)
    loaded = json.loads((tmp_path / "report.json").read_text())
    assert loaded["verdict"] == {
        "verdict": "conditional",
        "exit_code": 1,
        "reasons": ["GET-02 waived"],
    }
