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


@pytest.mark.parametrize(("uv", "by_pip"), [("exit 0", False), ("exit 1", True), (None, True)])
def test_pip_installs_where_uv_does_not(tmp_path: Path, uv: str | None, by_pip: bool) -> None:
    calls, python = tmp_path / "calls", tmp_path / "python"
    python.write_text(f'#!/bin/bash\n[[ $3 == config ]] || echo "$@" >>{calls}\n')
    python.chmod(0o755)
    if uv is not None:
        (tmp_path / "uv").write_text(f"#!/bin/bash\n{uv}\n")
        (tmp_path / "uv").chmod(0o755)
    done = subprocess.run(
        ["bash", str(CI / "fast_install.sh"), str(python), "-c", "constraints.txt", "torch"],
        env={"PATH": f"{tmp_path}:/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=True,
    )
    asked = calls.read_text() if calls.exists() else ""
    assert asked == ("-m pip install -q --no-compile -c constraints.txt torch\n" * by_pip)
    assert ("pip does" in done.stderr) == (uv == "exit 1")
