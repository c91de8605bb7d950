"""``python -m benchmarks.field``: a plane that does not install or start is a row of the page."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.field.certified import ROOT, certified, kept
from benchmarks.field.planes import FieldPlane

ACME = FieldPlane(name="acme", about="an example", target="acme.plane:TARGET")


@pytest.mark.parametrize(
    ("packages", "reason"),
    [
        ((), "No module named 'acme'"),
        (("no package!",), "no package! can't be installed: ERROR: Invalid requirement"),
    ],
)
def test_a_plane_that_does_not_start_has_a_reason(
    tmp_path: Path, packages: tuple[str, ...], reason: str
) -> None:
    plane = ACME.model_copy(update={"packages": packages})
    result = certified(plane, tmp_path, {}, 120.0)
    assert result.report is None
    assert reason in result.reason
    assert kept(plane, tmp_path) == result


def test_the_command_certifies_a_plane_and_goes_on_from_its_report(tmp_path: Path) -> None:
    page = tmp_path / "field.md"
    options = ["--only", "memory", "--folder", str(tmp_path / "runs"), "--page", str(page)]
    command = [sys.executable, "-m", "benchmarks.field", *options]
    first, second = (
        subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
        for _ in range(2)
    )
    assert "memory: certified; " in first
    assert "memory" not in second
    assert "| certified |" in page.read_text("utf-8")
