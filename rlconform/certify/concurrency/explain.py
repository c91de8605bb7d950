"""From findings to what a person reads: one sentence, what it means, the shortest history."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rlconform.certify.assertions.values import ContractViolation
from rlconform.certify.concurrency.anomaly import Anomaly, Checker
from rlconform.certify.concurrency.events import Operation
from rlconform.certify.concurrency.history import History
from rlconform.certify.recording.text import shorten

#: What each verdict means for a training run.
IMPACT = {
    "null-id": "a consumer that fetches or clears by these ids fails, or silently skips the rows",
    "phantom": "the step trains on a row that the driver never made or has already dropped",
    "duplicated": "the row is trained on twice, which skews the gradient, and nothing raises",
    "lost": "the row is never trained on, and a step that waits for it stalls",
    "cross-task": "one stage starves of the rows that another one took",
    "wrong-row": "tokens of one rollout meet rewards of another; the shapes fit, nothing raises",
    "stale-read": "a worker computes on a value that the driver has already replaced or dropped",
    "torn": "one write's tokens meet another's log-probabilities; the shapes fit, nothing raises",
    "tags-late": "a filter on the tags keeps or drops the row blindly, whatever its weight version",
    "lost-update": "a filter misses the stamp, and keeps or drops the row blindly",
    "early-status": "the driver clears behind this answer: rows go that nobody trained on",
    "late-status": "a driver that waits for this answer never ends its step",
    "non-monotonic": "driver and workers disagree on whether the step is over",
    "refused": "the process that called loses its step, with nothing wrong on its side",
    "hung": "the process that called waits for ever, and with it the step",
}


class HistoryViolation(ContractViolation):
    """No order of the calls explains what came.

    Attributes:
        lines: The shortest history that shows it, one event a line.
        race: Name of the race, see ``scripts``.
        checker: Name of the checker that found it, see ``judge_again``.
    """

    def __init__(
        self, findings: Sequence[Anomaly], history: History, race: str, checker: str
    ) -> None:
        first = findings[0]
        others = f" ({len(findings) - 1} more of the kind)" if len(findings) > 1 else ""
        super().__init__(
            "an order of the calls that explains what came of each",
            f"none that does. {first.verdict}: {first.said}{others}. In training: "
            f"{IMPACT[first.verdict]}",
        )
        self.lines = shown(first, history)
        self.race = race
        self.checker = checker


def check_history(history: History, race: str, *checkers: Checker) -> None:
    """Raise a violation for the first of ``checkers`` that finds anything."""
    for checker in checkers:
        findings = list(checker(history))
        if findings:
            shortest = sorted(findings, key=lambda f: (len(f.events), f.events[0].start))
            name = getattr(checker, "__name__", "")
            raise HistoryViolation(shortest, history, race, name)


def shown(first: Anomaly, history: History) -> list[str]:
    """The finding's events in order, with times in ms from the first one's start."""
    zero = first.events[0].start
    lines = [line(event, zero, first.row) for event in first.events]
    callers = len({event.who for event in history.events})
    return [*lines, f"({len(history.events)} calls by {callers} callers in all)"]


def line(event: Operation, zero: float = 0.0, row: Any = None) -> str:
    """One event, with what concerns ``row`` where it has several."""
    end = "never ended" if event.end is None else f"{1000 * (event.end - zero):.2f} ms"
    return f"{1000 * (event.start - zero):.2f} ms to {end}  {event.who}  {_call(event, row)}"


def _call(event: Operation, row: Any) -> str:
    fields = ", ".join(event.fields)
    match event.op:
        case "put":
            what = f"put {_rows(event, row)}"
            what += f" v{event.version} of {fields}" if fields else ""
            what += f" tags {_of(event.tags, event, row)}" if event.tags else ""
        case "claim":
            what = f"claim of up to {event.asked} with {fields} for {event.task!r}"
        case "get":
            what = f"get {fields} of {_rows(event, row)}"
        case "clear":
            what = f"clear {_rows(event, row)}"
        case "status":
            what = f"status of {event.task!r}"
        case "register":
            what = f"register fields {fields}"
    return f"{what} -> {_came(event, row)}"


def _came(event: Operation, row: Any) -> str:
    if event.error:
        return f"raised {event.error}"
    if event.end is None:
        return "nothing came"
    match event.op:
        case "claim":
            tags = _of(event.tags, event, row)
            came = _rows(event, row) if event.ids else "no rows"
            return f"{came} tags {tags}" if tags and row is not None else came
        case "get":
            return shorten(str(_of(event.values, event, row)), 300)
        case "status":
            return str(event.answer)
    return "done"


def _rows(event: Operation, row: Any) -> str:
    if row in event.ids:
        others = len(event.ids) - 1
        return f"{row!r}" + (f" and {others} more" if others else "")
    return shorten(str(list(event.ids)), 100)


def _of(held: Sequence[Any] | None, event: Operation, row: Any) -> Any:
    """What the event holds for the row; all of it where it is about no row."""
    if held is not None and row in event.ids:
        return held[event.ids.index(row)]
    return list(held or ())
