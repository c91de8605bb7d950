"""With planes that crash, hang or end the process, the report is complete and the runner ends."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

#: The method that misbehaves, its text in the report, and the checks to run: a few, since each
#: broken check costs a process or a deadline.
HOSTILE = {
    "segfaulting_get": ("get_", "CRASH", "SIGSEGV", "test_get.py or test_stat.py"),
    "exiting_put": (
        "put_samples",
        "CRASH",
        "exited with status 3",
        "test_reg.py or test_life.py or test_put_writes_properties or test_clears",
    ),
    "sleeping_claim": (
        "claim_meta",
        "TIMEOUT",
        "did not return",
        "test_reg or test_stat or test_tag_properties or test_the_status",
    ),
}


@pytest.mark.timeout(900)
@pytest.mark.parametrize(("plane", "expected"), HOSTILE.items(), ids=HOSTILE)
def test_the_report_is_complete(
    certify_here: Callable[..., Any], plane: str, expected: tuple[str, str, str, str]
) -> None:
    method, outcome, evidence, selected = expected
    done = certify_here(f"hostile:{plane}", selected)
    assert done.code == 1, done.report["notes"]
    footer = done.report["footer"]
    assert footer["checks_run"] == footer["checks_planned"] > 30
    lost = [check for check in done.report["checks"] if check["outcome"] == outcome]
    assert lost
    for check in lost:
        assert evidence in check["evidence"], check
        told = [check["evidence"], check["stacks"], *check["steps"][-1:]]
        assert any(method in text for text in told), check
    assert not [c for c in done.report["checks"] if c["outcome"] == "SUITE_ERROR"]
    untouched = [c for c in done.report["checks"] if c["outcome"] == "PASS"]
    assert untouched, "checks that don't use the method still run and pass"


def test_stacks_show_where_a_call_hangs(certify_here: Callable[..., Any]) -> None:
    done = certify_here("hostile:sleeping_claim", "test_tasks_have_their_own_cursors")
    (check,) = [c for c in done.report["checks"] if c["outcome"] == "TIMEOUT"]
    assert "hostile.py" in check["stacks"]


def test_a_plane_that_does_not_close_is_ended(certify_here: Callable[..., Any]) -> None:
    done = certify_here("hostile:unwilling_to_close", "test_get.py")
    assert done.outcomes()["GET-09"] == "PASS"


@pytest.mark.parametrize(
    "selected", ["contract", pytest.param("", marks=pytest.mark.robustness)], ids=["part", "whole"]
)
def test_a_plane_that_answers_nothing_fails_without_a_suite_error(
    certify_here: Callable[..., Any], selected: str
) -> None:
    done = certify_here("hostile:lazy", selected)
    assert done.code == 1
    assert done.report["footer"]["complete"]
    wrong = [c for c in done.report["checks"] if c["outcome"] == "SUITE_ERROR"]
    assert not wrong, wrong[:3]
