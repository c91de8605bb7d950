"""Malformed calls: they are rejected, or read in a way that harms nobody, and never hang."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

from rlconform.certify.assertions.values import ContractViolation, ShouldViolation, expect
from rlconform.certify.recording.text import shorten
from rlconform.certify.threads import BackgroundCall


def expect_harmless(
    call: Callable[[], object],
    what: str,
    timeout_s: float,
    is_harmless: Callable[[Any], bool] = lambda _came: True,
) -> None:
    """A malformed ``call`` raises in time; one that is read all the same is a blemish.

    Raises:
        ContractViolation: It hangs, or it answers with what is not ``is_harmless``.
    """
    waiting = BackgroundCall(call, what)
    try:
        came = waiting.result(timeout_s)
    except ContractViolation:
        raise  # it did not come back
    except Exception:  # noqa: BLE001 - a rejection of any type is right
        return
    shown = shorten(repr(came))
    expect(is_harmless(came), f"{what} to be rejected with an error", shown)
    warnings.warn(
        f"{what}: an error is due, so that a mistake is noticed; the plane answered {shown}",
        ShouldViolation,
        stacklevel=2,
    )
