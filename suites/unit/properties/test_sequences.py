"""Random call sequences are compared with a reference model, with one profile per requirement.

``requirement_sequences`` defines the calls and checks of each profile.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from rlconform.certify.plugin.markers import requirement
from rlconform.certify.properties.requirement_sequences import PROFILES
from rlconform.certify.properties.runner import property_runner
from rlconform.certify.properties.state_machine import run_sequences

#: Each call of a sequence may be made by another process.
sequences = partial(requirement, roles=False)


@pytest.fixture
def check_sequences(request: pytest.FixtureRequest) -> Callable[[], None]:
    """Return a function that runs the sequences of the requirement in the check's mark."""
    mark = request.node.get_closest_marker("requirement")

    def run() -> None:
        with property_runner(request) as runner:
            run_sequences(runner, PROFILES[mark.args[0]])

    return run


@sequences("REG-03")
def test_ids_can_be_reused_after_any_step(check_sequences: Callable[[], None]) -> None:
    check_sequences()


@sequences("REG-04")
def test_two_partitions_never_affect_each_other(check_sequences: Callable[[], None]) -> None:
    check_sequences()


@sequences("PUT-12")
def test_no_sequence_produces_a_field_that_was_not_put(check_sequences: Callable[[], None]) -> None:
    check_sequences()


@sequences("PUT-13")
def test_the_newest_value_is_read_after_any_overwrites(check_sequences: Callable[[], None]) -> None:
    check_sequences()


@sequences("GET-01")
def test_each_read_returns_the_rows_asked_for_in_order(check_sequences: Callable[[], None]) -> None:
    check_sequences()


@sequences("GET-04")
def test_no_sequence_makes_an_unknown_id_readable(check_sequences: Callable[[], None]) -> None:
    check_sequences()


@sequences("GET-06")
def test_no_sequence_makes_a_cleared_row_readable(check_sequences: Callable[[], None]) -> None:
    check_sequences()


@sequences("TAG-01", changes_results=True)
def test_each_claimed_row_carries_its_own_tags(check_sequences: Callable[[], None]) -> None:
    check_sequences()


@sequences("TAG-06")
def test_each_claim_reports_the_lengths_of_its_rows(check_sequences: Callable[[], None]) -> None:
    check_sequences()


@sequences("CLAIM-02", changes_results=True)
def test_every_sequence_gives_each_row_to_each_task_once(
    check_sequences: Callable[[], None],
) -> None:
    check_sequences()


@sequences("CLAIM-06")
def test_no_sequence_makes_a_timed_out_claim_take_a_row(
    check_sequences: Callable[[], None],
) -> None:
    check_sequences()


@sequences("CLAIM-08")
def test_no_sequence_makes_a_claimed_row_claimable_again(
    check_sequences: Callable[[], None],
) -> None:
    check_sequences()


@sequences("CLAIM-09")
def test_claimed_rows_are_readable_by_their_meta(check_sequences: Callable[[], None]) -> None:
    check_sequences()


@sequences("CLAIM-10")
def test_no_sequence_claims_a_cleared_row(check_sequences: Callable[[], None]) -> None:
    check_sequences()


@sequences("CLAIM-15")
def test_every_sequence_claims_whole_groups(check_sequences: Callable[[], None]) -> None:
    check_sequences()


@sequences("STAT-01")
def test_the_status_is_true_only_while_all_is_claimed(check_sequences: Callable[[], None]) -> None:
    check_sequences()


@sequences("CLEAR-01")
def test_clears_drop_their_rows_and_no_others(check_sequences: Callable[[], None]) -> None:
    check_sequences()


@sequences("CLEAR-04")
def test_a_cleared_id_is_reused_without_its_old_data(check_sequences: Callable[[], None]) -> None:
    check_sequences()
