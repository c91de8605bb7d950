"""The checks' command line options, under ``rlconform certify`` and under plain ``pytest``."""

from __future__ import annotations

import inspect

import pytest

from rlconform.certify.plugin.check_result import level_of
from rlconform.contract import LEVELS


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of the checks; only the runner passes those from ``--events-fd`` on."""
    group = parser.getgroup("rlconform", "data plane conformance")
    group.addoption("--target", default="memory", help="plane to check (see rlconform certify)")
    group.addoption("--target-config", default="{}", help="configuration mapping, as JSON")
    group.addoption("--seed", type=int, default=0, help="start of the generated examples")
    group.addoption(
        "--turns",
        type=int,
        default=1,
        help="run the checks this many times, seed by seed; a broken check ends its turn",
    )
    group.addoption("--effort", type=float, default=1.0, help="share of the generated examples")
    group.addoption(
        "--no-races",
        dest="races",
        action="store_false",
        help="leave out checks that wait for an unlucky interleaving of threads",
    )
    group.addoption(
        "--check-timeout", type=float, default=None, help="seconds per check, not the target's"
    )
    group.addoption("--requirements", default="", help="only checks of these ids, by commas")
    group.addoption("--level", default=None, choices=LEVELS, help="default: what it declares")
    group.addoption("--spread", action="store_true", help="processes on different hosts of the Ray")
    group.addoption("--events-fd", type=int, default=None, help="pipe of the certify runner")
    group.addoption(
        "--no-health",
        dest="health",
        action="store_false",
        help="don't try a round trip after a failure: the plane can't do one",
    )
    group.addoption("--hangs", default='{"limit": 0}', help="``HungCalls`` so far, as JSON")
    group.addoption("--only", default=None, help="file with the ids of the checks to run")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run each check ``--turns`` times, and again with its calls made by several processes."""
    if _can_scatter(metafunc):
        metafunc.fixturenames.append("scattered")
        metafunc.parametrize("scattered", [False, True], ids=[pytest.HIDDEN_PARAM, "scattered"])
    turns = metafunc.config.getoption("--turns")
    if turns > 1:
        metafunc.fixturenames.append("turn")
        metafunc.parametrize("turn", range(turns), ids=[f"turn{n}" for n in range(turns)])


def _can_scatter(metafunc: pytest.Metafunc) -> bool:
    """Whether several processes can make the calls of a check that is written for one process."""
    mark = metafunc.definition.get_closest_marker("requirement")
    if mark is None or not mark.kwargs["scattered"] or mark.kwargs["ends_plane"]:
        return False
    checks = metafunc.config.pluginmanager.getplugin("rlconform-checks")
    if not checks.session.several_processes or level_of(metafunc.definition) != "unit":
        return False
    own = {"plane", "threads"} & set(inspect.signature(metafunc.function).parameters)
    return not own and not mark.kwargs["race"]
