"""An assertion for malformed calls: they must raise or have a harmless result, and never hang."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

from rlconform.certify.assertions.expect import ContractViolation, ShouldViolation, expect
from rlconform.certify.recording.shorten import shorten
from rlconform.certify.threads import BackgroundCall


def expect_harmless(
    call: Callable[[], object],
    what: str,
    timeout_s: float,
    is_harmless: Callable[[Any], bool] = lambda _result: True,
) -> None:
    """Expect a malformed ``call`` to raise in time; only warn of a result that ``is_harmless``."""
    try:
        result = BackgroundCall(call, what).result(timeout_s)
    except ContractViolation:
        raise  # the call hangs
    except Exception:  # noqa: BLE001 - a rejection of any type is right
        return
    shown = shorten(repr(result))
    expect(is_harmless(result), f"{what} to be rejected with an error", shown)
    text = f"{what}: expected an error, so that a mistake is noticed; got {shown}"
    warnings.warn(text, ShouldViolation, stacklevel=2)
