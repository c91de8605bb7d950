"""Runs with router replay through real planes: equal to those in memory, and proven by a trace."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rlconform.contract import ConfigError, DataPlaneClient
from rlconform.grpo.compare_runs import differences
from rlconform.grpo.config import MasterConfig, load_config
from rlconform.grpo.plane_traffic import Attach
from rlconform.grpo.router_replay.check import TraceVerdict, check_trace
from rlconform.grpo.router_replay.trace import TRACE_VARIABLE
from rlconform.grpo.router_replay.trace_records import read_trace

pytestmark = pytest.mark.timeout(300)

STEPS = 3
REPLAY = "policy.router_replay.enabled=true"
PLANES = ("ray_store", "transfer_queue/simple")
#: Engines without the training's weights: their routers choose other experts than training would.
OFF_POLICY = "policy.train_global_batch_size=8"


@pytest.fixture(scope="module", params=PLANES)
def plane_name(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


def proven(folder: Path) -> TraceVerdict:
    """Judge a trace that must be right."""
    verdict = check_trace(read_trace(folder))
    assert verdict.failures == ()
    return verdict


@pytest.mark.parametrize(
    "options",
    [
        pytest.param((), id="padded", marks=pytest.mark.smoke),
        pytest.param(("policy.packing.mode=sequence_packing",), id="packed"),
        pytest.param(
            ("policy.packing.mode=dynamic_batching", "policy.activation_checkpointing=true"),
            id="recomputed",
        ),
    ],
)
def test_a_replayed_run_is_the_run_in_memory(
    runs: Any,
    small: Callable[..., MasterConfig],
    owner: DataPlaneClient,
    attach: Attach,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    options: tuple[str, ...],
) -> None:
    config = small("tiny_moe_copy", f"grpo.max_num_steps={STEPS}", REPLAY, *options)
    in_memory = runs.legacy(config)
    monkeypatch.setenv(TRACE_VARIABLE, str(tmp_path))
    through_plane = runs.plane(config, owner, attach)
    assert differences(in_memory, through_plane) == []
    assert all(norm > 0 for norm in through_plane.series("train/grad_norm"))
    verdict = proven(tmp_path)
    assert verdict.rows == STEPS * config.grpo.rows_per_step
    stages = {record.stage for record in read_trace(tmp_path) if record.kind == "replayed"}
    assert stages == {"prev_logprobs", "train"}


def test_replay_changes_a_run_whose_weights_move_within_a_step(
    runs: Any, small: Callable[..., MasterConfig], owner: DataPlaneClient, attach: Attach
) -> None:
    """Several updates per step: later ones have other weights than the engine had."""
    options = ("tiny_moe_copy", "grpo.max_num_steps=3", OFF_POLICY, "policy.optimizer.lr=0.01")
    replayed = runs.plane(small(*options, REPLAY), owner, attach)
    free = runs.plane(small(*options), owner, attach)
    assert replayed.series("train/loss") != free.series("train/loss")


def test_an_asynchronous_run_one_version_behind_is_proven(
    runs: Any,
    owner: DataPlaneClient,
    attach: Attach,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    steps = 6
    config = load_config(
        "tiny_llama_copy_async",
        [
            "policy.model_name=tiny-qwen3-moe",
            "cluster.dp_size=2",
            f"grpo.max_num_steps={steps}",
            "async_rl.sampler={name: in_order, max_lookahead_versions: 1}",
            "async_rl.partial_rollouts=true",
            REPLAY,
        ],
    )
    monkeypatch.setenv(TRACE_VARIABLE, str(tmp_path))
    run = runs.plane(config, owner, attach)
    assert max(run.series("staleness/total/max")) == 1
    assert proven(tmp_path).rows == steps * config.grpo.rows_per_step


def test_a_trace_without_replay_is_refused(
    runs: Any,
    small: Callable[..., MasterConfig],
    owner: DataPlaneClient,
    attach: Attach,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(TRACE_VARIABLE, str(tmp_path))
    with pytest.raises(ConfigError, match=r"needs policy\.router_replay\.enabled"):
        runs.plane(small("tiny_moe_copy"), owner, attach)
    assert not list(tmp_path.iterdir())


def test_a_dense_model_is_refused_at_the_start(
    runs: Any, small: Callable[..., MasterConfig], owner: DataPlaneClient, attach: Attach
) -> None:
    with pytest.raises(ConfigError, match="Qwen3-MoE"):
        runs.plane(small("tiny_llama_copy", REPLAY), owner, attach)
