"""A fixture that gives examples enough time, so that the machine's load does not matter."""

from __future__ import annotations

import pytest

from rlconform.certify.properties import runner


@pytest.fixture
def unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Raise the time limits of examples; only the check's own timeout remains."""
    for limit in ("PLANE_S", "SEARCH_S", "SHRINK_S"):
        monkeypatch.setattr(runner, limit, 200.0)
