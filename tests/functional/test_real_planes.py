"""Real planes of several processes are certified with the command that a user runs.

The planes are the reference and TransferQueue, with and without its adapter's repairs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

#: The requirements that TransferQueue breaks without repairs, one defect per line.
KNOWN_DEFECTS = {
    "PUT-16": "a failed put leaves ids behind that are counted",
    "PUT-18": "an empty put raises",
    "PUT-23": "rows of two dtypes come back promoted",
    "GET-04": "unknown ids are left out of the batch",
    "GET-05": "fields that were not produced are left out, or the batch is empty",
    "GET-06": "cleared rows are left out of the batch",
    "GET-07": "an empty read raises",
    "TAG-04": "a row can be claimed before its tags are there",
    "CLAIM-04": "a claim of more rows than are ready gets none, so a tail starves",
    "STAT-05": "rows with tags only count as unconsumed",
    "CLEAR-03": "clearing everything in an empty partition raises",
    "LIFE-02": "an attached process's close ends the plane for everybody",
}
BROKEN = {"FAIL", "CRASH", "TIMEOUT"}


@pytest.mark.timeout(900)
def test_the_reference_is_certified_without_a_warning(certify: Callable[..., Any]) -> None:
    done = certify("--level", "functional")
    assert done.report["header"]["target"]["name"] == "ray_store"
    assert done.report["footer"]["complete"], done.report["notes"]
    assert set(done.outcomes().values()) == {"PASS", "NOT_APPLICABLE"}
    assert [name for name, outcome in done.outcomes().items() if outcome != "PASS"] == ["PUT-26"]
    assert done.code == 0


@pytest.mark.timeout(900)
@pytest.mark.parametrize("engine", ["simple", "mooncake_cpu"])
def test_the_report_is_complete_and_the_plane_certified(
    certify: Callable[..., Any], engine: str
) -> None:
    done = certify(f"transfer_queue/{engine}")
    report = done.report
    assert report["footer"]["complete"], report["notes"]
    assert report["header"]["level"] == "functional"
    assert "SUITE_ERROR" not in done.outcomes().values()
    broken = {r["id"]: r["reason"] for r in report["requirements"] if r["outcome"] in BROKEN}
    assert broken == {}
    assert done.code == 0


@pytest.mark.timeout(900)
def test_the_suite_finds_by_itself_what_is_not_repaired(certify: Callable[..., Any]) -> None:
    # Only short checks of these sections run: a check that hangs or shrinks an example takes long.
    files = ("put_writes", "put_overwrite", "get", "tag", "claim_blocking", "stat", "clear", "life")
    chosen = " or ".join(f"test_{file}.py or test_{file}_processes.py" for file in files)
    done = certify("thin_transfer_queue:SIMPLE", "-k", f"contract and not scattered and ({chosen})")
    assert done.report["footer"]["complete"]
    outcomes = done.outcomes()
    assert {name: outcomes[name] for name in KNOWN_DEFECTS if outcomes[name] not in BROKEN} == {}
    assert "SUITE_ERROR" not in outcomes.values()
    for name in ("GET-04", "TAG-04", "CLAIM-04"):
        assert (done.out / "reproducers" / f"{name}.py").is_file()
