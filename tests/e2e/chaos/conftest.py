"""A server that forks the actors of all runs; importing torch in each takes seconds."""

from __future__ import annotations

import pytest

from rlconform.backends.ray_worker_server import NEEDED_BY_WORKERS, start_separate_server

#: What the actors of a run import, none of it of a plane.
_ACTORS = (
    "rlconform.grpo.rollout.plane_worker",
    "rlconform.grpo.workers.plane_policy_worker",
    "rlconform.grpo.rewards.reward_worker",
)


@pytest.fixture(scope="session", autouse=True)
def worker_server() -> None:
    """Start the server; its forks are workers of Ray as any others."""
    start_separate_server((*NEEDED_BY_WORKERS, *_ACTORS))
