"""Histories of calls, drawn at random and held against the model: one play for each id.

What each play does and judges stands in ``rlconform.certify.properties.sequence_profiles``.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from rlconform.certify.plugin.markers import requirement
from rlconform.certify.properties.runner import explorer_of, reported
from rlconform.certify.properties.sequence_profiles import PLAYS
from rlconform.certify.properties.state_machine import run_sequences


@pytest.fixture
def play(request: pytest.FixtureRequest) -> Callable[[], None]:
    """``play()``: the histories of the requirement that the check is marked with."""
    mark = request.node.get_closest_marker("requirement")

    def run() -> None:
        explorer = explorer_of(request)
        with reported(request, explorer):
            run_sequences(explorer, PLAYS[mark.args[0]])

    return run


@requirement("REG-03")
def test_ids_can_be_reused_after_any_step(play: Callable[[], None]) -> None:
    play()


@requirement("REG-04")
def test_two_partitions_never_affect_each_other(play: Callable[[], None]) -> None:
    play()


@requirement("PUT-12")
def test_no_sequence_produces_a_field_that_was_not_put(play: Callable[[], None]) -> None:
    play()


@requirement("PUT-13")
def test_the_newest_value_is_read_after_any_overwrites(play: Callable[[], None]) -> None:
    play()


@requirement("GET-01")
def test_each_read_returns_the_rows_asked_for_in_order(play: Callable[[], None]) -> None:
    play()


@requirement("GET-04")
def test_no_sequence_makes_an_unknown_id_readable(play: Callable[[], None]) -> None:
    play()


@requirement("GET-06")
def test_no_sequence_makes_a_cleared_row_readable(play: Callable[[], None]) -> None:
    play()


@requirement("TAG-01")
def test_each_claimed_row_carries_its_own_tags(play: Callable[[], None]) -> None:
    play()


@requirement("CLAIM-02")
def test_every_sequence_gives_each_row_to_each_task_once(play: Callable[[], None]) -> None:
    play()


@requirement("CLAIM-06")
def test_no_sequence_makes_a_timed_out_claim_take_a_row(play: Callable[[], None]) -> None:
    play()


@requirement("CLAIM-08")
def test_no_sequence_makes_a_claimed_row_claimable_again(play: Callable[[], None]) -> None:
    play()


@requirement("CLAIM-09")
def test_claimed_rows_are_readable_by_their_meta(play: Callable[[], None]) -> None:
    play()


@requirement("CLAIM-10")
def test_no_sequence_claims_a_cleared_row(play: Callable[[], None]) -> None:
    play()


@requirement("STAT-01")
def test_the_status_is_true_only_while_all_is_claimed(play: Callable[[], None]) -> None:
    play()


@requirement("CLEAR-01")
def test_clears_drop_their_rows_and_no_others(play: Callable[[], None]) -> None:
    play()


@requirement("CLEAR-04")
def test_a_cleared_id_is_reused_without_its_old_data(play: Callable[[], None]) -> None:
    play()
