"""The folder of a report: what was found is never lost, and no file is half written."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rlconform.certify.report import report_folder
from rlconform.certify.report.report_folder import folder_to_write
from rlconform.certify.report.verify import Fault, verify_report


def fails(*_: Any, **__: Any) -> str:
    raise ZeroDivisionError("the page has a mistake")


@pytest.mark.parametrize("part", ["render_certificate", "junit_bytes", "badge_text"])
def test_a_part_that_can_not_be_made_does_not_lose_the_results(
    issue_report: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    with monkeypatch.context() as broken:
        broken.setattr(report_folder, part, fails)
        with pytest.raises(ZeroDivisionError):
            issue_report(name="broken")
    report = json.loads((tmp_path / "broken" / "report.json").read_text("utf-8"))
    right = json.loads((issue_report(name="right") / "report.json").read_text("utf-8"))
    assert report["checks"] == right["checks"]
    assert report["verdict"] == right["verdict"]
    faults = {one.fault for one in verify_report(tmp_path / "broken").findings}
    assert Fault.MISSING in faults  # the history, whose digest it does not have


def test_a_page_of_an_earlier_report_does_not_stay_beside_a_new_one(
    issue_report: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = issue_report()
    assert (folder / "report.html").is_file()
    monkeypatch.setattr(report_folder, "render_certificate", fails)
    with pytest.raises(ZeroDivisionError):
        issue_report()
    assert not (folder / "report.html").exists()


def test_no_unfinished_file_is_left(issue_report: Callable[..., Path]) -> None:
    assert not list(issue_report().rglob(".*"))


def test_a_page_that_the_footer_does_not_name_is_found(issued: Path) -> None:
    report = json.loads((issued / "report.json").read_text("utf-8"))
    del report["footer"]["files"]["report.html"]
    (issued / "report.json").write_text(json.dumps(report), "utf-8")
    (issued / "report.html").write_text("certified", "utf-8")
    found = [(one.fault, one.where) for one in verify_report(issued).findings]
    assert found == [(Fault.TAMPERED, "report.html")]


@pytest.mark.parametrize("name", ["../../etc/passwd", "/etc/passwd", "x" * 5000, "a\0b", "\ud800"])
def test_a_name_in_the_footer_leads_nowhere_else(issued: Path, name: str) -> None:
    report = json.loads((issued / "report.json").read_text("utf-8"))
    report["footer"]["files"][name] = "ab"
    (issued / "report.json").write_text(json.dumps(report), "utf-8")
    found = {(one.fault, one.where) for one in verify_report(issued).findings}
    assert found in ({(Fault.TAMPERED, name)}, {(Fault.MISSING, name)})


# -- which folder is written ---------------------------------------------------------------------

WHOLE, PART = {"complete": True}, {"complete": False}
FUNCTIONAL = {"level": "functional", "target": {"spec": "acme"}}
UNIT = {"level": "unit", "target": {"spec": "other"}}


def folder_with(folder: Path, selected: str = "", **footer: bool) -> Path:
    """A folder that holds a report of this kind."""
    folder.mkdir(parents=True)
    report = {"header": FUNCTIONAL | {"selected": selected}, "footer": footer}
    (folder / "report.json").write_text(json.dumps(report), "utf-8")
    return folder


def test_a_partial_report_never_replaces_a_complete_one(tmp_path: Path) -> None:
    out = folder_with(tmp_path / "out", **WHOLE)
    assert folder_to_write(out, UNIT, whole=False, force=False) == tmp_path / "out-partial"
    folder_with(tmp_path / "out-partial", **PART)
    assert folder_to_write(out, UNIT, whole=False, force=False) == tmp_path / "out-partial"


def test_a_complete_report_in_the_partial_folder_is_kept_too(tmp_path: Path) -> None:
    out = folder_with(tmp_path / "out", **WHOLE)
    folder_with(tmp_path / "out-partial", **WHOLE)
    assert folder_to_write(out, UNIT, whole=False, force=False) == tmp_path / "out-partial-2"


@pytest.mark.parametrize(("whole", "force"), [(True, False), (False, True)])
def test_a_complete_run_or_force_replaces_anything(
    tmp_path: Path, whole: bool, force: bool
) -> None:
    out = folder_with(tmp_path / "out", **WHOLE)
    assert folder_to_write(out, UNIT, whole, force) == out


def test_a_lower_level_of_the_same_target_is_partial(tmp_path: Path) -> None:
    out = folder_with(tmp_path / "out", **WHOLE)
    lower = FUNCTIONAL | {"level": "unit"}
    assert folder_to_write(out, lower, whole=True, force=False) == tmp_path / "out-partial"
    assert folder_to_write(out, lower, whole=True, force=True) == out
    for level in ("functional", "e2e"):
        same = FUNCTIONAL | {"level": level}
        assert folder_to_write(out, same, whole=True, force=False) == out


def test_a_partial_report_replaces_another_one(tmp_path: Path) -> None:
    for name, selected, footer in (("cut", "", PART), ("narrowed", "claim", WHOLE)):
        out = folder_with(tmp_path / name, selected, **footer)
        assert folder_to_write(out, UNIT, whole=False, force=False) == out


@pytest.mark.parametrize("text", ["", "[]", "{}", "3", '{"footer": {"complete": true}}', "\xff"])
def test_other_files_are_replaced(tmp_path: Path, text: str) -> None:
    (tmp_path / "report.json").write_text(text, "latin-1")
    assert folder_to_write(tmp_path, UNIT, whole=False, force=False) == tmp_path
    assert folder_to_write(tmp_path / "new", UNIT, whole=False, force=False) == tmp_path / "new"


def test_the_current_folder_has_a_name_as_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = folder_with(tmp_path / "here", **WHOLE)
    monkeypatch.chdir(here)
    chosen = folder_to_write(Path("."), UNIT, whole=False, force=False)
    assert chosen.resolve() == tmp_path / "here-partial"
