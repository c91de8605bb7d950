"""The first Ctrl-C ends the work; no later one loses what it has found."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest

from rlconform.cli.interrupts import SIGNALS, Interrupts


@pytest.fixture(autouse=True)
def usual_handlers() -> Iterator[None]:
    """Handle signals as Python does by itself: a shell's background jobs ignore Ctrl-C."""
    before = {one: signal.getsignal(one) for one in SIGNALS}
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    yield
    for one, handler in before.items():
        signal.signal(one, handler)


def press(one: signal.Signals) -> None:
    os.kill(os.getpid(), one)


@pytest.mark.parametrize("one", SIGNALS)
def test_the_first_is_raised_and_later_ones_are_not(one: signal.Signals) -> None:
    with Interrupts():
        with pytest.raises(KeyboardInterrupt):
            press(one)
        for other in SIGNALS:
            press(other)


def test_none_is_raised_once_they_are_held() -> None:
    with Interrupts() as interrupts:
        interrupts.hold()
        press(signal.SIGINT)


def test_handlers_come_back_and_what_is_ignored_stays_so() -> None:
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    handler = signal.getsignal(signal.SIGINT)
    try:
        with Interrupts():
            assert signal.getsignal(signal.SIGTERM) is signal.SIG_IGN
            assert signal.getsignal(signal.SIGINT) is not handler
        assert signal.getsignal(signal.SIGINT) is handler
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGTERM, before)
