"""The plugin under plain pytest, where no runner starts processes for the target."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from rlconform import pytest_plugin
from rlconform._resources import resource_dir
from rlconform.contract import LEVELS


def run(*selected: str) -> subprocess.CompletedProcess[str]:
    """Run checks on a plane that works for one check and requires a process for each."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    command += ["-p", "rlconform.pytest_plugin", "--rlconform-target=hostile:fresh_process_each"]
    planes = str(resource_dir("fixtures") / "planes")
    return subprocess.run(
        [
            *command,
            str(resource_dir("suites") / "unit" / "contract" / "test_reg_isolation.py"),
            *selected,
        ],
        env=os.environ | {"PYTHONPATH": planes},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_a_process_for_each_check_is_asked_for_in_vain() -> None:
    done = run()
    assert done.returncode == pytest.ExitCode.USAGE_ERROR, done.stdout + done.stderr
    assert "rlconform certify hostile:fresh_process_each" in done.stdout + done.stderr


def test_one_check_needs_no_other_process() -> None:
    done = run("-k", "test_partitions_share_no_schema")
    assert done.returncode == pytest.ExitCode.OK, done.stdout + done.stderr
    assert "1 passed" in done.stdout


def test_the_plugin_that_imports_nothing_knows_the_levels() -> None:
    assert pytest_plugin.LEVELS == LEVELS
