"""The options that the runner passes to pytest in a test process, besides the public ones.

``rlconform.pytest_plugin`` has the public options.
"""

from __future__ import annotations

import inspect

import pytest

from rlconform.certify.plugin.blocks import can_have_blocks
from rlconform.certify.plugin.check_result import level_of


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of the checks; only the runner passes those from the events' pipe on."""
    group = parser.getgroup("rlconform")
    group.addoption("--rlconform-target-config", help="configuration mapping, as JSON")
    group.addoption(
        "--rlconform-turns",
        type=int,
        default=1,
        help="run the checks this many times, seed by seed; a broken check ends its turn",
    )
    group.addoption(
        "--rlconform-effort", type=float, default=1.0, help="share of the generated examples"
    )
    group.addoption(
        "--rlconform-no-races",
        dest="rlconform_races",
        action="store_false",
        help="leave out checks that wait for an unlucky interleaving of threads",
    )
    group.addoption(
        "--rlconform-check-timeout",
        type=float,
        default=None,
        help="seconds per check, not the target's",
    )
    group.addoption(
        "--rlconform-spread", action="store_true", help="processes on different hosts of the Ray"
    )
    group.addoption(
        "--rlconform-large-rows", action="store_true", help="try rows of gigabytes (LOAD-04)"
    )
    group.addoption(
        "--rlconform-requirements", default="", help="only checks of these ids, by commas"
    )
    group.addoption(
        "--rlconform-events-fd", type=int, default=None, help="pipe of the certify runner"
    )
    group.addoption(
        "--rlconform-calls-file", default=None, help="where a check's calls are written as it runs"
    )
    group.addoption(
        "--rlconform-no-health",
        dest="rlconform_health",
        action="store_false",
        help="don't try a round trip after a failure: the plane can't do one",
    )
    group.addoption(
        "--rlconform-hangs", default='{"limit": 0}', help="``HungCalls`` so far, as JSON"
    )
    group.addoption(
        "--rlconform-telling-first",
        action="store_true",
        help="begin with a short check of each requirement",
    )
    group.addoption(
        "--rlconform-enough",
        default="{}",
        help="of which failure of each requirement one is enough, as JSON: for trials of mutants",
    )
    group.addoption(
        "--rlconform-first", default="[]", help="ids of the checks to begin with, as JSON"
    )
    group.addoption(
        "--rlconform-no-scripts",
        dest="rlconform_scripts",
        action="store_false",
        help="write no scripts that repeat failures: nobody reads them",
    )
    group.addoption(
        "--rlconform-not-at-scale",
        dest="rlconform_at_scale",
        action="store_false",
        help="no earlier steps and no blocks of rows: for trials of mutants, which run few checks",
    )
    group.addoption("--rlconform-share", default="0/1", help="which share of the checks to run")
    group.addoption("--rlconform-only", default=None, help="file with the ids of the checks to run")


def pytest_itemcollected(item: pytest.Item) -> None:
    """Let ``-k GET-04`` select the checks of a requirement."""
    if mark := item.get_closest_marker("requirement"):
        item.extra_keyword_matches.add(mark.args[0])


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run each check as many times as turns, and again with calls made by several processes."""
    if _can_scatter(metafunc):
        metafunc.fixturenames.append("scattered")
        metafunc.parametrize("scattered", [False, True], ids=[pytest.HIDDEN_PARAM, "scattered"])
    if can_have_blocks(metafunc):
        metafunc.fixturenames.append("in_blocks")
        metafunc.parametrize("in_blocks", [False, True], ids=[pytest.HIDDEN_PARAM, "in_blocks"])
    turns = metafunc.config.getoption("--rlconform-turns")
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
