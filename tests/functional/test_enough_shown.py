"""A trial of a mutant ends once it is killed; one that is not killed runs every check."""

from __future__ import annotations

from dataclasses import replace

from rlconform.certify.isolation.forkserver import ForkServer
from rlconform.certify.isolation.runner import Runner
from rlconform.certify.isolation.shown import SHOWN
from rlconform.certify.options import CertifyOptions
from rlconform.certify.results import BROKEN, RunRecord

OPTIONS = CertifyOptions(
    "rlconform.mutants.memory.get:DropsUnknownIds",
    checks=("unit/contract/test_get.py", "unit/contract/test_get_again.py"),
    requirements=("GET-04",),
)


def run_of(enough: dict[str, str], fork_server: ForkServer, scripts: bool = True) -> RunRecord:
    options = replace(OPTIONS, enough=enough, scripts=scripts)
    run = Runner(options, fork_server=fork_server).certify()
    assert run.complete
    return run


def test_nothing_runs_after_the_check_that_kills(fork_server: ForkServer) -> None:
    run = run_of({"GET-04": "never put"}, fork_server)
    *before, last = run.results.values()
    assert last.outcome in BROKEN
    assert "never put" in last.evidence
    assert not any("never put" in one.evidence for one in before)
    left_out = {check.id for check in run.plan if check.left_out == SHOWN}
    assert left_out == {check.id for check in run.plan} - run.results.keys()
    assert left_out


def test_failures_for_another_reason_end_nothing(fork_server: ForkServer) -> None:
    run = run_of({"GET-04": "what no check says"}, fork_server)
    assert sum(one.outcome in BROKEN for one in run.results.values()) > 1
    assert run.results.keys() == {check.id for check in run.plan}


def test_without_scripts_the_checks_say_the_same(fork_server: ForkServer) -> None:
    said = [run_of({}, fork_server, scripts).results.values() for scripts in (True, False)]
    usual, short = ([(one.id, one.outcome, one.evidence) for one in every] for every in said)
    assert usual == short
    assert any(one.reproducer for one in said[0])
    assert not any(one.reproducer or one.plain_script for one in said[1])
