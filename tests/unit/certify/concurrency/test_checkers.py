"""Checkers are tested with histories that show each kind of anomaly and histories that don't.

Times are whole steps. Calls that overlap may take effect in either order, so a history is bad
only if no order explains it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from rlconform.certify.concurrency.anomaly import Checker
from rlconform.certify.concurrency.check_saved import main as check_saved
from rlconform.certify.concurrency.checkers.calls import hung, refused, refused_alone
from rlconform.certify.concurrency.checkers.claims import (
    cross_task,
    duplicated,
    lost,
    null_ids,
    phantoms,
)
from rlconform.certify.concurrency.checkers.faults import late
from rlconform.certify.concurrency.checkers.reads import stale_reads, unwritten, wrong_rows
from rlconform.certify.concurrency.checkers.status import early_status, late_status, non_monotonic
from rlconform.certify.concurrency.checkers.tags import lost_updates, tags_late
from rlconform.certify.concurrency.checkers.torn_reads import torn
from rlconform.certify.concurrency.explain import IMPACT, HistoryViolation, check_history
from rlconform.certify.concurrency.history import History
from rlconform.certify.concurrency.named_checkers import CHECKERS
from rlconform.certify.concurrency.operation import Operation, to_jsonl


def put(
    start: float, end: float | None, version: int = 1, ids: str = "r", **more: Any
) -> Operation:
    """A put of fields x and y; ``tags`` is one dict for all rows."""
    tags = more.pop("tags", None)
    rows = tuple(ids.split())
    return Operation(
        who="p",
        op="put",
        start=start,
        end=end,
        ids=rows,
        fields=more.pop("fields", ("x", "y")),
        version=version,
        tags=None if tags is None else tuple(tags for _ in rows),
        **more,
    )


def stamp(start: float, end: float | None, **tags: Any) -> Operation:
    return Operation(who="s", op="put", start=start, end=end, ids=("r",), tags=(tags,))


def clear(start: float, end: float | None, ids: str = "r", **more: Any) -> Operation:
    return Operation(who="c", op="clear", start=start, end=end, ids=tuple(ids.split()), **more)


def claim(start: float, end: float | None, *ids: Any, **more: Any) -> Operation:
    """A claim of at most 4 rows with field x for task ``train``; ``tags`` is that of each row."""
    tags = more.pop("tags", None)
    attributes: dict[str, Any] = {"task": "train", "asked": 4, "fields": ("x",)} | more
    beside = None if tags is None else tuple(tags for _ in ids)
    return Operation(who="k", op="claim", start=start, end=end, ids=ids, tags=beside, **attributes)


def get(start: float, end: float | None, error: str = "", **values: Any) -> Operation:
    """A read of row r, by default of field x."""
    came = (dict(values),) if values else ()
    return Operation(
        who="g",
        op="get",
        start=start,
        end=end,
        ids=("r",),
        fields=tuple(values) or ("x",),
        values=came,
        error=error,
    )


def status(start: float, end: float, answer: bool, who: str = "a") -> Operation:
    return Operation(who=who, op="status", start=start, end=end, task="train", answer=answer)


MISSING = "UnknownSample: r"
#: A checker for a deadline of two steps.
LATE = late(2.0)


@dataclass(frozen=True)
class Case:
    """A history, and the kind of anomaly that a checker finds in it, or nothing."""

    name: str
    checker: Checker
    kind: str
    operations: Sequence[Operation]


BAD = [
    Case("the deadline was two steps", LATE, "late", [put(0, 3)]),
    Case("a claim names None", null_ids, "null-id", [put(0, 1), claim(2, 3, None)]),
    Case("nobody put the row", phantoms, "phantom", [put(0, 1), claim(2, 3, "ghost")]),
    Case("it is put only later", phantoms, "phantom", [claim(0, 1, "r"), put(2, 3)]),
    Case("it was cleared before", phantoms, "phantom", [put(0, 1), clear(2, 3), claim(4, 5, "r")]),
    Case(
        "the field was cleared with the life before",
        phantoms,
        "phantom",
        [put(0, 1), clear(2, 3), put(4, 5, 2, fields=("y",)), claim(6, 7, "r")],
    ),
    Case("a field is missing", phantoms, "phantom", [put(0, 1, fields=("y",)), claim(2, 3, "r")]),
    Case(
        "claimed twice", duplicated, "duplicated", [put(0, 1), claim(2, 3, "r"), claim(4, 5, "r")]
    ),
    Case("twice in one claim", duplicated, "duplicated", [put(0, 1), claim(2, 3, "r", "r")]),
    Case(
        "two claims at once",
        duplicated,
        "duplicated",
        [put(0, 1), claim(2, 5, "r"), claim(3, 4, "r")],
    ),
    Case(
        "claimed again after an overwrite",
        duplicated,
        "duplicated",
        [put(0, 1), claim(2, 3, "r"), put(4, 5, 2), claim(6, 7, "r")],
    ),
    Case(
        "cleared before both claims",
        duplicated,
        "duplicated",
        [put(0, 1), clear(2, 3), put(4, 5, 2), claim(6, 7, "r"), claim(8, 9, "r")],
    ),
    Case("never claimed", lost, "lost", [put(0, 1), claim(2, 3)]),
    Case("one of two is never claimed", lost, "lost", [put(0, 1, ids="r s"), claim(2, 3, "s")]),
    Case(
        "the second life is never claimed",
        lost,
        "lost",
        [put(0, 1), claim(2, 3, "r"), clear(4, 5), put(6, 7, 2), claim(8, 9)],
    ),
    Case(
        "more is lost than a claim without an end can hold",
        lost,
        "lost",
        [put(0, 1, ids="r s t u v"), claim(2, None), claim(3, 4)],
    ),
    Case(
        "another task took it",
        cross_task,
        "cross-task",
        [put(0, 1), claim(2, 3, "r", task="prev_lp"), claim(4, 5)],
    ),
    Case("another row came", wrong_rows, "wrong-row", [put(0, 1), get(2, 3, x="row of 's'")]),
    Case("a version nobody put", unwritten, "phantom", [put(0, 1), get(2, 3, x=9)]),
    Case("a version of the future", unwritten, "phantom", [get(0, 1, x=1), put(2, 3)]),
    Case(
        "overwritten before", stale_reads, "stale-read", [put(0, 1), put(2, 3, 2), get(4, 5, x=1)]
    ),
    Case("cleared before", stale_reads, "stale-read", [put(0, 1), clear(2, 3), get(4, 5, x=1)]),
    Case("put, but not to be read", stale_reads, "stale-read", [put(0, 1), get(2, 3, MISSING)]),
    Case(
        "put again after a clear, but not to be read",
        stale_reads,
        "stale-read",
        [put(0, 1), clear(2, 3), put(4, 5, 2), get(6, 7, MISSING)],
    ),
    Case("two versions", torn, "torn", [put(0, 1), put(2, 6, 2), get(3, 4, x=1, y=2)]),
    Case(
        "the other field comes later",
        torn,
        "torn",
        [put(0, 1), put(2, 9, 2), get(3, 4, x=2), get(5, 6, y=1)],
    ),
    Case(
        "claimed by one field, without the other",
        torn,
        "torn",
        [put(0, 9), claim(1, 2, "r"), get(3, 4, MISSING)],
    ),
    Case(
        "tags come later",
        tags_late,
        "tags-late",
        [put(0, 1, tags={"w": 1}), claim(2, 3, "r", tags={})],
    ),
    Case(
        "tags come later than in a claim during the put",
        tags_late,
        "tags-late",
        [put(0, 9, tags={"w": 1}), claim(2, 3, "r")],
    ),
    Case(
        "a stamp is gone",
        lost_updates,
        "lost-update",
        [put(0, 1), stamp(2, 5, std=1), stamp(3, 4, reward=2), claim(6, 7, "r", tags={"std": 1})],
    ),
    Case(
        "a stamp of the past",
        lost_updates,
        "lost-update",
        [put(0, 1), stamp(2, 3, std=1), stamp(4, 5, std=2), claim(6, 7, "r", tags={"std": 1})],
    ),
    Case(
        "a stamp of the life before",
        lost_updates,
        "lost-update",
        [
            put(0, 1),
            stamp(2, 3, std=1),
            clear(4, 5),
            put(6, 7, 2),
            claim(8, 9, "r", tags={"std": 1}),
        ],
    ),
    Case("True with a row left", early_status, "early-status", [put(0, 1), status(2, 3, True)]),
    Case(
        "True before the claim begins",
        early_status,
        "early-status",
        [put(0, 1), status(2, 3, True), claim(4, 5, "r")],
    ),
    Case(
        "False with no row left",
        late_status,
        "late-status",
        [put(0, 1), claim(2, 3, "r"), status(4, 5, False)],
    ),
    Case(
        "True, then False",
        non_monotonic,
        "non-monotonic",
        [put(0, 1), claim(2, 3, "r"), status(4, 5, True), status(6, 7, False, "b")],
    ),
    Case(
        "False, then True",
        non_monotonic,
        "non-monotonic",
        [put(0, 1), claim(2, 3, "r"), status(4, 5, False), status(6, 7, True, "b")],
    ),
    Case("a put raises", refused, "refused", [put(0, 1, error="KeyError: x")]),
    Case(
        "a put raises when the other is over",
        refused_alone,
        "refused",
        [put(0, 1, error="Conflict"), clear(2, 3), put(4, 5, 2, error="Conflict"), put(6, 7, 3)],
    ),
    Case(
        "a put raises beside one of other rows",
        refused_alone,
        "refused",
        [put(0, 3, error="Conflict"), put(1, 2, 2, ids="s")],
    ),
    Case(
        "a clear raises beside a put",
        refused_alone,
        "refused",
        [put(0, 3), clear(1, 2, error="Conflict")],
    ),
    Case("a claim doesn't come back", hung, "hung", [put(0, 1), claim(2, None)]),
]

GOOD = [
    Case("a claim waits beside its deadline", LATE, "", [put(0, 2), claim(0, 5, waits=3.0)]),
    Case("ids are text", null_ids, "", [put(0, 1), claim(2, 3, "r")]),
    Case("the claim overlaps the put", phantoms, "", [put(0, 3), claim(1, 2, "r")]),
    Case("the claim overlaps the clear", phantoms, "", [put(0, 1), clear(2, 5), claim(3, 4, "r")]),
    Case("the clear has no end", phantoms, "", [put(0, 1), clear(2, None), claim(4, 5, "r")]),
    Case("the clear overlaps the put", phantoms, "", [put(0, 3), clear(1, 2), claim(4, 5, "r")]),
    Case("the put has no end", phantoms, "", [put(0, None), claim(2, 3, "r")]),
    Case(
        "each field by a put of its own",
        phantoms,
        "",
        [
            put(0, 1, fields=("x",)),
            put(2, 3, 2, fields=("y",)),
            claim(4, 5, "r", fields=("x", "y")),
        ],
    ),
    Case(
        "two tasks",
        duplicated,
        "",
        [put(0, 1), claim(2, 3, "r"), claim(4, 5, "r", task="prev_lp")],
    ),
    Case(
        "two lives",
        duplicated,
        "",
        [put(0, 1), claim(2, 3, "r"), clear(4, 5), put(6, 7, 2), claim(8, 9, "r")],
    ),
    Case(
        "two lives, all at once",
        duplicated,
        "",
        [put(0, 1), claim(2, 9, "r"), clear(3, 6), put(4, 7, 2), claim(5, 8, "r")],
    ),
    Case("claimed", lost, "", [put(0, 1), claim(2, 3, "r"), claim(4, 5)]),
    Case(
        "claimed before the overwrite",
        lost,
        "",
        [put(0, 1), claim(2, 3, "r"), put(4, 5, 2), claim(6, 7)],
    ),
    Case("the put overlaps the last claim", lost, "", [put(0, 3), claim(1, 2)]),
    Case("cleared", lost, "", [put(0, 1), clear(2, 3), claim(4, 5)]),
    Case("the clear overlaps the last claim", lost, "", [put(0, 1), clear(2, 5), claim(3, 4)]),
    Case("the last claim had no room", lost, "", [put(0, 1, ids="r s"), claim(2, 3, "s", asked=1)]),
    Case("a claim without an end may have it", lost, "", [put(0, 1), claim(2, None), claim(3, 4)]),
    Case("a put without an end proves nothing", lost, "", [put(0, None), claim(2, 3)]),
    Case("a put that failed proves nothing", lost, "", [put(0, 1, error="X"), claim(2, 3)]),
    Case("its field is not produced", lost, "", [put(0, 1, fields=("y",)), claim(2, 3)]),
    Case(
        "the claim may be of the life before",
        lost,
        "",
        [put(0, 1), claim(2, 5, "r"), clear(3, 4), put(6, 7, 2), claim(8, 9)],
    ),
    Case(
        "both tasks have it",
        cross_task,
        "",
        [put(0, 1), claim(2, 3, "r", task="prev_lp"), claim(4, 5, "r")],
    ),
    Case("nobody has it: lost", cross_task, "", [put(0, 1), claim(2, 3)]),
    Case("its own row", wrong_rows, "", [put(0, 1), get(2, 3, x=1)]),
    Case("the read overlaps the put", unwritten, "", [put(0, 3), get(1, 2, x=1)]),
    Case("old value during a put", stale_reads, "", [put(0, 1), put(2, 5, 2), get(3, 4, x=1)]),
    Case("new value during a put", stale_reads, "", [put(0, 1), put(2, 5, 2), get(3, 4, x=2)]),
    Case("either of two puts at once", stale_reads, "", [put(0, 3), put(1, 2, 2), get(4, 5, x=1)]),
    Case("the row during its clear", stale_reads, "", [put(0, 1), clear(2, 5), get(3, 4, x=1)]),
    Case(
        "an error during its clear",
        stale_reads,
        "",
        [put(0, 1), clear(2, 5), get(3, 4, MISSING)],
    ),
    Case("an error after its clear", stale_reads, "", [put(0, 1), clear(2, 3), get(4, 5, MISSING)]),
    Case("an error during its put", stale_reads, "", [put(0, 3), get(1, 2, MISSING)]),
    Case(
        "a clear that failed",
        stale_reads,
        "",
        [put(0, 1), clear(2, 3, error="X"), get(4, 5, x=1)],
    ),
    Case(
        "an overwrite that failed",
        stale_reads,
        "",
        [put(0, 1), put(2, 3, 2, error="X"), get(4, 5, x=1)],
    ),
    Case("another field is missing", stale_reads, "", [put(0, 1), get(2, 3, "KeyError", z=None)]),
    Case("both of the old put", torn, "", [put(0, 1), put(2, 5, 2), get(3, 4, x=1, y=1)]),
    Case(
        "fields of puts that wrote one each",
        torn,
        "",
        [put(0, 1), put(2, 5, 2, fields=("y",)), get(3, 4, x=1, y=2)],
    ),
    Case(
        "the second read overlaps the first",
        torn,
        "",
        [put(0, 1), put(2, 9, 2), get(3, 6, x=2), get(5, 7, y=1)],
    ),
    Case(
        "claimed during the put, then cleared",
        torn,
        "",
        [put(0, 3), claim(1, 2, "r"), clear(4, 6), get(5, 7, MISSING)],
    ),
    Case(
        "another put may have made it ready",
        torn,
        "",
        [put(0, 9, fields=("x",)), put(1, 9, 2), claim(3, 4, "r"), get(5, 6, MISSING)],
    ),
    Case(
        "with its tags",
        tags_late,
        "",
        [put(0, 1, tags={"w": 1}), claim(2, 3, "r", tags={"w": 1})],
    ),
    Case("a put without tags", tags_late, "", [put(0, 1), claim(2, 3, "r", tags={})]),
    Case(
        "a stamp after it was made",
        tags_late,
        "",
        [put(0, 1), stamp(2, 5, std=1), claim(3, 4, "r", tags={})],
    ),
    Case(
        "both stamps",
        lost_updates,
        "",
        [put(0, 1), stamp(2, 5, a=1), stamp(3, 4, b=2), claim(6, 7, "r", tags={"a": 1, "b": 2})],
    ),
    Case(
        "before the stamp",
        lost_updates,
        "",
        [put(0, 1), stamp(2, 5, a=1), claim(3, 4, "r", tags={})],
    ),
    Case(
        "either of two stamps of a key at once",
        lost_updates,
        "",
        [put(0, 1), stamp(2, 5, a=1), stamp(3, 4, a=2), claim(6, 7, "r", tags={"a": 1})],
    ),
    Case(
        "cleared during the stamp",
        lost_updates,
        "",
        [put(0, 1), stamp(2, 5, a=1), clear(3, 4), put(6, 7, 2), claim(8, 9, "r", tags={"a": 1})],
    ),
    Case("True during the put", early_status, "", [put(0, 3), status(1, 2, True)]),
    Case(
        "True during the claim",
        early_status,
        "",
        [put(0, 1), claim(2, 5, "r"), status(3, 4, True)],
    ),
    Case(
        "a claim without an end may have it",
        early_status,
        "",
        [put(0, 1), claim(2, None), status(3, 4, True)],
    ),
    Case("False with a row left", late_status, "", [put(0, 1), status(2, 3, False)]),
    Case(
        "False during the claim",
        late_status,
        "",
        [put(0, 1), claim(2, 5, "r"), status(3, 4, False)],
    ),
    Case("False with no rows", late_status, "", [status(2, 3, False)]),
    Case(
        "False during a put",
        late_status,
        "",
        [put(0, 1), claim(2, 3, "r"), put(4, 7, 2, "s"), status(5, 6, False)],
    ),
    Case(
        "a put in between",
        non_monotonic,
        "",
        [put(0, 1), claim(2, 3, "r"), status(4, 5, True), put(5, 8, 2, "s"), status(6, 7, False)],
    ),
    Case(
        "a claim in between",
        non_monotonic,
        "",
        [put(0, 1), status(2, 3, False), claim(3, 6, "r"), status(4, 5, True)],
    ),
    Case(
        "two answers at once",
        non_monotonic,
        "",
        [put(0, 1), claim(2, 5, "r"), status(3, 6, True), status(4, 7, False, "b")],
    ),
    Case(
        "cleared rows don't count",
        late_status,
        "",
        [put(0, 1), claim(2, 3, "r"), clear(4, 5), status(6, 7, False)],
    ),
    Case("a read may raise", refused, "", [get(0, 1, MISSING)]),
    Case(
        "a partition with rows need not be registered again",
        refused,
        "",
        [put(0, 1), Operation(who="o", op="register", start=2, end=3, error="ValueError: rows")],
    ),
    Case(
        "one of two puts of a row raises",
        refused_alone,
        "",
        [put(0, 2, error="Conflict"), put(1, 3, 2, ids="s r")],
    ),
    Case(
        "a put raises as its row is cleared",
        refused_alone,
        "",
        [put(0, 1), clear(2, None), put(4, 5, 2, error="Conflict")],
    ),
    Case("all returned", hung, "", [put(0, 1)]),
]


@pytest.mark.parametrize("case", BAD, ids=lambda case: f"{case.checker.__name__}: {case.name}")
def test_a_bad_history_is_found(case: Case) -> None:
    findings = list(case.checker(History(case.operations)))
    assert [found.kind for found in findings] == [case.kind] * len(findings)
    assert findings
    for found in findings:
        assert all(op in case.operations for op in found.operations)


@pytest.mark.parametrize("case", GOOD, ids=lambda case: f"{case.checker.__name__}: {case.name}")
def test_a_good_history_is_left_alone(case: Case) -> None:
    assert [found.description for found in case.checker(History(case.operations))] == []


def test_every_kind_of_anomaly_has_a_bad_history_and_an_impact() -> None:
    assert {case.kind for case in BAD} == set(IMPACT)


def test_every_checker_has_good_and_bad_histories() -> None:
    assert {case.checker for case in GOOD} == {case.checker for case in BAD}


def test_a_violation_shows_the_shortest_proof_first() -> None:
    long = [put(0, 1, ids="s"), clear(2, 3, ids="s"), claim(4, 5, "s")]
    short = [claim(6, 7, "ghost")]
    with pytest.raises(HistoryViolation) as caught:
        check_history(History([*long, *short]), "claims", null_ids, phantoms)
    violation = caught.value
    assert "phantom: 'train' claimed 'ghost', though it was never put" in str(violation)
    assert "1 more of the kind" in str(violation)
    assert IMPACT["phantom"] in str(violation)
    assert violation.lines == [
        "0.00 ms to 1000.00 ms  k  claim of up to 4 with x for 'train' -> 'ghost'",
        "(4 calls by 3 callers in all)",
    ]


def test_lines_show_only_the_row_concerned() -> None:
    operations = [
        put(0, 1, 1, ids="q r", tags={"w": 3}),
        put(2, 3, 2, ids="r s"),
        get(4, 5, x=1),
    ]
    with pytest.raises(HistoryViolation) as caught:
        check_history(History(operations), "overwrite", stale_reads)
    assert caught.value.lines == [
        "0.00 ms to 1000.00 ms  p  put 'r' and 1 more v1 of x, y tags {'w': 3} -> done",
        "2000.00 ms to 3000.00 ms  p  put 'r' and 1 more v2 of x, y -> done",
        "4000.00 ms to 5000.00 ms  g  get x of 'r' -> {'x': 1}",
        "(3 calls by 2 callers in all)",
    ]


def test_a_correct_history_is_no_violation() -> None:
    check_history(History([put(0, 1), claim(2, 3, "r")]), "claims", *{case.checker for case in BAD})


# -- saved histories -----------------------------------------------------------------------------


def test_a_saved_history_is_checked_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A race may not occur twice, but every check of its saved calls finds it."""
    operations = [put(0, 1, ids="s"), claim(2, 3, "s"), claim(4, 5, "s")]
    with pytest.raises(HistoryViolation) as caught:
        check_history(History(operations), "claims", phantoms, duplicated)
    assert caught.value.checker == "duplicated"
    file = tmp_path / "history.jsonl"
    file.write_text(to_jsonl(operations), "utf-8")
    assert check_saved([str(file), "duplicated"]) == 1
    assert str(caught.value) in capsys.readouterr().out
    assert check_saved([str(file), "phantoms"]) == 0
    assert check_saved([str(file), "nobody"]) == 2


def test_every_checker_of_the_checks_judges_saved_histories() -> None:
    assert {case.checker for case in BAD} - {LATE} == set(CHECKERS.values())
