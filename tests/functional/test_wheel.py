"""The built wheel certifies the memory plane in an empty environment, outside the checkout."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import venv
from pathlib import Path

import pytest

from rlconform._resources import resource_dir

CHECKOUT = resource_dir("suites").parent


def run(*command: str, cwd: Path) -> str:
    """Run the command and return its output; a failure shows the output."""
    hidden = {"PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV"}
    environment = {name: value for name, value in os.environ.items() if name not in hidden}
    done = subprocess.run(
        command, cwd=cwd, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{command}:\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_installed_wheel_certifies(tmp_path: Path) -> None:
    wheels, home, elsewhere = (tmp_path / name for name in ("wheels", "venv", "elsewhere"))
    elsewhere.mkdir()
    run(sys.executable, "-m", "build", "--wheel", "--outdir", str(wheels), str(CHECKOUT),
        cwd=elsewhere)  # fmt: skip
    (wheel,) = wheels.glob("*.whl")
    venv.create(home, with_pip=True)
    python = str(home / "bin" / "python")
    constraints = str(CHECKOUT / "ci" / "constraints.txt")
    run(python, "-m", "pip", "install", "-q", "-c", constraints, str(wheel), cwd=elsewhere)

    where = run(
        python, "-c",
        "from rlconform._resources import resource_dir as d;"
        "print(*(d(n) for n in ('suites', 'fixtures', 'reference_configs')), sep='\\n')",
        cwd=elsewhere,
    )  # fmt: skip
    folders = [Path(line) for line in where.splitlines()]
    assert all(folder.is_relative_to(home) for folder in folders)

    printed = run(str(home / "bin" / "rlconform"), "certify", "--out", "report", cwd=elsewhere)
    assert "level unit" in printed.splitlines()[0]
    assert "certified at level unit" in printed
    report = json.loads((elsewhere / "report" / "report.json").read_text("utf-8"))
    assert report["verdict"]["verdict"] == "certified"
    assert report["footer"]["complete"]
    outcomes = {row["outcome"] for row in report["requirements"]}
    assert outcomes == {"PASS", "NOT_APPLICABLE"}
    assert report["header"]["versions"]["ray"] == "not installed"
