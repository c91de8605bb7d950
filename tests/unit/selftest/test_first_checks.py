"""The checks that a gate tries first: they exist, and a gate's report renews them."""

from __future__ import annotations

from rlconform.certify.requirement_index import checks_of_suites
from rlconform.mutants.registry import all_mutants
from rlconform.selftest.first_checks import first_checks, renewed

MUTANTS = ["first", "second", "third"]


def test_every_check_and_mutant_of_the_file_exists() -> None:
    checks = checks_of_suites()
    mutants = all_mutants()
    named = [(name, check) for name, ids in first_checks().items() for check in ids]
    gone = [one for one in named if one[0] not in mutants or one[1].split("[")[0] not in checks]
    why = "run a gate, then `python -m rlconform.selftest.first_checks` on its self-test.json"
    assert named
    assert not gone, why


def test_what_a_gate_has_found_replaces_what_was_known() -> None:
    report = {
        "trials": [
            {"name": "second", "killers": ["b", "c"]},
            {"name": "third", "killers": ()},
        ]
    }
    known = {"first": ["a"], "second": ["a"], "removed": ["a"]}
    assert renewed(known, report, MUTANTS) == {"first": ["a"], "second": ["b", "c"]}
