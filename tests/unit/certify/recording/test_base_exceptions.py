"""What ``except Exception`` does not catch is the plane's violation, wherever a plane raises it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from rlconform.backends.memory import MemoryClient
from rlconform.certify.assertions.expect import ContractViolation, expect_rejection
from rlconform.certify.isolation.client_actor import answer_of
from rlconform.certify.isolation.remote_client import rebuilt_error
from rlconform.certify.recording.base_exceptions import is_exception
from rlconform.certify.recording.recorder import MethodGivenUp, Recording
from rlconform.certify.recording.recording_client import RecordingClient
from rlconform.certify.target import open_client
from rlconform.certify.threads import BackgroundCall
from rlconform.contract import Target


class Own(BaseException):
    """An error of a plane that is no Exception."""


RAISED = (SystemExit(3), GeneratorExit("x"), Own("mine"))
named = pytest.mark.parametrize("error", RAISED, ids=[type(one).__name__ for one in RAISED])


def raising(error: BaseException) -> Callable[..., Any]:
    def call(*_: object, **__: object) -> None:
        raise error

    return call


def recorded(error: BaseException, interruptible: bool = True) -> tuple[Any, Recording]:
    client = MemoryClient()
    client.get_samples = raising(error)  # type: ignore[method-assign]
    recording = Recording(interruptible=interruptible)
    return RecordingClient(client, recording), recording


@named
def test_a_call_of_a_check_fails_it(error: BaseException) -> None:
    client, recording = recorded(error)
    with pytest.raises(ContractViolation, match="get_samples to return, or to raise an Exception"):
        client.get_samples(["a"], "p", ["x"])
    assert type(error).__name__ in recording.lines()[-1]


@named
def test_it_is_no_rejection(error: BaseException) -> None:
    client, _ = recorded(error)
    with pytest.raises(ContractViolation, match=type(error).__name__):
        expect_rejection(lambda: client.get_samples(["a"], "p", ["x"]), "an unknown id")


def test_a_person_may_interrupt_a_check_but_not_one_of_the_runner() -> None:
    client, _ = recorded(KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        client.get_samples(["a"], "p", ["x"])
    client, _ = recorded(KeyboardInterrupt(), interruptible=False)
    with pytest.raises(ContractViolation, match="got KeyboardInterrupt"):
        client.get_samples(["a"], "p", ["x"])


@pytest.mark.parametrize("error", [*RAISED, KeyboardInterrupt()])
def test_a_call_in_a_thread_fails_the_check(error: BaseException) -> None:
    call = BackgroundCall(raising(error), "a call")
    with pytest.raises(ContractViolation, match="a call to return, or to raise an Exception"):
        call.result(10)


def test_a_skip_of_the_kit_in_a_thread_stays_one() -> None:
    with pytest.raises(MethodGivenUp):
        BackgroundCall(raising(MethodGivenUp("it hung")), "a call").result(10)


@named
def test_a_plane_that_raises_it_when_opened_does_not_open(error: BaseException) -> None:
    target = Target(name="t", open=raising(error))
    with pytest.raises(ContractViolation, match="open to return, or to raise an Exception"):
        open_client(target, {}, True)


@named
def test_another_process_names_it(error: BaseException) -> None:
    ok, (name, bases, _) = answer_of(raising(error))
    assert (ok, name) == (False, type(error).__name__)
    assert not is_exception(bases)


def test_an_exception_of_another_process_is_rebuilt() -> None:
    _, (name, bases, text) = answer_of(raising(KeyError("k")))
    assert is_exception(bases)
    assert isinstance(rebuilt_error(name, bases, text), KeyError)
