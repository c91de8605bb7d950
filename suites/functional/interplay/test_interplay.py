"""Interplay of processes: one looks, another changes something, and a third look is judged.

``rlconform/certify/interplay`` chooses the scenarios, which all checks of this file share: each
reports those in which the plane breaks its requirement.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from rlconform.certify.interplay.check import Matrices, check_scenarios
from rlconform.certify.interplay.processes import Processes
from rlconform.certify.interplay.scenario import GUEST
from rlconform.certify.plugin.markers import requirement
from rlconform.certify.plugin.plane_session import PlaneSession
from rlconform.certify.recording.recorder import Recording
from rlconform.certify.recording.recording_client import RecordingClient

#: The first check runs the scenarios of all.
PATIENCE_S = 300.0


@pytest.fixture(scope="session")
def matrices() -> Matrices:
    """Return the matrix of each target of this session."""
    return {}


@pytest.fixture
def processes(plane: PlaneSession, recording: Recording) -> Processes:
    """Return the owner's client, and those of three attached processes."""
    pool = plane.actors()
    attached = pool.take(GUEST)
    clients = [RecordingClient(c, recording, c.name, c.measuring) for c in attached]  # type: ignore[arg-type]
    return Processes(
        [plane.recorded(recording), *clients],
        plane.target.timeouts,
        lambda: pool.attach_again(attached[-1]),
    )


@pytest.fixture
def check_interplay(
    request: pytest.FixtureRequest, matrices: Matrices, processes: Processes
) -> Callable[[], None]:
    """Return a function that looks for a scenario that breaks the requirement in the mark."""
    return lambda: check_scenarios(request, matrices, processes, PATIENCE_S)


@requirement("REG-01", patience=PATIENCE_S)
def test_what_every_change_needs_is_accepted_from_any_process(
    check_interplay: Callable[[], None],
) -> None:
    check_interplay()


@requirement("REG-03", patience=PATIENCE_S)
def test_a_partition_started_anew_keeps_nothing_in_any_process(
    check_interplay: Callable[[], None],
) -> None:
    check_interplay()


@requirement("REG-04", patience=PATIENCE_S)
def test_a_neighbouring_partition_of_another_process_affects_nothing(
    check_interplay: Callable[[], None],
) -> None:
    check_interplay()


@requirement("REG-08", patience=PATIENCE_S)
def test_a_registration_by_another_process_keeps_the_rows(
    check_interplay: Callable[[], None],
) -> None:
    check_interplay()


@requirement("PUT-11", patience=PATIENCE_S)
def test_a_column_that_another_process_adds_is_accepted(
    check_interplay: Callable[[], None],
) -> None:
    check_interplay()


@requirement("PUT-13", patience=PATIENCE_S)
def test_a_dtype_that_another_process_changes_is_read(
    check_interplay: Callable[[], None],
) -> None:
    check_interplay()


@requirement("PUT-16", patience=PATIENCE_S)
def test_a_refused_put_shows_in_no_process(
    check_interplay: Callable[[], None],
) -> None:
    check_interplay()


@requirement("PUT-17", patience=PATIENCE_S)
def test_tags_alone_are_accepted_from_any_process(
    check_interplay: Callable[[], None],
) -> None:
    check_interplay()


@requirement("PUT-23", patience=PATIENCE_S)
def test_rows_of_a_process_are_never_cast_to_the_dtype_of_another(
    check_interplay: Callable[[], None],
) -> None:
    check_interplay()


@requirement("GET-01", patience=PATIENCE_S)
def test_rows_are_read_in_the_order_asked_whoever_rearranged_them(
    check_interplay: Callable[[], None],
) -> None:
    check_interplay()


@requirement("GET-02", patience=PATIENCE_S)
def test_a_repeated_id_reads_its_row_whoever_put_the_rows(
    check_interplay: Callable[[], None],
) -> None:
    check_interplay()


@requirement("GET-04", patience=PATIENCE_S)
def test_an_unknown_row_is_readable_in_no_process(
    check_interplay: Callable[[], None],
) -> None:
    check_interplay()


@requirement("GET-05", patience=PATIENCE_S)
def test_an_unproduced_field_is_readable_in_no_process(
    check_interplay: Callable[[], None],
) -> None:
    check_interplay()


@requirement("GET-10", patience=PATIENCE_S)
def test_every_process_reads_the_newest_values(
    check_interplay: Callable[[], None],
) -> None:
    check_interplay()


@requirement("GET-11", patience=PATIENCE_S)
def test_every_process_reads_by_a_receipt(check_interplay: Callable[[], None]) -> None:
    check_interplay()


@requirement("TAG-01", patience=PATIENCE_S)
def test_every_process_claims_the_newest_tags(
    check_interplay: Callable[[], None],
) -> None:
    check_interplay()


@requirement("TAG-02", patience=PATIENCE_S)
def test_values_of_another_process_leave_the_tags_alone(
    check_interplay: Callable[[], None],
) -> None:
    check_interplay()


@requirement("TAG-03", patience=PATIENCE_S)
def test_tags_of_another_process_are_merged(
    check_interplay: Callable[[], None],
) -> None:
    check_interplay()


@requirement("TAG-06", patience=PATIENCE_S)
def test_every_process_reports_the_newest_lengths(
    check_interplay: Callable[[], None],
) -> None:
    check_interplay()


@requirement("CLAIM-01", patience=PATIENCE_S)
def test_no_process_claims_rows_without_their_fields(
    check_interplay: Callable[[], None],
) -> None:
    check_interplay()


@requirement("CLAIM-02", patience=PATIENCE_S)
def test_processes_claim_each_row_once(
    check_interplay: Callable[[], None],
) -> None:
    check_interplay()


@requirement("CLAIM-05", patience=PATIENCE_S)
def test_a_change_of_another_process_wakes_a_claim(
    check_interplay: Callable[[], None],
) -> None:
    check_interplay()


@requirement("CLAIM-08", patience=PATIENCE_S)
def test_rows_that_another_process_rewrites_stay_claimed(
    check_interplay: Callable[[], None],
) -> None:
    check_interplay()


@requirement("CLAIM-09", patience=PATIENCE_S)
def test_claimed_rows_are_readable_in_every_process(
    check_interplay: Callable[[], None],
) -> None:
    check_interplay()


@requirement("CLAIM-10", patience=PATIENCE_S)
def test_rows_that_another_process_clears_are_never_claimed(
    check_interplay: Callable[[], None],
) -> None:
    check_interplay()


@requirement("CLAIM-15", patience=PATIENCE_S)
def test_groups_of_several_writers_are_claimed_whole(
    check_interplay: Callable[[], None],
) -> None:
    check_interplay()


@requirement("STAT-02", patience=PATIENCE_S)
def test_every_process_gets_the_newest_status(
    check_interplay: Callable[[], None],
) -> None:
    check_interplay()


@requirement("CLEAR-01", patience=PATIENCE_S)
def test_a_clear_drops_its_rows_in_every_process(
    check_interplay: Callable[[], None],
) -> None:
    check_interplay()


@requirement("CLEAR-03", patience=PATIENCE_S)
def test_a_clear_of_all_own_rows_shows_in_every_process(
    check_interplay: Callable[[], None],
) -> None:
    check_interplay()


@requirement("CLEAR-04", patience=PATIENCE_S)
def test_ids_that_another_process_reuses_keep_nothing(
    check_interplay: Callable[[], None],
) -> None:
    check_interplay()


@requirement("CLEAR-08", patience=PATIENCE_S)
def test_a_clear_of_all_leaves_rows_of_other_processes(
    check_interplay: Callable[[], None],
) -> None:
    check_interplay()


@requirement("LIFE-02", patience=PATIENCE_S)
def test_a_close_changes_nothing_for_others(
    check_interplay: Callable[[], None],
) -> None:
    check_interplay()


@requirement("LIFE-06", patience=PATIENCE_S)
def test_a_late_client_sees_all_that_happened(
    check_interplay: Callable[[], None],
) -> None:
    check_interplay()


@requirement("LIFE-07", patience=PATIENCE_S)
def test_a_refused_call_changes_nothing_for_others(
    check_interplay: Callable[[], None],
) -> None:
    check_interplay()
