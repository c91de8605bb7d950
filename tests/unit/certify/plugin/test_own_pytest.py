"""``pytest --rlconform-target`` in a vendor's project: pytest's options do what they always do."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from rlconform._resources import resource_dir

pytest_plugins = ("pytester",)

PLANES = resource_dir("fixtures") / "planes"
#: Collecting one file takes less time than all.
GET = "unit/contract/test_get.py"


@pytest.fixture
def project(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """Return a project with strict settings and a failing test of its own."""
    monkeypatch.syspath_prepend(PLANES)
    pytester.makeini(
        "[pytest]\naddopts = --strict-markers --strict-config\nfilterwarnings = error\n"
        "testpaths = tests\n"
    )
    tests = pytester.mkdir("tests")
    (tests / "test_get.py").write_text("def test_of_the_project():\n    raise AssertionError\n")
    return pytester


def certify(project: pytest.Pytester, target: str, *options: str) -> pytest.RunResult:
    """Run pytest in this process, which has imported torch, on one target."""
    plugins = ("-p", "rlconform.pytest_plugin", "-p", "no:randomly", "-p", "no:random_order")
    return project.runpytest_inprocess(*plugins, f"--rlconform-target={target}", *options)


def test_a_requirement_is_selected_by_its_id_and_fails_with_its_sentence(
    project: pytest.Pytester,
) -> None:
    done = certify(project, "hostile:drops_unknown_rows", "-k", "GET-04", "-x")
    done.assert_outcomes(failed=1, deselected=done.parseoutcomes()["deselected"])
    done.stdout.fnmatch_lines(["*GET-04: An unknown id raises*"])
    done.stdout.no_fnmatch_line("*test_of_the_project*")


def test_the_last_failures_run_again_alone(project: pytest.Pytester) -> None:
    first = certify(project, "hostile:drops_unknown_rows", GET, "-k", "GET-04 or GET-01")
    failed = first.parseoutcomes()["failed"]
    again = certify(project, "hostile:drops_unknown_rows", "--lf", GET, "-k", "GET-04 or GET-01")
    assert again.parseoutcomes()["failed"] == failed
    assert "passed" not in again.parseoutcomes()
    repaired = certify(project, "memory", "--lf", GET, "-k", "GET-04 or GET-01")
    assert repaired.parseoutcomes()["passed"] == failed


def test_the_id_of_a_report_selects_one_check(project: pytest.Pytester) -> None:
    name = "unit/contract/test_get.py::test_an_unknown_id_raises[ghost]"
    done = certify(project, "hostile:drops_unknown_rows", name, "-v")
    done.assert_outcomes(failed=1)
    done.stdout.fnmatch_lines([f"{name.replace('[', '[[]')} FAILED*"])


def test_a_tests_folder_that_is_named_runs_beside_them(project: pytest.Pytester) -> None:
    done = certify(project, "memory", "tests", GET, "-k", "GET-04 or project")
    assert done.parseoutcomes()["failed"] == 1
    assert done.parseoutcomes()["passed"] > 1


def test_an_environment_within_the_project_hides_no_check(
    project: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    inside = project.path / ".venv" / "lib" / "suites"
    inside.parent.mkdir(parents=True)
    inside.symlink_to(resource_dir("suites"))
    monkeypatch.setattr("rlconform.certify.plugin.own_pytest.resource_dir", lambda _name: inside)
    done = certify(project, "memory", "-k", "GET-04")
    assert done.parseoutcomes()["passed"] > 1


def alone(project: pytest.Pytester, *options: str, typed: str = "") -> str:
    """Run pytest in a process of its own and return what it prints."""
    target = "--rlconform-target=hostile:drops_unknown_rows"
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "rlconform.pytest_plugin", target, GET, *options],
        input=typed,
        cwd=project.path,
        env=os.environ | {"PYTHONPATH": f"{PLANES}:{PLANES.parents[1]}"},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    return done.stdout + done.stderr


def test_several_workers_share_the_checks(project: pytest.Pytester) -> None:
    printed = alone(project, "-k", "test_an_unknown_id or GET-07", "-n", "1")
    assert " failed, " in printed.splitlines()[-1], printed
    assert " passed" in printed.splitlines()[-1], printed


def test_the_debugger_opens_where_a_check_fails(project: pytest.Pytester) -> None:
    typed = "p 'seen by ' + 'the debugger'\nq\n"
    printed = alone(project, "-k", "GET-04", "-x", "--pdb", typed=typed)
    assert "seen by the debugger" in printed, printed


@pytest.mark.parametrize(
    ("target", "said"),
    [("hostile:nothing_there", "has no attribute 'nothing_there'"), ("memroy", "did you mean")],
)
def test_a_target_that_is_not_found_is_one_message(
    project: pytest.Pytester, target: str, said: str
) -> None:
    done = certify(project, target)
    assert done.ret == pytest.ExitCode.USAGE_ERROR
    assert said in done.stderr.str()
    assert "Traceback" not in done.stderr.str() + done.stdout.str()


def test_a_plane_that_does_not_open_is_one_message(project: pytest.Pytester) -> None:
    done = certify(project, "hostile:raises_on_open", GET, "-k", "GET-04 or GET-01")
    assert done.ret == pytest.ExitCode.USAGE_ERROR
    done.stdout.fnmatch_lines(["*hostile:raises_on_open does not open: *"])


def test_runs_without_the_option_import_nothing_of_the_checks(tmp_path: Path) -> None:
    (tmp_path / "test_sys.py").write_text(
        "import sys\n\ndef test_modules():\n"
        "    loaded = {name.partition('.')[0] for name in sys.modules}\n"
        "    assert not loaded & {'torch', 'ray', 'tensordict', 'hypothesis', 'numpy'}\n"
        "    ours = {name for name in sys.modules if name.startswith('rlconform')}\n"
        "    assert ours == {'rlconform', 'rlconform.pytest_plugin'}\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "rlconform.pytest_plugin", "test_sys.py"],
        cwd=tmp_path,
        env=os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
