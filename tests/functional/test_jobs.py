"""A certification runs several planes at a time, each with a share of the checks, if asked to."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from rlconform.certify.isolation.forkserver import ForkServer
from rlconform.certify.isolation.runner import PlaneDidNotStart, Runner
from rlconform.certify.options import CertifyOptions
from rlconform.certify.results import BROKEN, Outcome, RunRecord

Run = Callable[..., RunRecord]


@pytest.fixture
def run(fork_server: ForkServer, planes: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """``run(target, select, jobs=2)``: the record of a run of which no process is left."""
    monkeypatch.setenv("PYTHONPATH", str(planes))  # the second plane has a fork server of its own

    def certify(
        target: str, select: str, config: Mapping[str, Any] | None = None, **options: Any
    ) -> RunRecord:
        chosen = CertifyOptions(target, config or {}, select=select, **{"jobs": 2} | options)
        record = Runner(chosen, fork_server=fork_server).certify()
        assert fork_server.end_leftovers() == []
        return record

    return certify


def outcomes(record: RunRecord) -> dict[str, Outcome]:
    """Outcome by check, in the record's order."""
    return {each: result.outcome for each, result in record.results.items()}


def test_each_check_runs_once_on_one_of_the_planes(run: Run) -> None:
    record = run("memory", "test_tag.py or test_par.py")
    assert record.complete, record.notes
    assert record.children == 2
    assert list(record.results) == [check.id for check in record.due]
    assert len(record.results) > 40
    assert {*outcomes(record).values()} == {Outcome.PASS}
    split = record.time_split
    assert split.processes + split.plane_calls + split.kit == pytest.approx(record.seconds)


def test_a_crash_costs_only_its_own_process(run: Run) -> None:
    together, alone = (
        run("hostile:segfaulting_get", "test_stat.py or test_tag.py", jobs=jobs) for jobs in (2, 1)
    )
    assert together.complete
    assert Outcome.CRASH in outcomes(together).values()
    assert outcomes(together) == outcomes(alone)


def test_a_plane_that_starts_only_alone_runs_all_checks(run: Run, tmp_path: Path) -> None:
    config = {"starts": str(tmp_path / "starts")}
    record = run("hostile:fails_to_start_second", "test_stat.py or test_tag.py", config)
    assert record.complete, record.notes
    assert {*outcomes(record).values()} == {Outcome.PASS}
    (note,) = [note for note in record.notes if "beside another did not start" in note]
    assert "the port is in use" in note
    assert record.children == 3


def test_the_run_stops_at_the_first_broken_check_of_any_share(run: Run) -> None:
    record = run("hostile:lazy", "test_get.py or test_put_values.py", max_failures=1)
    assert not record.complete
    broken = [each for each, outcome in outcomes(record).items() if outcome in BROKEN]
    assert 1 <= len(broken) < len(record.due) / 2
    assert "stopped after 1 broken checks, as asked for" in record.notes


def test_a_target_that_does_not_start_is_one_error(run: Run) -> None:
    with pytest.raises(PlaneDidNotStart) as raised:
        run("hostile:not_there", "test_stat.py")
    assert raised.value.plain


def test_the_command_says_how_many_ran_at_a_time(certify: Callable[..., Any]) -> None:
    done = certify("memory", "-k", "test_stat.py", "--jobs", "2")
    assert done.report["footer"]["complete"]
    assert (done.report["header"]["jobs"], done.report["header"]["test_processes"]) == (2, 2)
    assert "2 test processes, 2 at a time" in " ".join(done.stdout.split())
