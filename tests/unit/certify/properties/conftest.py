"""A fixture that gives examples enough time on a busy machine."""

from __future__ import annotations

import pytest

from rlconform.certify.properties import runner
from rlconform.certify.properties.long_runs import run as long_run


@pytest.fixture
def unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Raise the time limits of examples; only the timeout of the check remains."""
    for limit in ("PLANE_S", "SEARCH_S", "SHRINK_S"):
        monkeypatch.setattr(runner, limit, 200.0)
    monkeypatch.setattr(long_run, "SEARCH_S", 200.0)
