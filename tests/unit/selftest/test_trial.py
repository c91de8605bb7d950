"""Which trials end once a mutant is killed: only those of the checks that must kill it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from rlconform.certify.isolation.forkserver import ForkServer
from rlconform.certify.options import CertifyOptions
from rlconform.certify.results import RunRecord
from rlconform.contract import Level
from rlconform.mutants.memory.get import DropsUnknownIds
from rlconform.mutants.registry import all_mutants
from rlconform.selftest import trial


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[CertifyOptions]:
    """The options of the runs that trials ask for; none of them runs."""
    options: list[CertifyOptions] = []

    class _Runner:
        def __init__(self, given: CertifyOptions, **_: object) -> None:
            options.append(given)

        def certify(self) -> RunRecord:
            return RunRecord(target={"level": "unit", "capabilities": {}})

    monkeypatch.setattr(trial, "Runner", _Runner)
    return options


@pytest.fixture
def fork_server() -> Iterator[ForkServer]:
    """A fork server that starts nothing."""
    server = ForkServer()
    yield server
    server.close()


def test_a_trial_of_a_mutant_says_what_is_enough(
    asked: list[CertifyOptions], fork_server: ForkServer
) -> None:
    trial.try_declared("m", DropsUnknownIds, fork_server)
    evidence = DropsUnknownIds.evidence
    assert [options.enough for options in asked] == [{"GET-04": evidence, "GET-06": ""}]
    assert evidence
    assert not asked[0].scripts


def test_a_trial_begins_with_the_checks_given(
    asked: list[CertifyOptions], fork_server: ForkServer
) -> None:
    trial.try_declared("m", DropsUnknownIds, fork_server, ["unit/contract/test_get.py::test"])
    assert asked[0].first == ["unit/contract/test_get.py::test"]


def test_a_mutant_is_tried_with_its_own_seed(
    asked: list[CertifyOptions], fork_server: ForkServer
) -> None:
    trial.try_declared("m", replace(DropsUnknownIds, seed=7), fork_server)
    trial.try_declared("m", DropsUnknownIds, fork_server)
    trial.try_once("m", fork_server, "unit", 0.0)
    assert [options.seed for options in asked] == [7, 0, 0]


@pytest.mark.parametrize("level", ["unit", "functional"])
def test_a_trial_is_at_the_level_of_its_mutant(
    asked: list[CertifyOptions], fork_server: ForkServer, level: Level
) -> None:
    mutant = replace(DropsUnknownIds, level=level)
    trial.try_declared("m", mutant, fork_server)
    trial.try_races("m", mutant, fork_server, 1)
    trial.try_once("m", fork_server, level, 0.0)
    assert [options.level for options in asked] == [level] * 3  # unit: no processes to attach


def test_only_scenarios_run_in_an_order_that_a_seed_decides() -> None:
    seeded = [mutant for _, mutant in all_mutants().values() if mutant.seed]
    assert seeded
    assert all(mutant.interplay for mutant in seeded)


def test_right_planes_races_and_whole_runs_make_every_check(
    asked: list[CertifyOptions], fork_server: ForkServer
) -> None:
    trial.try_right("m", fork_server, 1.0)
    trial.try_once("m", fork_server, "unit", 0.0)
    trial.try_races("m", DropsUnknownIds, fork_server, 4)
    assert len(asked) >= 3
    assert not any(options.enough for options in asked)
    assert all(options.scripts for options in asked)
