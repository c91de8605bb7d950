"""Level ``durability`` on a real plane, and ``rlconform soak`` on a plane of one process."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any


def test_producers_and_consumers_are_killed_in_the_middle_of_their_calls(
    certify: Callable[..., Any],
) -> None:
    done = certify("ray_store", "--level", "durability", "-k", "test_fault_callers")
    assert {done.outcomes()[one] for one in ("FAULT-01", "FAULT-04")} == {"PASS"}, done.stdout
    assert done.report["header"]["level"] == "durability"


def test_a_plane_of_one_process_has_no_level_durability(certify: Callable[..., Any]) -> None:
    done = certify("memory", "--level", "durability")
    assert done.code == 2
    assert "declares level unit" in done.stdout + done.stderr


def test_a_short_soak_delivers_every_row_and_is_too_short_to_judge_slopes(tmp_path: Path) -> None:
    out = tmp_path / "soak"
    command = [sys.executable, "-m", "rlconform", "soak", "memory", "--minutes", "0.04"]
    done = subprocess.run(
        [*command, "--out", str(out)], capture_output=True, text=True, check=False, timeout=240
    )
    assert done.returncode == 1, done.stderr
    assert "indeterminate" in done.stdout
    document = json.loads((out / "soak.json").read_text("utf-8"))
    assert document["answer"] == "indeterminate"
    assert document["problems"] == {}
    assert document["delivered"] > 0
    assert document["calls"]["clear"]["total"] > 0
    page = (out / "soak.html").read_text("utf-8")
    assert page.count("<polyline") >= 8
    assert "<script" not in page
