"""Whatever a plane does to its process, the report is complete and right, and nothing is left."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from rlconform.certify.report.verify import Fault, verify_report

#: Of each plane: the outcomes that its checks may have, and one that some check must have.
PLANES: dict[str, tuple[set[str], str]] = {
    "raises_keyboard_interrupt": ({"PASS", "FAIL"}, "FAIL"),
    "raises_system_exit": ({"PASS", "FAIL"}, "FAIL"),
    "raises_generator_exit": ({"PASS", "FAIL"}, "FAIL"),
    "raises_its_own": ({"PASS", "FAIL"}, "FAIL"),
    "forks": ({"PASS"}, "PASS"),
    "floods": ({"PASS"}, "PASS"),
    "leaks": ({"PASS"}, "PASS"),
    "closes_standard_files": ({"PASS", "CRASH"}, "PASS"),
    "closes_files": ({"PASS", "CRASH"}, "CRASH"),
    "writes_to_pipes": ({"PASS"}, "PASS"),
    "changes_handlers": ({"PASS"}, "PASS"),
    "sets_limits": ({"PASS", "CRASH", "SUITE_ERROR"}, "PASS"),
    "replaces_hooks": ({"PASS"}, "PASS"),
    "deletes_folder": ({"PASS"}, "PASS"),
    "changes_folder": ({"PASS"}, "PASS"),
    "patches_torch": ({"PASS", "FAIL", "SUITE_ERROR"}, "FAIL"),
}
#: A few checks that put, read and claim.
SELECTED = "test_stat.py or test_tag.py or test_get.py"


def orphans() -> set[int]:
    """The processes that planes start with an empty environment."""
    names = {f"sleep {seconds}" for seconds in range(1000, 1004)}
    running = psutil.process_iter(["cmdline"])
    return {one.pid for one in running if " ".join(one.info["cmdline"] or []) in names}


@pytest.mark.timeout(600)
@pytest.mark.parametrize("plane", PLANES)
def test_the_report_is_complete_and_nothing_is_left(
    user: Any, left_behind: Callable[[], list[str]], plane: str
) -> None:
    possible, certain = PLANES[plane]
    before = orphans()
    done = user.certify(f"rough:{plane}", "-k", SELECTED)
    stdout, stderr = done.communicate(timeout=500)
    assert done.returncode in {1, 2}, stdout + stderr  # 2: the kit could not judge every check
    assert "Traceback" not in stderr
    report = json.loads((user.out / "report.json").read_text("utf-8"))
    assert report["footer"]["complete"], report["notes"]
    outcomes = {check["outcome"] for check in report["checks"] if check["ran"]}
    assert certain in outcomes
    assert outcomes <= possible, [c for c in report["checks"] if c["outcome"] not in possible][:2]
    faults = {(one.fault, one.where) for one in verify_report(user.out).findings}
    assert faults == {(Fault.PARTIAL, "selected")}
    assert left_behind() == []
    assert orphans() <= before
    assert not list(Path("/dev/shm").glob("rlconform-rough-*"))


def test_what_is_raised_is_named(user: Any) -> None:
    done = user.certify("rough:raises_its_own", "-k", "test_stat.py or test_get.py")
    done.communicate(timeout=300)
    report = json.loads((user.out / "report.json").read_text("utf-8"))
    texts = [check["evidence"] for check in report["checks"] if check["outcome"] == "FAIL"]
    due = "expected get_samples to return, or to raise an Exception; got OwnBaseException: mine"
    assert any(due in text for text in texts), texts


@pytest.mark.parametrize("target", ["exits_at_import:TARGET", "rough:exits_on_open"])
def test_a_plane_that_exits_instead_of_opening_does_not_start(
    user: Any, left_behind: Callable[[], list[str]], target: str
) -> None:
    done = user.certify(target)
    stdout, stderr = done.communicate(timeout=120)
    assert done.returncode == 2, stdout + stderr
    assert "SystemExit" in stderr
    assert "Traceback" not in stderr
    assert not user.out.exists()
    assert left_behind() == []
