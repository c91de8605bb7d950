"""The packages that tests need are installed by root, and named for everybody else."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from rlconform._resources import resource_dir

CI = resource_dir("suites").parent / "ci"


def run(script: str, folder: Path, *, installed: bool, root: bool) -> tuple[str, str]:
    """Run a script with stubs; return what was asked of apt-get, and what was printed."""
    calls = folder / "calls"
    stubs = {
        "dpkg": f"exit {0 if installed else 1}",
        "id": f"echo {0 if root else 1000}",
        "apt-get": f'echo "$@" >>{calls}',
        "chromium": "exit 0",
    }
    for name, text in stubs.items():
        (folder / name).write_text(f"#!/bin/bash\n{text}\n")
        (folder / name).chmod(0o755)
    done = subprocess.run(
        ["bash", str(CI / script)],
        env=os.environ | {"PATH": f"{folder}:{os.environ['PATH']}"},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return calls.read_text() if calls.exists() else "", done.stderr


@pytest.mark.parametrize(
    ("script", "package"), [("slurm_packages.sh", "slurm-wlm"), ("system_packages.sh", "libnuma1")]
)
def test_what_is_missing_is_installed_or_named(tmp_path: Path, script: str, package: str) -> None:
    assert run(script, tmp_path, installed=True, root=True) == ("", "")
    asked, said = run(script, tmp_path, installed=False, root=False)
    assert asked == ""
    assert f"sudo apt-get install {package}" in said or f" {package} " in said
    assert "chromium" not in said, "a browser is there already"
    asked, said = run(script, tmp_path, installed=False, root=True)
    assert said == ""
    assert asked.startswith("update -qq\ninstall -y")
    assert package in asked
