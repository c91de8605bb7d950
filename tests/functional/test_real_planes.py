"""Checks run on real planes of several processes.

The planes are the reference and TransferQueue, with and without its adapter's repairs.
``certificates`` in ci.yml certifies each of them whole. Here the reference passes the checks of
several processes and, with calls that several processes make, those of claims, tags, clears and
long runs; TransferQueue passes the contract of several processes, without blocks of rows, with one
storage, and with the other what a storage does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

#: What TransferQueue breaks without repairs: requirement, defect, and a check that finds it.
KNOWN_DEFECTS = {
    "PUT-16": (
        "a failed put leaves ids behind that are counted",
        "test_a_failed_put_leaves_nothing",
    ),
    "PUT-18": ("an empty put raises", "test_an_empty_put_does_nothing"),
    "PUT-23": ("rows of two dtypes come back promoted", "test_rows_of_two_dtypes_are_never_cast"),
    "GET-04": ("unknown ids are left out of the batch", "test_an_unknown_id_raises"),
    "GET-05": (
        "fields that were not produced are left out, or the batch is empty",
        "test_a_field_not_produced_for_every_id_raises",
    ),
    "GET-06": ("cleared rows are left out of the batch", "test_a_cleared_row_raises"),
    "GET-07": ("an empty read raises", "test_no_ids_return_an_empty_batch"),
    "TAG-04": (
        "a row can be claimed before its tags are there",
        "test_no_row_is_claimed_before_its_tags",
    ),
    "CLAIM-04": (
        "a claim of more rows than are ready gets none, so a tail starves",
        "test_a_claim_that_does_not_block_returns_the_ready_rows",
    ),
    "STAT-05": (
        "rows with tags only count as unconsumed",
        "test_rows_with_tags_only_do_not_count",
    ),
    "CLEAR-03": (
        "clearing everything in an empty partition raises",
        "test_none_on_an_empty_partition_is_no_error",
    ),
    "LIFE-02": (
        "an attached process's close ends the plane for everybody",
        "test_an_attached_clients_close_leaves_the_plane_up",
    ),
}
BROKEN = {"FAIL", "CRASH", "TIMEOUT"}


#: Checks whose calls several processes make; long runs make calls of all kinds.
BY_SEVERAL = "(test_claim or test_tag or test_clear or test_long_runs)"


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_the_reference_passes_what_several_processes_do(certify_here: Callable[..., Any]) -> None:
    done = certify_here("ray_store", f"functional or scattered and {BY_SEVERAL}", effort=0.2)
    assert done.report["header"]["level"] == "functional"
    assert done.report["header"]["target"]["name"] == "ray_store"
    assert done.report["footer"]["complete"], done.report["notes"]
    ran = {c["id"]: c["outcome"] for c in done.report["checks"] if "seconds" in c}
    assert len(ran) > 500
    assert {id_: outcome for id_, outcome in ran.items() if outcome != "PASS"} == {}


#: What takes long; ``certificates`` has it.
LONGER = "interplay or concurrency or in_blocks"
#: Checks of what a storage does; the rest of the adapter is that of the other storage.
OF_STORAGE = "test_put_values.py or test_put_jagged.py or test_get.py or test_clear.py"


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    ("target", "chosen", "least"),
    [
        (
            "transfer_queue/simple",
            "functional and not (interplay or concurrency or in_blocks)",
            250,
        ),
        ("transfer_queue/mooncake_cpu", f"not scattered and ({OF_STORAGE})", 150),
    ],
)
def test_a_plane_with_its_adapters_repairs_passes(
    certify: Callable[..., Any], target: str, chosen: str, least: int
) -> None:
    """The test above makes the calls of these checks from several processes."""
    done = certify(target, "-k", chosen)
    assert done.report["header"]["level"] == "functional"
    ran = {c["id"]: c["outcome"] for c in done.report["checks"] if "seconds" in c}
    assert len(ran) > least
    assert {id_: outcome for id_, outcome in ran.items() if outcome != "PASS"} == {}, done.stdout


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_the_suite_finds_by_itself_what_is_not_repaired(certify: Callable[..., Any]) -> None:
    # One check of each requirement: one that hangs or shrinks an example takes long.
    chosen = " or ".join(check for _, check in KNOWN_DEFECTS.values())
    done = certify("thin_transfer_queue:SIMPLE", "-k", f"not scattered and ({chosen})")
    assert done.report["footer"]["complete"]
    outcomes = done.outcomes()
    assert {name: outcomes[name] for name in KNOWN_DEFECTS if outcomes[name] not in BROKEN} == {}
    assert "SUITE_ERROR" not in outcomes.values()
    for name in ("GET-04", "TAG-04", "CLAIM-04"):
        assert (done.out / "reproducers" / f"{name}.py").is_file()


def test_processes_that_share_a_sqlite_file_pass(certify: Callable[..., Any]) -> None:
    """A right plane of its own engine; its whole certification takes minutes."""
    done = certify("sqlite_target:TARGET", "-k", "test_claim_once.py or test_tag.py or test_flow")
    ran = [check["outcome"] for check in done.report["checks"] if "seconds" in check]
    assert len(ran) > 50
    assert set(ran) == {"PASS"}, done.stdout
