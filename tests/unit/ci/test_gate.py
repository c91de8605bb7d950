"""The required job passes only if every job that was due has succeeded; a skipped one has not."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from rlconform._resources import resource_dir

SCRIPT = resource_dir("suites").parent / "ci" / "gate.py"
OWN, FORK = {"id": 1}, {"id": 2}


def run(command: str, folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(SCRIPT), command],
        env=os.environ | environment, cwd=folder, capture_output=True, text=True, check=False,
    )  # fmt: skip


def planned(folder: Path, name: str, event: dict[str, Any]) -> dict[str, str]:
    """What the plan writes for an event."""
    (folder / "event.json").write_text(json.dumps(event))
    output = folder / "output"
    done = run(
        "plan", folder, GITHUB_EVENT_NAME=name, GITHUB_EVENT_PATH=str(folder / "event.json"),
        GITHUB_OUTPUT=str(output),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return dict(line.split("=", 1) for line in output.read_text().splitlines())


def request(*labels: str, head: Any = OWN, action: str = "synchronize", just: str = "") -> Any:
    return {
        "action": action,
        "label": {"name": just},
        "pull_request": {
            "labels": [{"name": label} for label in labels],
            "head": {"repo": head},
            "base": {"repo": OWN},
        },
    }


@pytest.mark.parametrize(
    ("name", "event", "due"),
    [
        ("push", {"ref": "refs/heads/main"}, set()),
        ("pull_request", request(), set()),
        ("pull_request", request("CI:L1", "docs"), {"l1"}),
        ("pull_request", request("CI:L1", "CI:L2"), {"l1", "l2"}),
        ("schedule", {}, {"l1", "l2"}),
        ("workflow_dispatch", {"inputs": {"level": "l0"}}, set()),
        ("workflow_dispatch", {"inputs": {"level": "l1"}}, {"l1"}),
        ("workflow_dispatch", {"inputs": {"level": "l2"}}, {"l1", "l2"}),
        (
            "pull_request",
            request("CI:L1", head=FORK, action="labeled", just="CI:L1"),
            {"l1"},
        ),
    ],
)
def test_an_event_needs_levels(tmp_path: Path, name: str, event: Any, due: set[str]) -> None:
    outputs = planned(tmp_path, name, event)
    assert {level for level in ("l1", "l2") if outputs[level] == "true"} == due
    assert outputs["refused"] == ""


@pytest.mark.parametrize(
    "event",
    [
        request("CI:L1", head=FORK),
        request("CI:L1", head=None),  # the fork was deleted
        request("CI:L1", head=FORK, action="labeled", just="docs"),
    ],
)
def test_what_a_fork_pushes_after_the_label_gets_no_machine(tmp_path: Path, event: Any) -> None:
    outputs = planned(tmp_path, "pull_request", event)
    assert (outputs["l1"], outputs["l2"]) == ("false", "false")
    assert "label it again" in outputs["refused"]
    assert checked(tmp_path, needs(l1="skipped", refused=outputs["refused"])).returncode == 1


def needs(*, due: str = "", refused: str = "", **results: str) -> dict[str, Any]:
    """The results of all jobs, good ones by default; ``due`` names the levels of the plan."""
    good = dict.fromkeys(("plan", "l0", "slurm", "certificates"), "success")
    good |= {level: "success" if level in due else "skipped" for level in ("l1", "l2")}
    outputs = {level: str(level in due).lower() for level in ("l1", "l2")} | {"refused": refused}
    return {
        job: {"result": result, "outputs": outputs if job == "plan" else {}}
        for job, result in (good | results).items()
        if result != "absent"
    }


def checked(folder: Path, given: dict[str, Any]) -> subprocess.CompletedProcess[str]:
    return run("check", folder, NEEDS=json.dumps(given))


@pytest.mark.parametrize("due", ["", "l1", "l1 l2"])
def test_a_level_that_is_not_due_may_be_skipped(tmp_path: Path, due: str) -> None:
    done = checked(tmp_path, needs(due=due))
    assert (done.returncode, done.stdout) == (0, "all passed\n")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (needs(due="l1", l1="skipped"), "l1: expected success; got skipped"),
        (needs(due="l1 l2", l2="cancelled"), "l2: expected success; got cancelled"),
        (needs(due="l1", l0="failure", l1="skipped"), "l0: expected success; got failure"),
        (needs(l0="skipped"), "l0: expected success; got skipped"),
        (needs(slurm="skipped"), "slurm: expected success; got skipped"),
        (needs(certificates="skipped"), "certificates: expected success; got skipped"),
        (needs(l1="failure"), "l1: expected success; got failure"),
        (needs(plan="failure", l1="skipped"), "plan: failure"),
        (needs(plan="skipped"), "plan: skipped"),
        (needs(plan="absent"), "plan: not needed"),
        (needs(l1="absent"), "l1: the required job does not need it"),
    ],
)
def test_a_job_that_did_not_succeed_fails_the_gate(tmp_path: Path, given: Any, said: str) -> None:
    done = checked(tmp_path, given)
    assert done.returncode == 1
    assert f"::error::{said}" in done.stdout


def test_a_plan_without_outputs_fails_the_gate(tmp_path: Path) -> None:
    given = needs()
    given["plan"]["outputs"] = {}
    done = checked(tmp_path, given)
    assert done.returncode == 1
    assert "l1: expected the plan to say true or false; got None" in done.stdout
