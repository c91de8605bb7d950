"""Concurrent calls start together, return results in order, and cannot hang a check."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from rlconform.certify.assertions.expect import ContractViolation
from rlconform.certify.threads import BackgroundCall, run_concurrently

PATIENCE_S = 10.0


@pytest.fixture
def blocker() -> Iterator[threading.Event]:
    """An event that is set only after the test."""
    event = threading.Event()
    yield event
    event.set()


def test_results_come_in_the_order_of_the_calls() -> None:
    second_done = threading.Event()

    def first() -> str:
        assert second_done.wait(PATIENCE_S)
        return "first"

    def second() -> str:
        second_done.set()
        return "second"

    assert run_concurrently([first, second], PATIENCE_S) == ["first", "second"]


def test_calls_run_at_the_same_time() -> None:
    everybody = threading.Barrier(8, timeout=PATIENCE_S)
    assert sorted(run_concurrently([everybody.wait] * 8, PATIENCE_S)) == list(range(8))


def test_no_calls_give_no_results() -> None:
    assert run_concurrently([], PATIENCE_S) == []


@pytest.mark.parametrize("error", [KeyError("a"), ContractViolation("a", "b")])
def test_a_calls_own_error_is_raised(error: Exception) -> None:
    def call() -> None:
        raise error

    with pytest.raises(type(error)) as raised:
        run_concurrently([lambda: 1, call], PATIENCE_S)
    assert raised.value is error


def test_an_exit_of_a_call_is_a_violation() -> None:
    def call() -> None:
        raise SystemExit(3)

    with pytest.raises(ContractViolation, match="got SystemExit: 3"):
        run_concurrently([lambda: 1, call], PATIENCE_S)


def test_a_call_that_hangs_is_a_violation_within_the_deadline(blocker: threading.Event) -> None:
    started = time.monotonic()
    with pytest.raises(ContractViolation, match=r"reader 1 to come back within .*it still runs"):
        run_concurrently([lambda: 1, blocker.wait, blocker.wait], 1.0, "reader")
    assert time.monotonic() - started < PATIENCE_S


def test_a_call_that_hangs_does_not_hide_an_error(blocker: threading.Event) -> None:
    """The error of one thread is more useful than the timeout of another that waits for it."""

    def call() -> None:
        raise KeyError("the cause")

    with pytest.raises(KeyError, match="the cause"):
        run_concurrently([blocker.wait, call], 1.0)


def test_a_background_call_can_be_asked_again(blocker: threading.Event) -> None:
    call = BackgroundCall(lambda: blocker.wait(PATIENCE_S), "the call")
    with pytest.raises(ContractViolation, match=r"the call to come back within 0\.01 s"):
        call.result(0.01)
    assert not call.finished.is_set()
    blocker.set()
    assert call.result(PATIENCE_S) is True
    assert call.result(0) is True


def test_a_background_call_tells_how_long_it_took() -> None:
    moments: list[float] = []

    def call() -> None:
        moments.append(time.monotonic())
        threading.Event().wait(0.05)
        moments.append(time.monotonic())

    background = BackgroundCall(call, "the call")
    background.result(PATIENCE_S)
    assert background.seconds >= moments[1] - moments[0] >= 0.05


def test_a_gated_call_starts_with_the_gate() -> None:
    gate, ran = threading.Event(), threading.Event()
    call = BackgroundCall(lambda: ran.set() or "ran", "the call", gate)
    assert not ran.wait(0.5)
    opened = time.monotonic()
    gate.set()
    assert call.result(PATIENCE_S) == "ran"
    assert call.seconds <= time.monotonic() - opened  # the wait for the gate does not count


def test_a_hanging_call_does_not_keep_the_process_alive(blocker: threading.Event) -> None:
    before: set[Any] = set(threading.enumerate())
    BackgroundCall(blocker.wait, "a call that hangs")
    (thread,) = set(threading.enumerate()) - before
    assert thread.daemon
    assert thread.name == "a call that hangs"
