"""Scenarios of several processes and of one: what they cover, how they shrink, what they show."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import islice, pairwise, product
from random import Random
from typing import get_args

import pytest

from rlconform.certify.interplay import matrix
from rlconform.certify.interplay.attribution import Circumstances, Kind, requirement_of
from rlconform.certify.interplay.changes import CHANGES_MADE
from rlconform.certify.interplay.covering import covering
from rlconform.certify.interplay.matrix import (
    BATCH,
    SCENARIOS,
    SCENARIOS_ALONE,
    UNAWARE_SHARE,
    InterplayFailure,
    planned,
)
from rlconform.certify.interplay.processes import Processes
from rlconform.certify.interplay.row_versions import DTYPES, IDS, LABELS, NUMBERS, RowVersions
from rlconform.certify.interplay.scenario import (
    ALONE_CHANGES,
    CHANGES,
    FIRST_LOOKS,
    GUEST,
    GUESTS,
    KIND_OF,
    LAYOUTS,
    UNAWARE_CHANGES,
    WAKING,
    InterplayScenario,
)
from rlconform.certify.interplay.scenario_run import ScenarioBatch, in_batches
from rlconform.certify.interplay.shared_model import SharedModel
from rlconform.certify.properties.excerpt import FailureReport
from rlconform.certify.recording.recorder import Recording
from rlconform.certify.requirement_index import checks_of_suites
from rlconform.contract import Timeouts

SUITE, SUITE_ALONE = "functional/interplay/test_interplay.py", "unit/interplay/test_steps.py"
PLAIN = InterplayScenario(
    looks="claim",
    changes=("overwrite", "clear_some"),
    registers=1,
    writes=2,
    looker=1,
    changers=(0, 2),
    last=1,
    layout="jagged",
)


def all_scenarios(seed: int = 0, groups: bool = True) -> list[InterplayScenario]:
    return [each for batch in planned(seed, SCENARIOS, groups) for each in batch.scenarios]


@pytest.fixture(scope="module")
def scenarios() -> list[InterplayScenario]:
    return all_scenarios()


# -- what is covered -----------------------------------------------------------------------------


def test_each_look_meets_each_change_of_another_process(scenarios: list[InterplayScenario]) -> None:
    met = {
        (each.looks, change)
        for each in scenarios
        for change, by in zip(each.changes, each.changers, strict=True)
        if by != each.looker
    }
    possible = {
        (look, change)
        for look, change in product(FIRST_LOOKS, CHANGES)
        if look != "wait" or change in WAKING
    }
    assert len(possible - met) <= 0.02 * len(possible), possible - met


def test_each_kind_of_change_follows_each_other(scenarios: list[InterplayScenario]) -> None:
    kinds = {KIND_OF.get(change, change) for change in CHANGES}
    chains = {
        tuple(KIND_OF.get(change, change) for change in each.changes)
        for each in scenarios
        if len(each.changes) == 2
    }
    missed = set(product(kinds, kinds)) - chains
    assert len(missed) <= 0.04 * len(kinds) ** 2, missed


def test_every_value_of_every_choice_occurs(scenarios: list[InterplayScenario]) -> None:
    assert {each.layout for each in scenarios} == {*LAYOUTS}
    assert {each.guest for each in scenarios} == {*GUESTS}
    assert {(each.writes, each.looker) for each in scenarios} >= set(
        product(range(GUEST), repeat=2)
    )
    relations = {each.relation(by) for each in scenarios for by in each.changers}
    assert len(relations) >= 16


def test_the_last_scenarios_have_writers_that_miss_a_change(
    scenarios: list[InterplayScenario],
) -> None:
    """Only they put rows by turns; the first writer makes the last of two changes in many."""
    last = scenarios[-round(UNAWARE_SHARE * SCENARIOS) :]
    assert {each.turns for each in scenarios[: -len(last)]} == {None}
    assert {each.turns for each in last} == {None, *range(GUEST)}
    missed = [each for each in last if each.writes == each.changers[-1] != each.changers[0]]
    assert len(missed) > len(last) / 3
    assert {each.changes[-1] for each in missed} >= {*UNAWARE_CHANGES} - {*CHANGES}


def test_seeds_choose_other_scenarios_and_repeat_them() -> None:
    assert all_scenarios(1) == all_scenarios(1)
    assert all_scenarios(1) != all_scenarios(2)


def test_a_plane_without_group_claims_gets_no_groups() -> None:
    assert "groups" not in {each.layout for each in all_scenarios(groups=False)}


def test_scenarios_are_possible(scenarios: list[InterplayScenario]) -> None:
    assert all(each.possible for each in scenarios)
    assert len(scenarios) == SCENARIOS


def test_batches_hold_guests_of_one_kind(scenarios: list[InterplayScenario]) -> None:
    batches = in_batches(scenarios, BATCH)
    for batch in batches:
        kinds = {
            each.guest if each.guest in {"none", "late"} else "leaves" for each in batch.scenarios
        }
        assert len(kinds) == 1
        assert batch.at_once or kinds == {"none"}
    assert {batch.at_once for batch in batches} == {True, False}
    assert sum(len(batch.scenarios) for batch in batches) == len(scenarios)


def test_covering_prefers_what_is_new() -> None:
    def draw(random: Random) -> int | None:
        number = random.randrange(20)
        return number if number != 7 else None

    chosen = list(islice(covering(Random(0), draw, lambda n: frozenset({n % 10})), 10))
    assert len({n % 10 for n in chosen}) >= 9
    assert 7 not in chosen


# -- scenarios of one process --------------------------------------------------------------------


@pytest.fixture(scope="module")
def of_one_process() -> list[InterplayScenario]:
    batches = planned(0, SCENARIOS_ALONE, groups=True, alone=True)
    return [each for batch in batches for each in batch.scenarios]


def test_a_scenario_of_one_process_has_no_other(of_one_process: list[InterplayScenario]) -> None:
    for each in of_one_process:
        assert {each.registers, each.writes, each.looker, *each.changers, each.last} == {0}
        assert each.guest == "none"
        assert each.possible


def test_most_pairs_of_changes_follow_each_other(of_one_process: list[InterplayScenario]) -> None:
    pairs = {pair for each in of_one_process for pair in pairwise(each.changes)}
    assert len(pairs) >= 0.7 * len(ALONE_CHANGES) ** 2
    assert {change for each in of_one_process for change in each.changes} == {*ALONE_CHANGES}
    assert {each.looks for each in of_one_process} == {*FIRST_LOOKS}


def test_a_longer_chain_is_made_smaller_step_by_step() -> None:
    changes = ("tag_some", "overwrite", "clear_some")
    chain = replace(PLAIN, changes=changes, changers=(0, 0, 0), looker=0, last=0, alone=True)
    shorter = {each.changes for each in chain.smaller()}
    assert shorter >= {changes[1:], changes[:2], (changes[0], changes[2])}


# -- smaller scenarios ---------------------------------------------------------------------------


def test_smaller_scenarios_leave_something_out_and_end() -> None:
    seen, waiting = {PLAIN}, [PLAIN]
    while waiting:
        for less in waiting.pop().smaller():
            if less not in seen:
                seen.add(less)
                waiting.append(less)
    least = [each for each in seen if not list(each.smaller())]
    assert least
    assert all(len(each.changes) == 1 and each.looks == "nothing" for each in least)


@pytest.mark.parametrize("role", ["writes", "looker"])
def test_a_scenario_without_its_guest_has_no_process_that_leaves(role: str) -> None:
    roles = {"writes": 2, "looker": 1, role: GUEST}
    guest = "writer" if role == "writes" else "looker"
    with_guest = InterplayScenario(
        looks="read",
        changes=("overwrite",),
        registers=0,
        changers=(0,),
        last=0,
        guest=guest,  # type: ignore[arg-type]
        **roles,
    )
    without = with_guest.without_guest()
    assert GUEST not in {without.writes, without.looker, *without.changers, without.last}
    assert without.guest == "none"


def test_a_description_names_the_processes_in_the_order_of_their_steps() -> None:
    assert PLAIN.describe() == (
        "attached 1 registers; attached 2 puts jagged rows; attached 1 looks (claim); the owner "
        "makes the change overwrite; attached 1 looks (claim) again; attached 2 makes the change "
        "clear_some; attached 1 looks at everything"
    )


# -- what a difference breaks --------------------------------------------------------------------


def of_several() -> Iterator[Circumstances]:
    for change in (None, *UNAWARE_CHANGES):
        for flags in product([False, True], repeat=4):
            yield Circumstances(change, *flags)


def of_one() -> Iterator[Circumstances]:
    for change in (None, *ALONE_CHANGES):
        for again in (False, True):
            yield Circumstances(change, again, alone=True)


@pytest.mark.parametrize(
    ("suite", "circumstances"), [(SUITE, of_several), (SUITE_ALONE, of_one)], ids=["several", "one"]
)
def test_every_requirement_that_a_difference_may_break_has_a_check(
    suite: str, circumstances: Callable[[], Iterator[Circumstances]]
) -> None:
    kinds = [kind for kind in get_args(Kind) if kind != "accepted"]  # PUT-15 has checks elsewhere
    broken = {requirement_of(kind, now) for kind, now in product(kinds, circumstances())}
    checks = checks_of_suites()
    checked = {ids for check, marks in checks.items() if check.startswith(suite) for ids in marks}
    assert broken == checked


@pytest.mark.parametrize(
    ("kind", "now", "due"),
    [
        ("rows", Circumstances("overwrite"), "GET-10"),
        ("rows", Circumstances("change_dtype"), "PUT-13"),
        ("rows", Circumstances("overwrite", late=True), "LIFE-06"),
        ("lost", Circumstances("clear_own", others_left=True), "CLEAR-08"),
        ("cleared", Circumstances("clear_own"), "CLEAR-03"),
        ("again", Circumstances("overwrite_some"), "CLAIM-08"),
        ("again", Circumstances("claim"), "CLAIM-02"),
        ("tags", Circumstances("overwrite", registered_again=True), "REG-08"),
        ("lost", Circumstances("reuse_ids"), "CLEAR-04"),
        ("call", Circumstances("start_anew"), "REG-03"),
        ("rows", Circumstances("refused_put"), "PUT-16"),
        ("rows", Circumstances("overwrite", alone=True), "PUT-13"),
        ("status", Circumstances("tag_new", alone=True), "STAT-01"),
        ("lost", Circumstances("complete_group", alone=True), "PUT-16"),
        ("cleared", Circumstances("start_anew", alone=True), "GET-06"),
        ("unknown", Circumstances("overwrite", registered_again=True, alone=True), "GET-04"),
    ],
)
def test_what_happened_decides_what_is_broken(kind: Kind, now: Circumstances, due: str) -> None:
    assert requirement_of(kind, now) == due


def test_every_change_is_made() -> None:
    assert set(CHANGES_MADE) == {*UNAWARE_CHANGES, *ALONE_CHANGES}


# -- the model and the values --------------------------------------------------------------------


def test_a_row_belongs_to_the_process_that_put_it_first() -> None:
    model = SharedModel()
    for process, ids in ((1, ["a", "b"]), (2, ["b", "c"])):
        model.note_writer(ids, process)
        model.put(ids, ["x"], process)
    assert model.written_by(1) == ["a", "b"]
    assert model.written_by(2) == ["c"]
    model.clear(["b"])
    model.note_writer(["b"], 2)
    model.put(["b"], ["x"], 3)
    assert model.written_by(2) == ["c", "b"]


@pytest.mark.parametrize("dtype", range(len(DTYPES)))
def test_values_of_rows_and_puts_are_distinct_in_every_dtype(dtype: int) -> None:
    values = RowVersions(jagged=False, dtype=dtype)
    versions = [values.new_version() for _ in range(8)]
    for name in (LABELS, NUMBERS):
        shown = [
            (str(row.dtype), row.tolist())
            for version in versions
            for row in values.column("p", IDS, name, version).unbind()
        ]
        assert len({str(one) for one in shown}) == len(IDS) * len(versions)


# -- when a scenario is made smaller -------------------------------------------------------------


@pytest.mark.parametrize(
    ("enough", "smaller"), [(None, True), ("rows claimed", False), ("another text", True)]
)
def test_a_scenario_that_says_enough_is_not_made_smaller(
    monkeypatch: pytest.MonkeyPatch, enough: str | None, smaller: bool
) -> None:
    said = FailureReport.of(AssertionError("expected rows claimed; got none"), Recording())
    found = InterplayFailure(ScenarioBatch((PLAIN,), at_once=True), PLAIN, said)
    least = replace(found, scenario=replace(PLAIN, layout="dense"))
    monkeypatch.setattr(matrix, "_smaller", lambda *_: least)
    tried = matrix.InterplayMatrix(0, 1.0, groups=False, objects=False, check_s=1.0)
    tried._failures["CLAIM-02"] = found
    processes = Processes([], Timeouts(), lambda: None)
    assert tried.failure_of("CLAIM-02", processes, enough) is (least if smaller else found)
