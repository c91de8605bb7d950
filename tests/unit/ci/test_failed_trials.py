"""``ci/failed_trials.py``: a failed CI run ends with the trials that went wrong, and why."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[3] / "ci/failed_trials.py"


def test_trials_that_went_wrong_are_printed_with_their_folder(tmp_path: Path) -> None:
    def trial(name: str, kind: str, detail: str = "") -> dict[str, object]:
        return {"name": name, "kind": kind, "detail": detail, "broken": {}, "seconds": 1.0}

    races = tmp_path / "races"
    races.mkdir()
    gate = {"trials": [trial("a", "killed"), trial("b", "passed")], "trainer_trials": []}
    raced = {"trials": [trial("c", "survived", "0 of 10 seeds")], "trainer_trials": []}
    (tmp_path / "self-test.json").write_text(json.dumps(gate), "utf-8")
    (races / "self-test.json").write_text(json.dumps(raced), "utf-8")
    done = subprocess.run(
        [sys.executable, SCRIPT, tmp_path], capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines() == [
        f"{races / 'self-test.json'}: survived c: 0 of 10 seeds; broken: {{}}"
    ]
