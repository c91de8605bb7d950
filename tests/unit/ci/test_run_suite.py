"""A list of recipes passes only if each leaves a verdict that passes, and none is worse.

A stub stands for ``rlconform launch``: it notes its call and writes a verdict.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from rlconform._resources import resource_dir
from rlconform.launch.suites import load_suites

CI = resource_dir("suites").parent / "ci"
LEGACY = "grpo-llama3.1-8b-instruct-1n8g-megatron"
(L1,) = [suite.config.recipes for suite in load_suites() if suite.name == "l1"]

_STUB = """\
#!/usr/bin/env bash
# launch RECIPE --site SITE --out FOLDER [--baseline FOLDER]
[[ $1 == diff ]] && exec {python} -m rlconform "$@"
echo "$2 $8" >>{calls}
[[ $2 != *{absent} ]] || exit 0
mkdir -p "$6"
passed=true; [[ $2 != *{failing} ]] || passed=false
echo '{{"schema": 1, "recipe": "'$2'", "passed": '$passed', "gates": []}}' >"$6/verdict.json"
"""


@pytest.mark.parametrize(
    ("failing", "absent", "named"),
    [("none", "none", []), ("-ray_store", "-tq_simple", ["-ray_store", "-tq_simple"])],
)
def test_every_recipe_runs_and_has_to_pass(
    tmp_path: Path, failing: str, absent: str, named: list[str]
) -> None:
    calls = tmp_path / "calls"
    stub = tmp_path / "rlconform"
    stub.write_text(
        _STUB.format(calls=calls, failing=failing, absent=absent, python=sys.executable)
    )
    stub.chmod(0o755)
    out = tmp_path / "jobs"
    done = subprocess.run(
        [sys.executable, str(CI / "run_suite.py"), "l1", "--site", "site.yaml", "--out", str(out)],
        env=os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    launched = [line.partition(" ") for line in calls.read_text().splitlines()]
    assert sorted(recipe for recipe, _, _ in launched) == sorted(L1)
    assert launched[0][0] == LEGACY
    assert {baseline for _, _, baseline in launched[1:]} == {str(out / LEGACY)}
    assert done.returncode == (1 if named else 0), done.stderr
    failures = [f"::error::{LEGACY}{plane} ended with 0" for plane in named]
    assert done.stdout.splitlines() == failures


def verdict(folder: Path, outcome: str) -> None:
    folder.mkdir(parents=True)
    gate = {"gate": "steps", "outcome": outcome, "message": ""}
    written = {"schema": 1, "recipe": folder.name, "passed": outcome == "pass", "gates": [gate]}
    (folder / "verdict.json").write_text(json.dumps(written))


@pytest.mark.parametrize(
    ("old", "new", "code", "said"),
    [
        (["a", "b"], {"a": "pass", "b": "pass", "c": "fail"}, 0, "no gate changed"),
        (["a"], {"a": "fail"}, 1, "a: worse than the baseline"),
        (["a", "b"], {"a": "pass"}, 1, "b: the baseline has a certificate, and this run has none"),
        ([], {"a": "pass"}, 1, "expected certificates in"),
        (None, {"a": "pass"}, 0, "no baseline to compare"),
    ],
)
def test_folders_are_compared_by_name(
    tmp_path: Path, old: list[str] | None, new: dict[str, str], code: int, said: str
) -> None:
    for name in old or ():
        verdict(tmp_path / "old" / name, "pass")
    for name, outcome in new.items():
        verdict(tmp_path / "new" / name, outcome)
    stub = tmp_path / "rlconform"
    stub.write_text(f'#!/usr/bin/env bash\nexec {sys.executable} -m rlconform "$@"\n')
    stub.chmod(0o755)
    folder = "" if old is None else str(tmp_path / "old")
    done = subprocess.run(
        ["bash", str(CI / "compare.sh"), folder, str(tmp_path / "new")],
        env=os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == code, done.stdout + done.stderr
    assert said in done.stdout
