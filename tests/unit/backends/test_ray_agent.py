"""Ray's agents run as they would by themselves, and report no dead raylet to Ray's server."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from rlconform.backends import ray_agent

pytest.importorskip("ray", reason="Ray is not installed")

#: A program in an agent's place. Ray's own report would read the raylet's log and ask the client.
PROGRAM = """
import json, sys
from ray._private.process_watcher import report_raylet_error_logs
print(json.dumps({
    "name": __name__, "arguments": sys.argv, "path": sys.path,
    "reported": report_raylet_error_logs("no such folder", None),
}))
sys.exit(3)
"""


def test_an_agent_runs_as_by_itself_and_reports_nothing(tmp_path: Path) -> None:
    program = tmp_path / "agent.py"
    program.write_text(PROGRAM, "utf-8")
    done = subprocess.run(
        [sys.executable, "-u", ray_agent.__file__, str(program), "--head", "a b"],
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert done.returncode == 3, done.stderr
    seen = json.loads(done.stdout)
    path = seen.pop("path")
    assert seen == {
        "name": "__main__",
        "arguments": [str(program), "--head", "a b"],
        "reported": None,
    }
    assert str(tmp_path) in path
    assert str(Path(ray_agent.__file__).parent) not in path
    assert done.stderr == ""
