"""A server that forks the actors of all runs, as importing torch in each takes seconds."""

from __future__ import annotations

import pytest

from rlconform.backends.ray_worker_server import start_separate_server


@pytest.fixture(scope="session", autouse=True)
def worker_server() -> None:
    """Start the server; its forks are workers of Ray as any others."""
    start_separate_server()
