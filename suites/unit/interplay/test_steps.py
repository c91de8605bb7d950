"""Interplay of steps in one process: looks between up to eight changes, and a last look.

``rlconform/certify/interplay`` chooses the scenarios, which all checks of this file share: each
reports those in which the plane breaks its requirement. Each pair of changes occurs: most defects
need one step that leaves something behind, and another that meets it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from rlconform.certify.interplay.check import Matrices, check_scenarios
from rlconform.certify.interplay.processes import Processes
from rlconform.certify.interplay.scenario import PROCESSES
from rlconform.certify.plugin.markers import requirement
from rlconform.certify.plugin.plane_session import PlaneSession
from rlconform.certify.recording.recorder import Recording

#: The first check runs the scenarios of all.
PATIENCE_S = 60.0

#: ``functional/interplay`` has scenarios of several processes.
scenario = partial(requirement, patience=PATIENCE_S, scattered=False)


@pytest.fixture(scope="session")
def matrices() -> Matrices:
    """Return the matrix of each target of this session."""
    return {}


@pytest.fixture
def check_steps(
    request: pytest.FixtureRequest, matrices: Matrices, plane: PlaneSession, recording: Recording
) -> Callable[[], None]:
    """Return a function that looks for a scenario that breaks the requirement in the mark."""
    owner = plane.recorded(recording)
    alone = Processes([owner] * len(PROCESSES), plane.target.timeouts, lambda: None)
    return lambda: check_scenarios(request, matrices, alone, PATIENCE_S, alone=True)


@scenario("REG-01")
def test_what_every_step_needs_is_accepted_after_any_others(
    check_steps: Callable[[], None],
) -> None:
    check_steps()


@scenario("REG-03")
def test_nothing_of_a_step_is_left_in_the_next_one(check_steps: Callable[[], None]) -> None:
    check_steps()


@scenario("REG-04")
def test_a_neighbouring_partition_affects_no_step(check_steps: Callable[[], None]) -> None:
    check_steps()


@scenario("REG-08")
def test_a_registration_between_steps_keeps_rows_claims_and_tags(
    check_steps: Callable[[], None],
) -> None:
    check_steps()


@scenario("PUT-11")
def test_a_column_is_added_after_any_steps(check_steps: Callable[[], None]) -> None:
    check_steps()


@scenario("PUT-13")
def test_the_newest_values_are_read_after_any_steps(check_steps: Callable[[], None]) -> None:
    check_steps()


@scenario("PUT-16")
def test_a_refused_put_affects_no_later_step(check_steps: Callable[[], None]) -> None:
    check_steps()


@scenario("PUT-17")
def test_tags_alone_are_accepted_after_any_steps(check_steps: Callable[[], None]) -> None:
    check_steps()


@scenario("GET-01")
def test_rows_are_read_in_the_order_asked_after_any_steps(check_steps: Callable[[], None]) -> None:
    check_steps()


@scenario("GET-02")
def test_a_repeated_id_reads_its_row_after_any_steps(check_steps: Callable[[], None]) -> None:
    check_steps()


@scenario("GET-04")
def test_an_unknown_row_is_readable_after_no_steps(check_steps: Callable[[], None]) -> None:
    check_steps()


@scenario("GET-05")
def test_an_unproduced_field_is_readable_after_no_steps(check_steps: Callable[[], None]) -> None:
    check_steps()


@scenario("GET-06")
def test_a_cleared_row_is_readable_after_no_steps(check_steps: Callable[[], None]) -> None:
    check_steps()


@scenario("GET-11")
def test_a_receipt_reads_its_rows_after_any_steps(check_steps: Callable[[], None]) -> None:
    check_steps()


@scenario("TAG-01")
def test_the_newest_tags_are_claimed_after_any_steps(check_steps: Callable[[], None]) -> None:
    check_steps()


@scenario("TAG-02")
def test_values_put_between_steps_leave_the_tags_alone(check_steps: Callable[[], None]) -> None:
    check_steps()


@scenario("TAG-03")
def test_tags_of_several_steps_are_merged(check_steps: Callable[[], None]) -> None:
    check_steps()


@scenario("TAG-06")
def test_the_newest_lengths_are_reported_after_any_steps(check_steps: Callable[[], None]) -> None:
    check_steps()


@scenario("CLAIM-01")
def test_no_steps_make_a_row_without_its_fields_claimable(check_steps: Callable[[], None]) -> None:
    check_steps()


@scenario("CLAIM-02")
def test_each_task_claims_each_row_once_whatever_the_steps(check_steps: Callable[[], None]) -> None:
    check_steps()


@scenario("CLAIM-05")
def test_a_claim_that_waits_is_woken_whatever_happened_meanwhile(
    check_steps: Callable[[], None],
) -> None:
    check_steps()


@scenario("CLAIM-08")
def test_rows_rewritten_between_steps_stay_claimed(check_steps: Callable[[], None]) -> None:
    check_steps()


@scenario("CLAIM-09")
def test_claimed_rows_are_readable_after_any_steps(check_steps: Callable[[], None]) -> None:
    check_steps()


@scenario("CLAIM-10")
def test_cleared_rows_are_claimed_after_no_steps(check_steps: Callable[[], None]) -> None:
    check_steps()


@scenario("CLAIM-15")
def test_groups_are_claimed_whole_after_any_steps(check_steps: Callable[[], None]) -> None:
    check_steps()


@scenario("STAT-01")
def test_the_status_is_right_after_any_steps(check_steps: Callable[[], None]) -> None:
    check_steps()


@scenario("CLEAR-01")
def test_a_clear_between_steps_drops_its_rows_and_no_others(
    check_steps: Callable[[], None],
) -> None:
    check_steps()


@scenario("CLEAR-03")
def test_a_clear_of_everything_leaves_nothing_whatever_the_steps(
    check_steps: Callable[[], None],
) -> None:
    check_steps()


@scenario("CLEAR-04")
def test_ids_reused_between_steps_keep_nothing(check_steps: Callable[[], None]) -> None:
    check_steps()


@scenario("LIFE-07")
def test_a_refused_call_affects_no_later_step(check_steps: Callable[[], None]) -> None:
    check_steps()
