"""``requirements.toml`` loads, its ids are unique, and each requirement has a check."""

from __future__ import annotations

import re
import tomllib
from dataclasses import replace
from typing import Any

import pytest

from rlconform._resources import resource_dir
from rlconform.certify.options import CHECKS
from rlconform.certify.plugin.markers import requirement
from rlconform.certify.report.verdict import in_profile
from rlconform.certify.requirement_index import checks_of_suites
from rlconform.contract import (
    CAPABILITIES,
    CURRENT_SET,
    LEVELS,
    ConfigError,
    Level,
    Requirement,
    includes,
    load_requirements,
)
from rlconform.contract.requirements import FILE, requirement_set_digest
from rlconform.contract.schema import parse_row, read_text

SECTIONS = (
    "REG", "PUT", "GET", "TAG", "CLAIM", "STAT", "CLEAR", "LIFE",
    "WIRE", "SHARD", "PAR", "FLOW", "ASYNC", "R3", "RANK", "FAULT", "LOAD",
)  # fmt: skip

ROW: dict[str, Any] = {
    "id": "GET-99",
    "level": "MUST",
    "title": "A title",
    "sentence": "A sentence.",
    "why": "A reason.",
    "profile": "unit",
    "since": CURRENT_SET,
}


# -- the loader ------------------------------------------------------------------------------------


def _parse(row: dict[str, Any]) -> Requirement:
    return parse_row(Requirement, FILE, row)


def test_a_row_needs_no_more_than_its_required_keys() -> None:
    row = _parse(ROW)
    assert (row.id, row.section, row.scope, row.published) == ("GET-99", "GET", "plane", True)
    assert (row.capability, row.excluded, row.seen) == ((), "", ())
    assert row.unchecked == ""


@pytest.mark.parametrize("key", sorted(ROW))
def test_a_row_that_lacks_a_key_is_refused(key: str) -> None:
    row = {name: value for name, value in ROW.items() if name != key}
    with pytest.raises(ConfigError, match=rf"lacks {key}$"):
        _parse(row)


def test_an_unknown_key_is_refused_by_name() -> None:
    with pytest.raises(ConfigError, match=r"GET-99 has unknown mutant$"):
        _parse(ROW | {"mutant": ["typo"]})


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("level", "must"),
        ("level", "MAY"),
        ("scope", "vendor"),
        ("profile", "nightly"),
        ("capability", ["warp"]),
        ("capability", ["objects", "warp"]),
    ],
)
def test_a_value_that_is_not_allowed_is_refused(key: str, value: object) -> None:
    with pytest.raises(ConfigError, match=rf"GET-99\.{key} is "):
        _parse(ROW | {key: value})


@pytest.mark.parametrize(("key", "value"), [("excluded", ["a"]), ("unchecked", True), ("why", 1)])
def test_a_text_written_as_anything_else_is_refused(key: str, value: object) -> None:
    with pytest.raises(ConfigError, match=rf"requirements\.toml: GET-99\.{key} must be text$"):
        _parse(ROW | {key: value})


@pytest.mark.parametrize("key", ["capability", "seen"])
def test_a_list_written_as_text_is_refused(key: str) -> None:
    """A tuple of the text would contain single letters."""
    with pytest.raises(ConfigError, match=key):
        _parse(ROW | {key: CAPABILITIES[0]})


def test_lists_become_tuples() -> None:
    row = _parse(ROW | {"capability": ["objects", "cuda"], "seen": ["XX-01"]})
    assert (row.capability, row.seen) == (("objects", "cuda"), ("XX-01",))


def test_drafts_and_later_sets_are_not_published() -> None:
    row = _parse(ROW)
    assert [replace(row, since=since).published for since in ("draft", "9999.01", "2026.11")] == [
        False,
        False,
        True,
    ]


# -- the rows --------------------------------------------------------------------------------------


def test_every_row_loads_in_the_files_order() -> None:
    ids = [row["id"] for row in tomllib.loads(read_text(FILE))["requirement"]]
    assert ids
    assert list(load_requirements()) == ids
    assert len(set(ids)) == len(ids)


@pytest.mark.parametrize("row", load_requirements().values(), ids=load_requirements())
def test_a_row_is_well_formed(row: Requirement) -> None:
    assert re.fullmatch(r"[A-Z][A-Z0-9]*-\d\d", row.id)
    assert row.section in SECTIONS
    assert re.fullmatch(r"draft|\d{4}\.\d\d", row.since)
    for text in (row.title, row.sentence, row.why, row.unchecked or "."):
        assert text.strip() == text != ""
    assert row.title[-1] != "."
    assert row.sentence[-1] in ".)"


def test_sections_stand_in_the_contracts_order() -> None:
    sections = list(dict.fromkeys(row.section for row in load_requirements().values()))
    assert sections == [section for section in SECTIONS if section in sections]


def test_the_digest_names_the_text() -> None:
    assert re.fullmatch(r"[0-9a-f]{64}", requirement_set_digest())
    assert requirement_set_digest() == requirement_set_digest()


# -- the mark --------------------------------------------------------------------------------------


def with_capabilities(count: int) -> str:
    """Id of a requirement with this number of capabilities."""
    rows = load_requirements().values()
    return next(row.id for row in rows if min(len(row.capability), 2) == count)


def test_a_mark_carries_id_and_capability() -> None:
    mark = requirement(with_capabilities(0)).mark
    assert mark.args == (with_capabilities(0),)
    rest: dict[str, object] = {"ends_plane": False, "race": False, "patience": 0.0, "leans_on": ()}
    rest |= {"scattered": True, "roles": True, "changes_results": False}
    assert mark.kwargs == {"capability": "", **rest}


def test_the_only_capability_need_not_be_named() -> None:
    (capability,) = load_requirements()[with_capabilities(1)].capability
    assert requirement(with_capabilities(1)).mark.kwargs["capability"] == capability


def test_one_capability_of_several_must_be_named() -> None:
    row = load_requirements()[with_capabilities(2)]
    with pytest.raises(ValueError, match="say which one"):
        requirement(row.id)
    for capability in row.capability:
        assert requirement(row.id, capability=capability).mark.kwargs["capability"] == capability


def test_a_mark_of_an_unknown_requirement_is_refused() -> None:
    with pytest.raises(ValueError, match="GET-99"):
        requirement("GET-99")
    with pytest.raises(ValueError, match="GET-99"):
        requirement("GET-01", leans_on=("GET-99",))


def test_a_capability_that_the_requirement_does_not_name_is_refused() -> None:
    with pytest.raises(ValueError, match="cuda"):
        requirement(with_capabilities(0), capability="cuda")


# -- the checks behind the rows --------------------------------------------------------------------


class Collector:
    """Records all collected items, including those deselected for the target."""

    def __init__(self) -> None:
        self.items: list[pytest.Item] = []

    def pytest_itemcollected(self, item: pytest.Item) -> None:
        self.items.append(item)


@pytest.fixture(scope="module")
def checks() -> list[pytest.Item]:
    """Every check that a certification may run."""
    suites = resource_dir("suites")
    collector = Collector()
    folders = [suites / folder for folder in CHECKS]
    code = pytest.main(
        [
            *("--collect-only", "-q", "-q", "-s", "--import-mode=importlib"),
            *("-p", "no:cacheprovider", "-p", "no:faulthandler"),
            *(str(folder) for folder in folders if folder.is_dir()),
        ],
        plugins=[collector],
    )
    assert code == pytest.ExitCode.OK
    return collector.items


def level_of(check: pytest.Item) -> Level:
    return next(level for level in LEVELS if level in check.path.parts)


def test_every_check_names_one_requirement(checks: list[pytest.Item]) -> None:
    marks = {check.nodeid: list(check.iter_markers("requirement")) for check in checks}
    assert [nodeid for nodeid, found in marks.items() if len(found) != 1] == []
    known = load_requirements()
    assert [nodeid for nodeid, (mark,) in marks.items() if mark.args[0] not in known] == []


def checked_ids(checks: list[pytest.Item], level: Level) -> set[str]:
    """Ids of the requirements that have a check at ``level`` or below."""
    return {
        mark.args[0]
        for check in checks
        if includes(level, level_of(check))
        for mark in check.iter_markers("requirement")
    }


@pytest.mark.parametrize("level", LEVELS)
def test_every_requirement_that_a_verdict_counts_has_a_check(
    checks: list[pytest.Item], level: Level
) -> None:
    counted = {row.id for row in load_requirements().values() if in_profile(row, level)}
    assert counted
    assert sorted(counted - checked_ids(checks, level)) == []


def test_each_capability_of_a_requirement_has_a_check(checks: list[pytest.Item]) -> None:
    checked = {
        (mark.args[0], mark.kwargs["capability"])
        for check in checks
        for mark in check.iter_markers("requirement")
    }
    wanted = {
        (row.id, capability)
        for row in load_requirements().values()
        if row.scope == "plane" and row.published
        for capability in row.capability
    }
    assert sorted(wanted - checked) == []


def test_no_check_checks_a_requirement_of_the_kit(checks: list[pytest.Item]) -> None:
    """A vendor's verdict must not depend on defects that only rlconform can have."""
    known = load_requirements()
    ids = set().union(*(checked_ids(checks, level) for level in LEVELS))
    assert [i for i in ids if known[i].scope == "kit"] == []


@pytest.fixture(scope="module")
def held() -> set[str]:
    """Ids of the requirements in the marks of all tests, including tests of rlconform."""
    return set().union(*checks_of_suites().values())


def test_every_mark_names_a_requirement(held: set[str]) -> None:
    assert sorted(held - load_requirements().keys()) == []


@pytest.mark.parametrize("row", load_requirements().values(), ids=load_requirements())
def test_a_requirement_is_checked_or_says_why_not(
    row: Requirement, held: set[str], checks: list[pytest.Item]
) -> None:
    """A certification checks a plane's requirement; rlconform's tests check rlconform's."""
    by_level = checked_ids(checks, "e2e") | checked_ids(checks, "durability")
    checked = row.id in (held if row.scope == "kit" else by_level)
    assert checked != bool(row.unchecked), row.unchecked or "no check and no reason why not"
    assert checked or not row.published, "a verdict counts it, and nothing checks it"
