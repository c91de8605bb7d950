"""``Operation``: one client call as its caller saw it; a history is a list of them, one JSON each.

Times are ``time.monotonic()`` seconds: one clock for all processes of a host. An event without an
end is *indeterminate*: the call timed out, hung, or its process died; its effect may have come at
any time after its start, or never.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal

from rlconform.contract import Tags

Op = Literal["register", "put", "claim", "get", "clear", "status"]

#: What a row that was read holds: the version of the put that wrote it, or, in words, what else.
Value = int | str


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One call.

    Attributes:
        who: The process or thread that called.
        op: The method, shortly.
        start, end: s; the end is None for a call that did not come back.
        ids: Rows written, read or cleared; of a claim those that came, with None
            for what is no text.
        fields: Fields written, read, required or registered.
        task: Of a claim or a status.
        asked: Rows that a claim asked for.
        version: What a put wrote, unique among the puts of a history.
        tags: One dict for each id: written by a put, come with a claim; None where there were none.
        values: Of a get, one dict for each id: field to value.
        answer: Of a status.
        error: Type and text of what it raised, or "".
    """

    who: str
    op: Op
    start: float
    end: float | None = None
    ids: tuple[Any, ...] = ()
    fields: tuple[str, ...] = ()
    task: str = ""
    asked: int = 0
    version: int | None = None
    tags: tuple[Tags, ...] | None = None
    values: tuple[dict[str, Value], ...] = ()
    answer: bool | None = None
    error: str = ""

    @property
    def ok(self) -> bool:
        """Whether it came back without an error."""
        return self.end is not None and not self.error

    @property
    def until(self) -> float:
        """When its effect is certain: never, for a call that failed or did not come back."""
        return self.end if self.end is not None and not self.error else math.inf

    @property
    def latest(self) -> float:
        """When it was over for its caller; never, for a call that did not come back."""
        return math.inf if self.end is None else self.end


_DEFAULTS = {f.name: f.default for f in fields(Operation)}
_TUPLES = ("ids", "fields", "tags", "values")


def to_jsonl(events: Iterable[Operation]) -> str:
    """The events as lines of JSON, without what is left at its default."""
    return "".join(json.dumps(_said(event), default=repr) + "\n" for event in events)


def from_jsonl(text: str) -> list[Operation]:
    """The events of a saved history."""
    return [_event(json.loads(line)) for line in text.splitlines()]


def _said(event: Operation) -> dict[str, Any]:
    return {name: held for name, held in asdict(event).items() if held != _DEFAULTS[name]}


def _event(said: dict[str, Any]) -> Operation:
    lists = {name: tuple(said[name]) for name in _TUPLES if said.get(name) is not None}
    return Operation(**(said | lists))
