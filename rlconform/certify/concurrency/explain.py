"""Turn anomalies into a failure that states what happened, its impact and the shortest history."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rlconform.certify.assertions.expect import ContractViolation
from rlconform.certify.concurrency.anomaly import Anomaly, Checker, shortest_first
from rlconform.certify.concurrency.history import History
from rlconform.certify.concurrency.operation import Operation
from rlconform.certify.recording.shorten import shorten

#: What each kind of anomaly does to a training run.
IMPACT = {
    "null-id": "a consumer that fetches or clears by these ids fails, or silently skips the rows",
    "phantom": "the step trains on a row that the driver never made or has already dropped",
    "duplicated": "the row is trained on twice, which skews the gradient, and nothing raises",
    "lost": "the row is never trained on, and a step that waits for it stalls",
    "cross-task": "one task starves of the rows that another one took",
    "wrong-row": "tokens of one rollout meet rewards of another; the shapes fit, nothing raises",
    "stale-read": "a worker computes on a value that the driver has already replaced or dropped",
    "torn": "one write's tokens meet another's log-probabilities; the shapes fit, nothing raises",
    "tags-late": "a filter on the tags keeps or drops the row blindly, whatever its weight version",
    "lost-update": "a filter misses the tag, and keeps or drops the row blindly",
    "early-status": "a driver that clears after this answer drops rows that nobody trained on",
    "late-status": "a driver that waits for this answer never ends its step",
    "non-monotonic": "driver and workers disagree on whether the step is over",
    "refused": "the process that called loses its step though it did nothing wrong",
    "hung": "the process that called waits for ever, and with it the step",
    "late": "every GPU of the run waits for it, and a watchdog may end the run",
}


class HistoryViolation(ContractViolation):
    """No order of the calls explains their results."""

    def __init__(
        self, anomalies: Sequence[Anomaly], history: History, race: str, checker: str
    ) -> None:
        first = anomalies[0]
        others = f" ({len(anomalies) - 1} more of the kind)" if len(anomalies) > 1 else ""
        super().__init__(
            "an order of the calls that explains their results",
            f"none that does. {first.kind}: {first.description}{others}. In training: "
            f"{IMPACT[first.kind]}",
        )
        self.lines = history_lines(first, history)  # the shortest history that shows it
        self.race = race  # the race's name in ``race_script``, or "" if no script repeats it
        self.checker = checker  # name of the checker in ``check_saved``


def check_history(history: History, race: str, *checkers: Checker) -> None:
    """Raise a ``HistoryViolation`` for the first of ``checkers`` that finds an anomaly."""
    for checker in checkers:
        if shortest := shortest_first(checker(history)):
            name = getattr(checker, "__name__", "")
            raise HistoryViolation(shortest, history, race, name)


def history_lines(first: Anomaly, history: History) -> list[str]:
    """Describe the anomaly's operations, with times in ms from the start of the first operation."""
    zero = first.operations[0].start
    lines = [operation_line(op, zero, first.row) for op in first.operations]
    callers = len({op.who for op in history.operations})
    return [*lines, f"({len(history.operations)} calls by {callers} callers in all)"]


def operation_line(op: Operation, zero: float, row: Any) -> str:
    """Describe one operation in a line; of its several rows, show the values of ``row`` only."""
    end = "never ended" if op.end is None else f"{1000 * (op.end - zero):.2f} ms"
    return f"{1000 * (op.start - zero):.2f} ms to {end}  {op.who}  {_call(op, row)}"


def _call(op: Operation, row: Any) -> str:
    fields = ", ".join(op.fields)
    match op.op:
        case "put":
            call = f"put {_rows(op, row)}"
            call += f" v{op.version} of {fields}" if fields else ""
            call += f" tags {_values_of(op.tags, op, row)}" if op.tags else ""
        case "claim":
            call = f"claim of up to {op.asked} with {fields} for {op.task!r}"
        case "get":
            call = f"get {fields} of {_rows(op, row)}"
        case "clear":
            call = f"clear {_rows(op, row)}"
        case "status":
            call = f"status of {op.task!r}"
        case "register":
            call = f"register fields {fields}"
    return f"{call} -> {_result(op, row)}"


def _result(op: Operation, row: Any) -> str:
    if op.error:
        return f"raised {op.error}"
    if op.end is None:
        return "no answer"
    match op.op:
        case "claim":
            tags = _values_of(op.tags, op, row)
            rows = _rows(op, row) if op.ids else "no rows"
            return f"{rows} tags {tags}" if tags and row is not None else rows
        case "get":
            return shorten(str(_values_of(op.values, op, row)), 300)
        case "status":
            return str(op.answer)
    return "done"


def _rows(op: Operation, row: Any) -> str:
    if row in op.ids:
        others = len(op.ids) - 1
        return f"{row!r}" + (f" and {others} more" if others else "")
    return shorten(str(list(op.ids)), 100)


def _values_of(values: Sequence[Any] | None, op: Operation, row: Any) -> Any:
    """Return the row's entry of ``values``, or all entries if the operation lacks the row."""
    if values is not None and row in op.ids:
        return values[op.ids.index(row)]
    return list(values or ())
