"""Checkers of runs with faults, each with a history that it finds and one that it lets pass."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from rlconform.certify.concurrency.anomaly import Checker
from rlconform.certify.concurrency.checkers.calls import hung
from rlconform.certify.concurrency.checkers.claims import lost
from rlconform.certify.concurrency.checkers.faults import (
    among_answers,
    blind_clears,
    malformed,
    never_well,
    unkept,
    untyped_errors,
)
from rlconform.certify.concurrency.checkers.torn_reads import torn
from rlconform.certify.concurrency.history import History
from rlconform.certify.concurrency.journal import Journal, JournalReader
from rlconform.certify.concurrency.operation import Operation

OUTAGE = ("PlaneUnavailable", "DataPlaneError", "ConnectionError", "OSError", "Exception")
GONE = ("UnknownSample", "KeyError", "LookupError", "Exception")
#: When the fault ended, in the histories of this file.
FAULT = 10.0


def put(start: float, end: float | None, row: str = "r", bases: tuple[str, ...] = ()) -> Operation:
    return Operation(
        who="w", op="put", start=start, end=end, ids=(row,), fields=("x", "y"),
        version=int(start), error=bases[0] if bases else "", error_bases=bases,
    )  # fmt: skip


def get(
    start: float, values: dict[str, int] | None = None, bases: tuple[str, ...] = ()
) -> Operation:
    return Operation(
        who="w", op="get", start=start, end=start + 1, ids=("r",),
        fields=tuple(values or ("y",)), values=(dict(values),) if values else (),
        error="" if values else (bases or ("not a batch",))[0], error_bases=bases,
    )  # fmt: skip


def clear(start: float) -> Operation:
    return Operation(who="w", op="clear", start=start, end=start + 1, ids=("r",))


def claim(start: float, end: float | None, *ids: str, killed: bool = False) -> Operation:
    return Operation(
        who="k", op="claim", start=start, end=end, ids=ids, fields=("x",), task="train",
        asked=4, killed=killed,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("checker", "bad", "good"),
    [
        (
            unkept(FAULT),
            [put(11, 12), get(13, bases=OUTAGE)],
            [put(1, 2), get(13, bases=OUTAGE), put(14, 15, bases=OUTAGE), get(16, bases=OUTAGE)],
        ),
        (
            blind_clears(FAULT),
            [put(11, 12, bases=OUTAGE), clear(13)],
            [clear(1), put(11, 12, bases=OUTAGE), put(13, 14), clear(15)],
        ),
        (
            never_well(FAULT),
            [put(1, 2), put(11, 12, bases=OUTAGE), put(13, 14, bases=OUTAGE)],
            [put(11, 12, bases=OUTAGE), put(13, 14)],
        ),
        (malformed, [put(1, 2), get(3)], [put(1, 2), get(3, bases=OUTAGE), get(5, {"x": 1})]),
        (
            among_answers(torn),
            [put(1, None), get(3, {"x": 1}), get(5, bases=GONE)],
            [put(1, None), get(3, {"x": 1}), get(5, bases=OUTAGE)],
        ),
        (hung, [put(1, None)], [claim(1, None, killed=True)]),
        (
            lost,
            [*[put(1, 2, f"r{n}") for n in range(5)], claim(3, None, killed=True), claim(9, 10)],
            [*[put(1, 2, f"r{n}") for n in range(4)], claim(3, None, killed=True), claim(9, 10)],
        ),
    ],
    ids=["unkept", "blind", "never well", "malformed", "answers", "killed", "a claim of four"],
)
def test_a_checker_finds_the_one_and_not_the_other(
    checker: Checker, bad: list[Operation], good: list[Operation]
) -> None:
    assert list(checker(History(bad)))
    assert [found.description for found in checker(History(good))] == []


def test_errors_that_do_not_blame_the_plane_are_found() -> None:
    vague = put(11, 12, bases=("AttributeError", "Exception"))
    typed = [put(13, 14, bases=OUTAGE), get(15, bases=GONE), put(1, 2, bases=("Bug", "Exception"))]
    assert list(untyped_errors(History([vague, *typed]), FAULT)) == [vague]


@pytest.mark.parametrize(
    ("op", "outcome"),
    [
        (put(1, 2), "ok"),
        (put(1, 2, bases=("ValueError", "Exception")), "failed"),
        (put(1, 2, bases=GONE), "failed"),
        (put(1, 2, bases=OUTAGE), "unknown"),
        (put(1, None), "unknown"),
        (claim(1, None, killed=True), "unknown"),
    ],
)
def test_what_a_caller_knows_of_its_call(op: Operation, outcome: str) -> None:
    assert op.outcome == outcome


def test_a_journal_keeps_the_call_under_way_and_survives_half_a_line(tmp_path: Path) -> None:
    path = tmp_path / "calls.jsonl"
    reader = JournalReader(path)
    assert reader.poll() == []
    journal = Journal(path)
    journal.write(0, begun := put(1, None))
    assert reader.poll() == [begun]
    journal.write(0, ended := replace(begun, end=2.0))
    journal.write(1, second := put(3, None, "s"))
    with path.open("ab") as file:
        file.write(b'[1, {"who": "w", "op"')
    assert reader.poll() == [ended, second]
    assert JournalReader(path).poll() == [ended, second]


def test_a_put_that_raised_and_that_nobody_saw_may_never_take_effect() -> None:
    """Its row may be unknown afterwards; once a read returned a part of it, it may not."""
    raised = put(11, 31, bases=OUTAGE)
    assert list(torn(History([raised, get(32, bases=GONE)]))) == []
    seen = replace(get(31, {"x": 11}), who="other")
    assert [one.kind for one in torn(History([raised, seen, get(33, bases=GONE)]))] == ["torn"]
