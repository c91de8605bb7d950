"""The workflows and their scripts: what the gate relies on, and what the steps do when they run.

The steps run in bash, with stubs of ``gh`` and ``pip``, and the real ``rlconform`` on the plane in
memory.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from rlconform._resources import resource_dir

from .workflow_steps import (
    ACTION,
    ROOT,
    WORKFLOWS,
    StepsResult,
    defaults,
    load,
    run_steps,
)

CI = load(ROOT / ".github" / "workflows" / "ci.yml")
VENDORS = load(ROOT / ".github" / "workflows" / "certify.yml")


def all_steps() -> list[tuple[str, dict[str, Any]]]:
    """All steps of workflows and of the action, with the names of their files."""
    files = [(file.name, load(file)) for file in WORKFLOWS]
    steps = [
        (name, step)
        for name, flow in files
        for job in flow["jobs"].values()
        for step in job["steps"]
    ]
    return [*steps, *(("action.yml", step) for step in load(ACTION)["runs"]["steps"])]


def test_the_required_job_always_runs_and_needs_every_other() -> None:
    gate = CI["jobs"]["gate"]
    assert gate["if"] == "always()"
    assert set(gate["needs"]) == CI["jobs"].keys() - {"gate"}


def test_levels_start_by_what_the_plan_says() -> None:
    for level in ("l1", "l2"):
        assert CI["jobs"][level]["if"] == f"needs.plan.outputs.{level} == 'true'"
        assert "plan" in CI["jobs"][level]["needs"]
        assert level in CI["jobs"]["plan"]["outputs"]


def test_no_script_holds_an_expression() -> None:
    """A branch's name in a script would be run as shell; in ``env:`` it is a text."""
    scripts = [(file, step) for file, step in all_steps() if "run" in step]
    assert len(scripts) > 8
    assert [step["name"] for _, step in scripts if "${{" in step["run"]] == []


def test_the_scripts_exist_and_actions_have_versions() -> None:
    named = set()
    for _, step in all_steps():
        named |= set(re.findall(r"(?:^| |/)((?:\.ci|ci)/[\w./]+)", step.get("run", "")))
        uses = step.get("uses", "./")
        assert uses.startswith("./") or re.fullmatch(r"[\w-]+/[\w-]+@v\d+", uses)
    assert {"ci/gate.py", ".ci/run", "ci/l1.sh", "ci/fetch_baseline.sh"} <= named
    assert [name for name in named if not (ROOT / name).is_file()] == []


def test_a_vendor_reaches_every_input_of_the_action() -> None:
    inputs = load(ACTION)["inputs"]
    (step,) = [one for one in VENDORS["jobs"]["certify"]["steps"] if one.get("id") == "certify"]
    assert step["with"].keys() <= inputs.keys()
    offered = VENDORS["on"]["workflow_call"]["inputs"].keys()
    assert {"target", "level", "waivers", "require", "config"} <= offered
    for text in step["with"].values():
        (name,) = re.findall(
            r"\$\{\{ (?:inputs\.(\S+)|steps\.baseline\.outputs\.folder) \}\}", text
        )
        assert name == "" or name in offered


@pytest.fixture
def stubs(tmp_path: Path) -> dict[str, str]:
    """PATH with this Python's ``rlconform``, and with ``pip`` and ``gh`` that note their calls."""
    folder = tmp_path / "bin"
    folder.mkdir()
    calls = tmp_path / "calls"
    note = f'[[ "$1 $2" != "-m pip" ]] || {{ echo "$@" >>{calls}; exit 0; }}'
    python = f'{note}; exec {sys.executable} "$@"'
    scripts = {
        "python": python,
        "rlconform": f'exec {sys.executable} -m rlconform "$@"',
        "gh": f'echo "$@" >>{calls}; exec {sys.executable} {tmp_path}/gh.py "$@"',
    }
    for name, script in scripts.items():
        (folder / name).write_text(f"#!/usr/bin/env bash\n{script}\n")
        (folder / name).chmod(0o755)
    return {"PATH": f"{folder}:{os.environ['PATH']}", "GITHUB_REPOSITORY": "o/r"}


@pytest.fixture
def certified(tmp_path: Path, stubs: dict[str, str]) -> Any:
    """``certified(**inputs)``: run the steps of the action in a folder."""
    folder = tmp_path / "work"
    folder.mkdir()
    action = load(ACTION)

    def run(**given: str) -> StepsResult:
        contexts = {
            "inputs": defaults(action["inputs"], **given),
            "github": {"action_path": ACTION.parent},
        }
        return run_steps(action["runs"]["steps"], contexts, folder, stubs)

    return run


#: Few checks, which never certify: exit code 1.
FEW = "-k test_a_repeated_id_repeats"
#: The plane in memory with a defect that these checks find.
BROKEN = "rlconform.mutants.memory.get:GetRepeatedIdReadOnce"


def test_the_action_certifies_keeps_and_compares(certified: Any, tmp_path: Path) -> None:
    first = certified(target="memory", options=FEW, extras="tq,grpo")
    assert first.ran == ["Install rlconform", "Certify", "Compare with the baseline"]
    assert first.code != 0, "a part of the checks certifies nothing"
    written = json.loads((tmp_path / "work" / "rlconform-report" / "report.json").read_text())
    assert first.outputs["certify"]["verdict"] == written["verdict"]["verdict"]
    assert first.summary == f"**memory**: {written['verdict']['verdict']}\n\n"
    assert "no baseline to compare" in first.output
    assert (tmp_path / "calls").read_text().endswith("[tq,grpo]\n")

    shutil.copytree(tmp_path / "work" / "rlconform-report", tmp_path / "work" / "old")
    compared = {"options": FEW, "extras": "none", "require": "no-regression", "baseline": "old"}
    again = certified(target="memory", **compared)
    assert again.code == 0, again.output
    assert "no requirement changed" in again.output
    assert (tmp_path / "calls").read_text().count("\n") == 1, "nothing more was installed"

    worse = certified(target=BROKEN, **compared)
    assert worse.code == 1, worse.output
    assert "newly broken" in worse.output


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"target": "memory", "require": "certify"}, "expected certified or no-regression"),
        (
            {"target": "no_such_plane", "require": "no-regression", "baseline": "old"},
            "no_such_plane",
        ),
    ],
)
def test_the_action_fails_if_nothing_was_judged(certified: Any, given: Any, said: str) -> None:
    result = certified(extras="none", **given)
    assert result.code == 2, result.output
    assert said in result.output


@pytest.mark.parametrize("baseline", ["", "old"])
@pytest.mark.parametrize("require", ["certified", "no-regression"])
@pytest.mark.parametrize("code", [0, 1, 2, 3])
def test_only_a_plane_that_was_judged_may_be_left_to_the_baseline(
    tmp_path: Path, stubs: dict[str, str], code: int, require: str, baseline: str
) -> None:
    (tmp_path / "bin" / "rlconform").write_text(f"#!/bin/bash\nexit {code}\n")
    given = {"TARGET": "x", "OUT": "none", "REQUIRE": require, "BASELINE": baseline}
    step = {"name": "certify", "run": f"bash {ROOT}/ci/certify_action.sh", "env": given}
    result = run_steps([step], {}, tmp_path, stubs)
    assert result.code == (0 if code == 1 and require == "no-regression" else code)
    first = require == "no-regression" and not baseline
    assert ("::warning::no baseline yet" in result.output) is first


_GH = """\
import json, os, sys
given = sys.argv[1:]
if given[0] == "run":
    folder = given[given.index("--dir") + 1]
    os.makedirs(folder)
    open(folder + "/report.json", "w").write(given[2])
elif "/actions/artifacts?" in given[1]:
    assert "env.BRANCH" in given[3] and os.environ["BRANCH"] == "main"
    print("\\n".join(json.loads(os.environ["RUNS"])))
else:
    print(json.loads(os.environ["RUNS"])[given[1].rpartition("/")[2]])
"""


@pytest.mark.parametrize(
    ("runs", "fetched"),
    [
        ({}, None),
        ({"9": "failure", "8": "cancelled"}, None),
        ({"9": "failure", "8": "success", "7": "success"}, "8"),
    ],
)
def test_the_baseline_is_of_the_newest_run_that_succeeded(
    tmp_path: Path, stubs: dict[str, str], runs: dict[str, str], fetched: str | None
) -> None:
    (tmp_path / "gh.py").write_text(_GH)
    (step,) = [one for one in VENDORS["jobs"]["certify"]["steps"] if one.get("id") == "baseline"]
    (tmp_path / ".rlconform").symlink_to(ROOT)
    contexts = {
        "github": {"token": "t", "event": {"repository": {"default_branch": "main"}}},
        "inputs": {"artifact": "certificate"},
    }
    result = run_steps([step], contexts, tmp_path, {**stubs, "RUNS": json.dumps(runs)})
    assert result.code == 0, result.output
    folder = result.outputs["baseline"]["folder"]
    assert folder == (".rlconform-baseline" if fetched else "")
    if fetched:
        assert (tmp_path / folder / "report.json").read_text() == fetched


def test_a_baseline_that_cannot_be_asked_for_is_an_error(
    tmp_path: Path, stubs: dict[str, str]
) -> None:
    (tmp_path / "gh.py").write_text("raise SystemExit(4)")
    script = resource_dir("suites").parent / "ci" / "fetch_baseline.sh"
    step = {"name": "fetch", "run": f"bash {script} certificate main baseline"}
    assert run_steps([step], {}, tmp_path, stubs).code == 4
