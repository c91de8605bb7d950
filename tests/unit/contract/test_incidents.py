"""``incidents.toml`` loads, and the checks that each row names exist and cover it."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from rlconform.certify.requirement_index import checks_by_requirement, checks_of_suites
from rlconform.contract import ConfigError, load_requirements
from rlconform.contract.incidents import FILE, Incident, load_incidents
from rlconform.contract.schema import parse_row, read_text

ROW: dict[str, Any] = {
    "id": "XX-01",
    "system": "a plane",
    "what": "It failed.",
    "requirements": ["GET-01"],
    "checks": ["unit/contract/test_get.py::test_rows"],
}


# -- the loader ------------------------------------------------------------------------------------


def _parse(row: dict[str, Any]) -> Incident:
    return parse_row(Incident, FILE, row)


def test_a_row_has_checks_or_a_reason_why_not() -> None:
    assert _parse(ROW).checks == ("unit/contract/test_get.py::test_rows",)
    without = {key: value for key, value in ROW.items() if key not in {"checks", "requirements"}}
    reason = {"excluded": "No call shows it."}
    assert _parse(without | reason).excluded == "No call shows it."
    with pytest.raises(ConfigError, match=r"incidents\.toml: XX-01: .*excluded"):
        _parse(without)


def test_a_row_with_a_reason_may_name_the_kits_own_tests() -> None:
    row = _parse(ROW | {"requirements": [], "excluded": "No call shows it."})
    assert (row.checks, row.excluded) == (tuple(ROW["checks"]), "No call shows it.")


def test_a_row_with_checks_names_what_they_check() -> None:
    with pytest.raises(ConfigError, match=r"incidents\.toml: XX-01: requirements is empty"):
        _parse(ROW | {"requirements": []})


@pytest.mark.parametrize("key", ["id", "system", "what"])
def test_a_row_that_lacks_a_key_is_refused(key: str) -> None:
    row = {name: value for name, value in ROW.items() if name != key}
    with pytest.raises(ConfigError, match=rf"incidents\.toml: .* lacks {key}$"):
        _parse(row)


def test_an_unknown_key_is_refused_by_name() -> None:
    with pytest.raises(ConfigError, match=r"incidents\.toml: XX-01 has unknown check$"):
        _parse(ROW | {"check": "typo"})


@pytest.mark.parametrize(
    ("key", "value"),
    [("requirements", "GET-01"), ("checks", "a"), ("checks", [1]), ("what", 3), ("system", [])],
)
def test_a_value_of_another_type_is_refused(key: str, value: object) -> None:
    with pytest.raises(ConfigError, match=rf"incidents\.toml: XX-01\.{key} must be "):
        _parse(ROW | {key: value})


# -- the rows --------------------------------------------------------------------------------------

FAILURES = load_incidents()


def test_every_row_loads_in_the_files_order() -> None:
    assert list(FAILURES) == [row["id"] for row in tomllib.loads(read_text(FILE))["failure"]]
    assert FAILURES


@pytest.mark.parametrize("failure", FAILURES.values(), ids=FAILURES)
def test_a_row_is_well_formed(failure: Incident) -> None:
    assert re.fullmatch(r"[A-Z]{2}-\d\d", failure.id)
    for text in (failure.system, failure.what, failure.excluded or "."):
        assert text.strip() == text != ""
    assert failure.what.endswith(".")
    assert (failure.excluded or ".").endswith(".")
    for named in (failure.requirements, failure.checks):
        assert len(set(named)) == len(named)


def test_a_requirement_has_seen_the_failures_that_break_it() -> None:
    """Both files list this, so that either can be read alone; the lists must be equal."""
    broken = {(failure.id, id_) for failure in FAILURES.values() for id_ in failure.requirements}
    seen = {(code, row.id) for row in load_requirements().values() for code in row.seen}
    assert sorted(broken ^ seen) == []


# -- the checks behind the rows --------------------------------------------------------------------


@pytest.fixture(scope="module")
def tests() -> Mapping[str, frozenset[str]]:
    """The requirement marks of every test in the suites."""
    return checks_of_suites()


def test_marks_are_read_from_the_source(tmp_path: Path) -> None:
    (tmp_path / "unit").mkdir()
    (tmp_path / "unit" / "test_x.py").write_text(
        '@requirement("A-01", capability="c")\ndef test_a(): ...\n'
        '@requirement("B-01")\nclass TestB:\n    def test_b(self): ...\n'
        '@pytest.mark.slow\ndef test_c(): ...\n@requirement("D-01")\ndef helper(): ...\n'
    )
    assert checks_by_requirement(tmp_path) == {
        "unit/test_x.py::test_a": {"A-01"},
        "unit/test_x.py::TestB::test_b": {"B-01"},
        "unit/test_x.py::test_c": set(),
    }


@pytest.mark.parametrize("failure", FAILURES.values(), ids=FAILURES)
def test_its_checks_are_there_and_check_what_it_breaks(
    failure: Incident, tests: dict[str, frozenset[str]]
) -> None:
    assert [check for check in failure.checks if check not in tests] == []
    strays = [check for check in failure.checks if not tests[check] & set(failure.requirements)]
    assert bool(failure.excluded) or strays == []


@pytest.mark.parametrize(
    "failure", [each for each in FAILURES.values() if each.excluded], ids=lambda each: each.id
)
def test_an_excluded_incident_names_no_check_that_verdicts_count(
    failure: Incident, tests: dict[str, frozenset[str]]
) -> None:
    known = load_requirements()
    for check in failure.checks:
        marked = [known[id_] for id_ in tests[check]]
        assert [row.id for row in marked if row.published and row.scope == "plane"] == [], check


def test_incidents_without_any_test_are_listed() -> None:
    """No test finds these incidents; the list must not grow unnoticed."""
    unseen = {failure.id for failure in FAILURES.values() if not failure.checks}
    assert unseen == {
        "NR-28", "NR-65", "TQ-26", "TQ-30", "MC-11", "MC-12",
    }  # fmt: skip


@pytest.mark.parametrize("failure", FAILURES.values(), ids=FAILURES)
def test_each_requirement_that_counts_has_a_check_that_sees_it(
    failure: Incident, tests: dict[str, frozenset[str]]
) -> None:
    """An incident with ``excluded`` may break only drafts, so no requirement counts."""
    known = load_requirements()
    counted = {id_ for id_ in failure.requirements if known[id_].published}
    seen_by = {id_ for check in failure.checks for id_ in tests.get(check, ())}
    assert sorted(counted - seen_by) == []
