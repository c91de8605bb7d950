"""Turns: a certification repeats its checks with new seeds, because races need several tries."""

from __future__ import annotations

from rlconform.certify.isolation.forkserver import ForkServer
from rlconform.certify.isolation.runner import Runner
from rlconform.certify.options import CertifyOptions
from rlconform.certify.results import Outcome


def outcomes_of(target: str, fork_server: ForkServer) -> dict[str, list[Outcome]]:
    """Outcomes of two turns of GET-04's short checks, by turn, in the order in which they ran."""
    options = CertifyOptions(target, checks=("unit/contract",), requirements=("GET-04",), turns=2)
    run = Runner(options, fork_server=fork_server).certify()
    assert run.complete
    came = run.results.values()
    return {turn: [r.outcome for r in came if turn in r.id] for turn in ("turn0", "turn1")}


def test_a_turn_is_over_once_it_has_shown_a_defect(fork_server: ForkServer) -> None:
    turns = outcomes_of("rlconform.mutants.memory.get:DropsUnknownIds", fork_server)
    for outcomes in turns.values():
        assert outcomes[0] is Outcome.FAIL
        assert set(outcomes[1:]) == {Outcome.NOT_TESTED}


def test_each_turn_of_a_right_plane_runs_every_check(fork_server: ForkServer) -> None:
    turns = outcomes_of("memory", fork_server)
    assert len(turns["turn0"]) > 1
    assert set(turns["turn0"] + turns["turn1"]) == {Outcome.PASS}
