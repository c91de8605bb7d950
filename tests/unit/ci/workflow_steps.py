"""``run_steps``: runs the ``run:`` parts of a job or an action as a runner of GitHub does.

Expressions in ``env:`` are looked up in the given contexts, such as ``inputs.target``; steps with
``uses:`` are left out. Each step gets files for GITHUB_OUTPUT and GITHUB_STEP_SUMMARY; after a step
that failed, only those with ``if: always()`` run.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from rlconform._resources import resource_dir

ROOT = resource_dir("suites").parent
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
ACTION = ROOT / ".github" / "actions" / "certify" / "action.yml"
_EXPRESSION = re.compile(r"\$\{\{\s*(.*?)\s*\}\}")


@dataclass
class StepsResult:
    """What the steps left."""

    code: int = 0  # of the first step that failed
    output: str = ""
    summary: str = ""
    outputs: dict[str, dict[str, str]] = field(default_factory=dict)  # by the step's id
    ran: list[str] = field(default_factory=list)  # names of the steps that ran


def load(file: Path) -> dict[str, Any]:
    """Read a workflow or an action; the key ``on`` is a boolean in YAML 1.1."""
    loaded: dict[Any, Any] = yaml.safe_load(file.read_text("utf-8"))
    return {"on" if key is True else key: value for key, value in loaded.items()}


def defaults(inputs: Mapping[str, Any], **given: str) -> dict[str, str]:
    """Return the values of an action's inputs: those given, and the defaults of the others."""
    assert given.keys() <= inputs.keys()
    return {name: str(one.get("default", "")) for name, one in inputs.items()} | given


def look_up(text: str, contexts: Mapping[str, Any]) -> str:
    """Replace the expressions of a text; a name that no context has is an error."""

    def value(found: re.Match[str]) -> str:
        place: Any = contexts
        for part in found[1].split("."):
            place = place[part]
        return str(place)

    return _EXPRESSION.sub(value, text)


def run_steps(
    steps: list[dict[str, Any]],
    contexts: Mapping[str, Any],
    folder: Path,
    environment: Mapping[str, str],
) -> StepsResult:
    """Run the steps in ``folder``; ``environment`` is added to that of this process."""
    result = StepsResult()
    known = dict(contexts)
    for number, step in enumerate(steps):
        condition = step.get("if", "success()")
        assert condition in {"success()", "always()"}, "expected a condition that the test knows"
        if "run" not in step or (result.code and condition != "always()"):
            continue
        files = {name: folder / f"{name}-{number}" for name in ("output", "summary")}
        for file in files.values():
            file.touch()
        known["steps"] = {name: {"outputs": each} for name, each in result.outputs.items()}
        variables = {
            name: look_up(str(text), known) for name, text in step.get("env", {}).items()
        } | {"GITHUB_OUTPUT": str(files["output"]), "GITHUB_STEP_SUMMARY": str(files["summary"])}
        done = subprocess.run(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]],
            env={**os.environ, **environment, **variables},
            cwd=folder, capture_output=True, text=True, check=False, timeout=240,
        )  # fmt: skip
        result.ran.append(step["name"])
        result.code = result.code or done.returncode
        result.output += done.stdout + done.stderr
        result.summary += files["summary"].read_text("utf-8")
        lines = files["output"].read_text("utf-8").splitlines()
        result.outputs[step.get("id", str(number))] = dict(line.split("=", 1) for line in lines)
    return result
