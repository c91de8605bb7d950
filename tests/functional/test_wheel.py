"""The built wheel in an empty environment: a new adapter is written, filled in, and certified."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import venv
from pathlib import Path

import pytest

from rlconform._resources import resource_dir

CHECKOUT = resource_dir("suites").parent


def run(*command: str, cwd: Path, code: int = 0) -> str:
    """Run the command and return its output; another exit code shows the output."""
    hidden = {"PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV"}
    environment = {name: value for name, value in os.environ.items() if name not in hidden}
    done = subprocess.run(
        command, cwd=cwd, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == code, f"{command}:\n{done.stdout}\n{done.stderr}"
    return done.stdout + done.stderr * bool(code)


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
    install = str(CHECKOUT / "ci" / "fast_install.sh")
    run("bash", install, python, "-c", constraints, str(wheel), cwd=elsewhere)

    where = run(
        python, "-c",
        "from rlconform._resources import resource_dir as d;"
        "print(*(d(n) for n in ('suites', 'fixtures', 'reference_configs')), sep='\\n')",
        cwd=elsewhere,
    )  # fmt: skip
    folders = [Path(line) for line in where.splitlines()]
    assert all(folder.is_relative_to(home) for folder in folders)

    rlconform = str(home / "bin" / "rlconform")
    printed = run(rlconform, "certify", "-k", "REG-01", "--out", "part", cwd=elsewhere, code=1)
    assert "not certified at level unit" in printed  # a built-in plane, in part
    project = new_adapter(rlconform, elsewhere)
    certify = (rlconform, "certify", "acme_shm.target:TARGET", "--config", "plane.yaml")
    printed = run(*certify, "--out", "report", cwd=project)
    assert "level unit" in printed.splitlines()[0]
    assert "certified at level unit" in printed
    assert (project / "report" / "report.html").is_file()
    report = json.loads((project / "report" / "report.json").read_text("utf-8"))
    assert report["verdict"]["verdict"] == "certified"
    assert report["footer"]["complete"]
    outcomes = {row["outcome"] for row in report["requirements"]}
    assert outcomes == {"PASS", "NOT_APPLICABLE"}
    assert report["header"]["versions"]["ray"] == "not installed"
    # the plugin is found by its entry point
    target = ("--rlconform-target=acme_shm.target:TARGET", "--rlconform-config=plane.yaml")
    printed = run(python, "-m", "pytest", "-q", *target, "-k", "GET-04", cwd=project)
    assert " passed" in printed


def new_adapter(rlconform: str, elsewhere: Path) -> Path:
    """Write a package, see what an empty adapter is told, and fill it in as the tutorial does."""
    run(rlconform, "new-adapter", "acme-shm", cwd=elsewhere)
    project = elsewhere / "acme-shm"
    certify = (rlconform, "certify", "acme_shm.target:TARGET", "--config", "plane.yaml")
    printed = run(*certify, cwd=project, code=2)
    said = [line for line in printed.splitlines() if line.startswith("  ")]
    assert "AcmeShmClient has 7 methods to write:" in printed
    assert said[0].startswith("  register_partition: remember the partition's tasks")
    assert len(said) == 7
    assert "Traceback" not in printed
    tutorial = (CHECKOUT / "docs" / "tutorial.md").read_text("utf-8")
    shown = re.findall(r"<!-- tutorial: (\S+) -->\n```python\n(.*?)```", tutorial, re.DOTALL)
    assert {name for name, _ in shown} == {"columns.py", "client.py", "target.py"}
    for name, source in shown:
        (project / "acme_shm" / name).write_text(source, "utf-8")
    return project
