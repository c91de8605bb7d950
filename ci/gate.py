"""Decide which levels of tests a change needs, and whether they all ran; the workflow's two ends.

    event ── plan ──▶ outputs l1, l2, refused ──▶ jobs l1, l2 run if their output is true
    needs: results of all jobs, outputs of plan ── check ──▶ exit code of the required job

GitHub takes a skipped job for a success, also a required one. So ``check`` runs always, and fails
if a job that was due was skipped or cancelled, or if the plan itself failed. It reads what was due
from the plan's own outputs, by which the jobs were started: the two can't disagree.

    python ci/gate.py plan      reads GITHUB_EVENT_NAME and GITHUB_EVENT_PATH, writes GITHUB_OUTPUT
    python ci/gate.py check     reads NEEDS, the workflow's toJSON(needs)

It needs nothing but Python's own library: it runs before anything is installed.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

#: Levels beside L0, which every event runs, with the labels that ask for them.
LABELS = {"l1": "CI:L1", "l2": "CI:L2"}
#: Events that run all levels.
ALL_LEVELS = {"schedule"}
PLAN = "plan"
REFUSED = "refused"


def plan(event_name: str, event: Mapping[str, Any]) -> dict[str, str]:
    """Return the outputs of the plan: ``true`` or ``false`` per level, and why one is refused.

    L1 and L2 run on machines of the project. A pull request from a fork gets them for the commit
    that a maintainer labelled, and not for what is pushed after that.
    """
    if event_name in ALL_LEVELS:
        return {**dict.fromkeys(LABELS, "true"), REFUSED: ""}
    if event_name == "workflow_dispatch":
        asked = (event.get("inputs") or {}).get("level") or "l0"
        return {**{level: str(level <= asked).lower() for level in LABELS}, REFUSED: ""}
    request = event.get("pull_request") or {}
    labels = {label["name"] for label in request.get("labels", ())}
    due = {level for level, label in LABELS.items() if label in labels}
    refused = ""
    just_labelled = event.get("action") == "labeled" and event["label"]["name"] in LABELS.values()
    if due and _from_fork(request) and not just_labelled:
        names = ", ".join(LABELS[level] for level in sorted(due))
        refused = f"the code of a fork changed after the label {names}: review it, label it again"
        due = set()
    return {**{level: str(level in due).lower() for level in LABELS}, REFUSED: refused}


def check(needs: Mapping[str, Any]) -> list[str]:
    """Return why the change does not pass; [] if every job that was due has succeeded."""
    planned = needs.get(PLAN)
    if planned is None or planned["result"] != "success":
        return [f"{PLAN}: {'not needed' if planned is None else planned['result']}; nothing is due"]
    outputs = planned["outputs"]
    if refused := outputs.get(REFUSED):
        return [refused]
    problems = [
        f"{level}: expected the plan to say true or false; got {outputs.get(level)!r}"
        for level in LABELS
        if outputs.get(level) not in {"true", "false"}
    ]
    missing = [level for level in LABELS if level not in needs]
    problems += [f"{level}: the required job does not need it" for level in missing]
    for job, state in needs.items():
        result = state["result"]
        is_due = outputs.get(job.partition("-")[0], "true") == "true"
        if result != "success" and (is_due or result != "skipped"):
            problems.append(f"{job}: expected success; got {result}")
    return problems


def _from_fork(request: Mapping[str, Any]) -> bool:
    head, base = (request[side].get("repo") or {} for side in ("head", "base"))
    return head.get("id") != base.get("id")  # a deleted fork has no repository


def main(command: str) -> int:
    """Run ``plan`` or ``check``; return the exit code."""
    if command == "plan":
        event = json.loads(Path(os.environ["GITHUB_EVENT_PATH"]).read_text("utf-8"))
        outputs = plan(os.environ["GITHUB_EVENT_NAME"], event)
        lines = "".join(f"{name}={value}\n" for name, value in outputs.items())
        with Path(os.environ["GITHUB_OUTPUT"]).open("a", encoding="utf-8") as file:
            file.write(lines)
        sys.stdout.write(lines)
        return 0
    problems = check(json.loads(os.environ["NEEDS"]))
    sys.stdout.write("".join(f"::error::{problem}\n" for problem in problems) or "all passed\n")
    return 1 if problems else 0


if __name__ == "__main__":
    if sys.argv[1:] not in (["plan"], ["check"]):
        sys.exit("usage: gate.py plan|check")
    sys.exit(main(sys.argv[1]))
