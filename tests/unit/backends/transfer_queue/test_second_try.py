"""A transfer that gets no answer is made a second time; any other error ends it."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from rlconform.backends.transfer_queue import SIMPLE
from rlconform.backends.transfer_queue.connection import NoAnswer
from rlconform.backends.transfer_queue.store import _TRIES_S, Store
from rlconform.contract import PlaneUnavailable


class ScriptedCalls:
    """Ends each call with the next outcome, and notes its deadline."""

    def __init__(self, *outcomes: Exception | str) -> None:
        self._outcomes = list(outcomes)
        self.deadlines: list[float] = []

    def run(self, call: Any, seconds: float) -> str:
        asyncio.run(call)
        self.deadlines.append(seconds)
        outcome = self._outcomes.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome


async def transfer() -> None:
    """A transfer of the package."""


def result_of(calls: ScriptedCalls, seconds: float = 0.0) -> str:
    connection = SimpleNamespace(client=SimpleNamespace(storage_manager=None))
    store = Store(cast(Any, connection), cast(Any, calls))
    return cast(str, store._transfer(lambda _: cast(Any, transfer()), seconds))


def test_a_transfer_without_an_answer_is_made_again() -> None:
    calls = ScriptedCalls(NoAnswer("no answer"), "done")
    assert result_of(calls, 3.0) == "done"
    assert calls.deadlines == [seconds + 3.0 for seconds in _TRIES_S]


def test_a_second_transfer_without_an_answer_is_an_error() -> None:
    with pytest.raises(NoAnswer):
        result_of(ScriptedCalls(NoAnswer("first"), NoAnswer("second")))


def test_a_dead_plane_is_not_tried_again() -> None:
    calls = ScriptedCalls(PlaneUnavailable("a process of TransferQueue is dead"))
    with pytest.raises(PlaneUnavailable, match="dead"):
        result_of(calls)
    assert len(calls.deadlines) == 1


def test_both_tries_end_before_an_operation_has_to() -> None:
    assert sum(_TRIES_S) < SIMPLE.timeouts.operation
