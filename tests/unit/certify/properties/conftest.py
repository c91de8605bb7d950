"""Time for all examples, so that what is found doesn't depend on how busy the machine is."""

from __future__ import annotations

import pytest

from rlconform.certify.properties import runner


@pytest.fixture
def unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """No example is left out for want of time, where the check's own timeout is long enough."""
    for limit in ("PLANE_S", "SEARCH_S", "SHRINK_S"):
        monkeypatch.setattr(runner, limit, 200.0)
