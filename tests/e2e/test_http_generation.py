"""Asynchronous runs whose rows come from servers over HTTP, also when one of them fails."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

from rlconform.check_run.judge import judge_run
from rlconform.contract import DataPlaneClient
from rlconform.grpo.config import MasterConfig, load_config
from rlconform.grpo.plane_traffic import Attach

pytestmark = [
    pytest.mark.timeout(180),
    pytest.mark.parametrize("plane_name", ["ray_store", "transfer_queue/simple"], scope="module"),
]

_SERVER = Path(__file__).parents[2] / "fixtures/servers/tiny_completions.py"


class Server:
    """A server in a process of its own, which begins with other weights than the policy's."""

    def __init__(self, *options: str) -> None:
        command = [sys.executable, str(_SERVER), "--seed", "77", *options]
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"}
        )
        assert self.process.stdout is not None
        self.url = self.process.stdout.readline().strip()

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def servers() -> Iterator[list[Server]]:
    started = [Server(), Server("--chunk", "1", "--end-after", "60")]
    yield started
    for server in started:
        server.kill()


def config(servers: list[Server], folder: Path, *overrides: str) -> MasterConfig:
    urls = [server.url for server in servers]
    http = f"{{endpoints: {urls}, backoff_s: 0.05, connect_timeout_s: 2.0}}"
    return load_config(
        "tiny_llama_copy_async",
        [
            "cluster.dp_size=2", "grpo.max_num_steps=5", "generation.backend=http",
            f"generation.http={http}", f"logger.events_dir={folder / 'events'}", *overrides,
        ],
    )  # fmt: skip


@pytest.mark.smoke
@pytest.mark.parametrize("mode", ["partial_rollouts", "in_flight_weight_updates"])
def test_a_run_goes_on_with_the_servers_that_are_left(
    runs: Any,
    owner: DataPlaneClient,
    attach: Attach,
    servers: list[Server],
    tmp_path: Path,
    mode: str,
) -> None:
    """The second server ends in the middle of a response, and never comes back."""
    run = config(servers, tmp_path, f"async_rl.{mode}=true")
    runs.plane(run, owner, attach)
    assert servers[1].process.wait(30) == 1
    report = judge_run([tmp_path / "events"])
    assert report.not_clean() == []
    assert report.overview.fates["trained"] == 5 * run.grpo.num_prompts_per_step


@pytest.mark.timeout(600)
def test_a_policy_learns_from_rows_of_a_server(
    runs: Any, owner: DataPlaneClient, attach: Attach, tmp_path: Path
) -> None:
    """All rows come over HTTP, from weights that the server gets after each step."""
    server = Server()
    try:
        run = config([server], tmp_path, "grpo.max_num_steps=80")
        rewards = runs.plane(run, owner, attach).series("train/reward")
    finally:
        server.kill()
    assert fmean(rewards[:10]) < 0.45
    assert fmean(rewards[-10:]) > 0.9
    report = judge_run([tmp_path / "events"])
    assert report.not_clean() == []
    assert report.overview.fates["trained"] == 80 * run.grpo.num_prompts_per_step
