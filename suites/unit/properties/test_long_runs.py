"""Long runs of random calls are compared with a reference model, with one profile per requirement.

``long_runs.plan`` defines what the runs of each profile judge.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from functools import partial

import pytest

from rlconform.certify.plugin.check_result import is_scattered
from rlconform.certify.plugin.markers import requirement
from rlconform.certify.properties.long_runs.plan import LONG_RUNS
from rlconform.certify.properties.long_runs.run import PATIENCE_S, SharedRuns, run_long_runs
from rlconform.certify.properties.runner import property_runner

#: Each call of a run may be made by another process; the first check makes the runs of a style.
long_runs = partial(requirement, roles=False, patience=PATIENCE_S)


@pytest.fixture(scope="module")
def made_runs() -> dict[tuple[str, bool], SharedRuns]:
    """Return the runs that the checks share, by style and by whether several processes call."""
    return defaultdict(SharedRuns)


@pytest.fixture
def check_runs(
    request: pytest.FixtureRequest, made_runs: dict[tuple[str, bool], SharedRuns]
) -> Callable[[], None]:
    """Return a function that makes the long runs of the requirement in the check's mark."""
    mark = request.node.get_closest_marker("requirement")

    def run() -> None:
        profile = LONG_RUNS[mark.args[0]]
        with property_runner(request) as runner:
            run_long_runs(runner, profile, made_runs[profile.style, is_scattered(request.node)])

    return run


@long_runs("PUT-13", leans_on=("PUT-01", "PUT-05", "PUT-11", "GET-01"))
def test_long_runs_read_the_newest_values(check_runs: Callable[[], None]) -> None:
    check_runs()


@long_runs("PUT-21", leans_on=("PUT-13", "PUT-27", "PUT-28"))
def test_long_runs_read_the_objects_that_were_put(check_runs: Callable[[], None]) -> None:
    check_runs()


@long_runs("TAG-01", leans_on=("TAG-02", "TAG-05", "TAG-06"))
def test_long_runs_claim_rows_with_their_tags(check_runs: Callable[[], None]) -> None:
    check_runs()


@long_runs("CLAIM-02", leans_on=("CLAIM-01", "CLAIM-05", "CLAIM-06", "CLAIM-08"))
def test_long_runs_give_each_row_to_each_task_once(check_runs: Callable[[], None]) -> None:
    check_runs()


@long_runs("CLAIM-03", leans_on=("REG-08", "CLAIM-02", "TAG-01", "STAT-01"))
def test_tasks_that_are_added_in_long_runs_get_every_row(check_runs: Callable[[], None]) -> None:
    check_runs()


@long_runs("STAT-01", leans_on=("CLAIM-02", "STAT-05"))
def test_the_status_is_right_all_through_long_runs(check_runs: Callable[[], None]) -> None:
    check_runs()


@long_runs("PUT-16", leans_on=("PUT-13", "PUT-15", "PUT-21", "TAG-01", "CLAIM-02", "STAT-01"))
def test_calls_that_raise_change_nothing_in_long_runs(check_runs: Callable[[], None]) -> None:
    check_runs()


@long_runs(
    "GET-13",
    changes_results=True,
    leans_on=("PUT-09", "PUT-13", "PUT-21", "PUT-27", "TAG-01", "CLAIM-02", "STAT-01"),
)
def test_what_callers_change_of_their_own_changes_nothing_in_long_runs(
    check_runs: Callable[[], None],
) -> None:
    check_runs()
