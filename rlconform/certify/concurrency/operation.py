"""``Operation``: one client call as its caller saw it. A history is a list of operations.

Times are seconds of ``time.monotonic()``, one clock for all processes of a host. An operation
without an end is *indeterminate*: the call timed out, hung, or its process died. It may have taken
effect at any time after its start, or never. So may a call that raised because a process of the
plane was lost: its outcome is *unknown* too.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal

import msgspec

from rlconform._files import excerpt, parse_json
from rlconform.contract import ConfigError, Tags

Op = Literal["register", "put", "claim", "get", "clear", "status"]

#: What a caller knows of its call: it worked, it was refused, or it may have happened or not.
CallOutcome = Literal["ok", "failed", "unknown"]

#: Builtin errors, and the contract's, that refuse a call before it takes effect. Any other error
#: may come after the effect, for example from a connection that broke.
_REFUSALS = frozenset({"LookupError", "ValueError", "TypeError", "CapacityExceeded"})

#: What a read row holds: the version of the put that wrote it, or a description of what else it is.
Value = int | str


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One client call."""

    who: str  # the workload that called
    op: Op
    start: float  # s
    end: float | None = None  # s; None for a call that did not return
    ids: tuple[Any, ...] = ()  # of its rows; None stands for a claimed id that is no string
    fields: tuple[str, ...] = ()  # written, read, required or registered
    task: str = ""  # of a claim or a status call
    asked: int = 0  # number of rows that a claim asked for
    version: int | None = None  # that a put wrote, unique among the puts of a history
    tags: tuple[Tags, ...] | None = None  # one dict per id, written by a put or claimed
    values: tuple[dict[str, Value], ...] = ()  # result of a get: for each id, values by field
    answer: bool | None = None  # result of a status call
    error: str = ""  # type and text of the exception
    error_bases: tuple[str, ...] = ()  # names of the exception's classes, its own first
    killed: bool = False  # the caller's process was killed during the call
    waits: float = 0.0  # s that a blocking claim was told to wait

    @property
    def ok(self) -> bool:
        """Whether the call returned without an error."""
        return self.end is not None and not self.error

    @property
    def outcome(self) -> CallOutcome:
        """What the caller knows of the call."""
        if self.ok:
            return "ok"
        refused = self.end is not None and _REFUSALS.intersection(self.error_bases)
        return "failed" if refused else "unknown"

    @property
    def until(self) -> float:
        """When the call has surely taken effect; infinity if it failed or did not return."""
        return self.end if self.end is not None and not self.error else math.inf

    @property
    def latest(self) -> float:
        """When the call ended for its caller; infinity for a call that did not return."""
        return math.inf if self.end is None else self.end


_DEFAULTS = {f.name: f.default for f in fields(Operation)}
_TUPLES = ("ids", "fields", "tags", "values", "error_bases")


def to_jsonl(operations: Iterable[Operation]) -> str:
    """Return the operations as lines of JSON, without fields that have their default value."""
    return "".join(json.dumps(as_dict(op), default=repr) + "\n" for op in operations)


def from_jsonl(text: str) -> list[Operation]:
    """Return the operations of a saved history; ``ConfigError`` names a line that has none."""
    lines = enumerate(text.splitlines(), 1)
    return [_parse(line, f"line {number}") for number, line in lines]


def as_dict(op: Operation) -> dict[str, Any]:
    """Return the operation as plain data, without fields that have their default value."""
    return {name: value for name, value in asdict(op).items() if value != _DEFAULTS[name]}


def from_dict(saved: dict[str, Any]) -> Operation:
    """Return the operation that ``as_dict`` described."""
    tuples = {name: tuple(saved[name]) for name in _TUPLES if saved.get(name) is not None}
    return Operation(**(saved | tuples))


def _parse(line: str, where: str) -> Operation:
    """Return the operation in a line; ``ConfigError`` if there is none."""
    saved = parse_json(line, where, finite=False)
    try:
        operation = msgspec.convert(saved, Operation)
    except (msgspec.ValidationError, UnicodeEncodeError) as error:
        raise ConfigError(f"{where}: not an operation: {excerpt(str(error))}") from error
    if unknown := saved.keys() - _DEFAULTS.keys():
        raise ConfigError(f"{where}: an operation has no {excerpt(', '.join(unknown))}")
    if not all(isinstance(one, str | None) for one in operation.ids):
        raise ConfigError(f"{where}: expected ids of rows as strings")
    return operation
