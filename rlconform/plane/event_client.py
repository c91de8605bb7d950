"""``EventClient``: wraps a client and writes each of its operations into the event log.

    client = EventClient(client, writer)
    client.put_samples(...)  # plane_op invoked ── the same call ── plane_op ok, failed or unknown

What is written are keys and outcomes, never values.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import wraps
from inspect import signature
from itertools import count
from typing import Any, Literal, NamedTuple, TypeVar, cast

from rlconform.contract import DataPlaneClient
from rlconform.events import EventWriter
from rlconform.events.schema import PlaneOp

Method = TypeVar("Method", bound=Callable[..., Any])

_OPS: dict[str, Literal["put", "get", "claim", "clear"]] = {
    "put_samples": "put",
    "get_samples": "get",
    "get_data": "get",
    "claim_meta": "claim",
    "clear_samples": "clear",
}


class CallOutcome(NamedTuple):
    """How a call has ended."""

    status: Literal["ok", "failed", "unknown"]
    error: Literal["not_found", "timeout", "other"] | None = None


#: Numbers of the calls of this process.
_NUMBERS = count()


def logged(method: Method) -> Method:
    """Make an ``EventClient`` method that calls the inner client's method and writes the call."""
    name, parameters = method.__name__, signature(method)
    op = _OPS[name]

    @wraps(method)
    def call(self: EventClient, *args: Any, **kwargs: Any) -> Any:
        _, *given = parameters.bind(self, *args, **kwargs).arguments.items()
        named = dict(given)
        meta = named.get("meta")
        about: dict[str, Any] = {
            "op": op,
            "op_id": next(_NUMBERS),
            "partition": named.get("partition_id", getattr(meta, "partition_id", "")),
            "task": named.get("task_name"),
        }
        keys: Sequence[str] | None = named.get("sample_ids", getattr(meta, "sample_ids", None))
        asked = None if keys is None else list(keys)
        self._in_flight[about["op_id"]] = about
        self._writer.write(PlaneOp(**about, status="invoked", keys=asked))
        returned, done = None, False
        try:
            result = getattr(self._client, name)(**named)
            done = True
            if op == "claim":
                returned = list(result.sample_ids)
        finally:
            end = CallOutcome("ok") if done else outcome_of(sys.exception())
            self._ended(about["op_id"], end, returned)
        return result

    return cast(Method, call)


class EventClient:
    """A client that wraps another client, with the same results and exceptions.

    Closing this client closes ``client``; the writer stays open.
    """

    def __init__(self, client: DataPlaneClient, writer: EventWriter) -> None:
        self._client, self._writer = client, writer
        self._in_flight: dict[int, dict[str, Any]] = {}  # calls without an outcome, by number
        self.register_partition = client.register_partition
        self.check_consumption_status = client.check_consumption_status
        self.close = client.close

    put_samples = logged(DataPlaneClient.put_samples)
    get_samples = logged(DataPlaneClient.get_samples)
    claim_meta = logged(DataPlaneClient.claim_meta)
    get_data = logged(DataPlaneClient.get_data)
    clear_samples = logged(DataPlaneClient.clear_samples)

    def give_up_calls(self) -> None:
        """Write that the calls in flight have an unknown outcome; how they end is not written."""
        for number in list(self._in_flight):
            self._ended(number, CallOutcome("unknown", "timeout"), None)

    def _ended(self, number: int, end: CallOutcome, keys: list[str] | None) -> None:
        """Write how a call has ended, unless it was given up."""
        if (about := self._in_flight.pop(number, None)) is not None:
            self._writer.write(PlaneOp(**about, status=end.status, error=end.error, keys=keys))


def outcome_of(error: BaseException | None) -> CallOutcome:
    """Return the outcome of a call that raised.

    After a timeout or a lost connection a call may have had its effect; other errors refuse it.
    """
    match error:
        case TimeoutError():
            return CallOutcome("unknown", "timeout")
        case LookupError():
            return CallOutcome("failed", "not_found")
        case ValueError() | TypeError():
            return CallOutcome("failed", "other")
        case _:
            return CallOutcome("unknown", "other")
