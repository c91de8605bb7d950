"""Router replay on Megatron: as the torch worker replays, through planes, proven by traces."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import ray as ray_api
import torch
from torch import Tensor

from rlconform.contract import ConfigError, DataPlaneClient
from rlconform.grpo.actors import RunActors
from rlconform.grpo.compare_runs import TrainingRecord, differences, run_to_end
from rlconform.grpo.config import MasterConfig
from rlconform.grpo.failures import RankFailed
from rlconform.grpo.plane_traffic import Attach
from rlconform.grpo.router_replay.check import check_trace
from rlconform.grpo.router_replay.route_format import RouterReplayError
from rlconform.grpo.router_replay.trace import TRACE_VARIABLE
from rlconform.grpo.router_replay.trace_records import Replayed, read_trace
from rlconform.grpo.trainers.legacy import LegacyTrainer
from rlconform.grpo.trainers.plane import PlaneTrainer
from rlconform.grpo.workers.policy_worker import PolicyWorker
from rlconform.grpo.workers.worker_group import WorkerGroup

pytestmark = pytest.mark.timeout(600)

Groups = Callable[[int], RunActors]
Ranks = Callable[[int], WorkerGroup]
Configure = Callable[..., MasterConfig]
Through = Callable[[RunActors, MasterConfig], TrainingRecord]

MODEL = "tiny_moe_copy"
REPLAY = "policy.router_replay.enabled=true"
#: As without replay, see ``test_layouts``: in float32, and of sums relative.
LOGPROBS, WEIGHTS, SUMS = 1e-5, 1e-5, 1e-4
STEPS = 2
#: A step has two updates. So the routes of the second are of weights that are one version older.
OFF_POLICY = (f"grpo.max_num_steps={STEPS}", "policy.optimizer.lr=0.01", REPLAY)

LAYOUTS = (
    "tp2 sp",
    "pp2",
    "ep2",
    "tp2 sp recompute",
    "pp2 recompute",
    "tp2 sp ep2",
    "tp2 sp dp2",
    "pp2 ep2",
)
PACKINGS = ("none", "sequence_packing")


@pytest.fixture
def through(owner: DataPlaneClient, attach: Attach) -> Through:
    """``through(actors, config)``: a whole run through the plane."""

    def run(actors: RunActors, config: MasterConfig) -> TrainingRecord:
        trainer = PlaneTrainer(config, actors, owner, attach)
        try:
            return run_to_end(trainer)
        finally:
            trainer.shutdown()

    return run


@pytest.mark.parametrize(
    ("plane_name", "packing"),
    [
        ("ray_store", "none"),
        ("ray_store", "sequence_packing"),
        ("transfer_queue/simple", "sequence_packing"),
    ],
    indirect=["plane_name"],
)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_replayed_run_is_the_run_in_memory(
    groups: Groups,
    configure: Configure,
    world_of: Callable[[str], int],
    through: Through,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    layout: str,
    packing: str,
) -> None:
    config = configure(MODEL, layout, f"policy.packing.mode={packing}", *OFF_POLICY)
    actors = groups(world_of(layout))
    in_memory = run_to_end(LegacyTrainer(config, actors))
    monkeypatch.setenv(TRACE_VARIABLE, str(tmp_path))
    run = through(actors, config)
    assert differences(in_memory, run) == []
    assert all(norm > 0 for norm in run.series("train/grad_norm"))
    check_proof(tmp_path, config, world_of(layout), recomputed="recompute" in layout)


def check_proof(folder: Path, config: MasterConfig, world: int, *, recomputed: bool) -> None:
    records = read_trace(folder)
    verdict = check_trace(records)
    assert verdict.failures == ()
    assert verdict.rows == STEPS * config.grpo.rows_per_step
    replayed = [record for record in records if isinstance(record, Replayed)]
    assert len({str(record.rank) for record in replayed}) == world
    passes = {(record.stage, record.recomputed) for record in replayed}
    assert passes == {("prev_logprobs", False), ("train", False)} | (
        {("train", True)} if recomputed else set()
    )


def test_replay_changes_a_run_whose_weights_move_within_a_step(
    groups: Groups, configure: Configure
) -> None:
    replayed, free = (
        run_to_end(LegacyTrainer(configure(MODEL, "pp2", *options), groups(2)))
        for options in (OFF_POLICY, OFF_POLICY[:-1])
    )
    assert replayed.series("train/loss") != free.series("train/loss")


@pytest.mark.smoke
def test_two_leader_fetched_tensor_parallel_ranks_are_proven(
    groups: Groups,
    configure: Configure,
    through: Through,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    config = configure(MODEL, "tp2 sp", *OFF_POLICY, "policy.megatron_cfg.fetch_policy=leader")
    in_memory = run_to_end(LegacyTrainer(config, groups(2)))
    monkeypatch.setenv(TRACE_VARIABLE, str(tmp_path))
    assert differences(in_memory, through(groups(2), config)) == []
    check_proof(tmp_path, config, 2, recomputed=False)


@pytest.mark.parametrize("packing", PACKINGS)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_canary_routes_are_replayed_as_by_torch(
    configure: Configure,
    updated: Callable[..., Any],
    ranks: Ranks,
    world_of: Callable[[str], int],
    rank_class: Any,
    layout: str,
    packing: str,
) -> None:
    """The routes are those of no router, so replay decides every logprob."""
    mode = f"policy.packing.mode={packing}"
    got = updated(world_of(layout), configure(MODEL, layout, mode, REPLAY))
    for left in ranks(world_of(layout)).all(rank_class.routers):
        assert left == [0] * (1 if "pp2" in layout else 2)  # the reference has none
    wanted = updated(1, configure(MODEL, "torch", mode, REPLAY))
    free = updated(1, configure(MODEL, "torch", mode))
    close(got.logprobs, wanted.logprobs, LOGPROBS)
    close(got.reference, free.logprobs, LOGPROBS)
    close(got.after, wanted.after, LOGPROBS * 10)
    for one, other in zip(got.updates, wanted.updates, strict=True):
        numbers = [
            {name: value for name, value in update.items() if name != "num_ranks"}
            for update in (one, other)
        ]
        assert numbers[0] == pytest.approx(numbers[1], rel=SUMS, abs=1e-5)
        assert one["grad_norm"] > 0
    assert got.weights.keys() == wanted.weights.keys()
    for name, leaf in got.weights.items():
        close(leaf, wanted.weights[name], WEIGHTS)
    assert (got.logprobs - free.logprobs).abs().max() > 1e-2
    assert (got.after - got.logprobs).abs().max() > 1e-3


def close(left: Tensor, right: Tensor, tolerance: float) -> None:
    torch.testing.assert_close(left, right, rtol=tolerance, atol=tolerance)


@pytest.fixture
def planted(groups: Groups, rank_class: Any) -> Iterator[Callable[[str], RunActors]]:
    """``planted(defect)``: two ranks with a defect in their replay, until the test ends."""
    actors = groups(2)

    def plant(defect: str) -> RunActors:
        actors.workers.all(rank_class.plant, defect)
        return actors

    yield plant
    plant("")


@pytest.mark.parametrize(
    ("defect", "layout", "says"),
    [
        ("rows first", "pp2", "got another token in its place"),
        ("next part", "tp2 sp", "got another token in its place"),
        ("first layers", "pp2", "those of another layer"),
        ("newest first", "pp2 recompute", "in the routers when recomputed"),
    ],
)
def test_a_planted_wrong_order_is_found(
    planted: Callable[[str], RunActors],
    configure: Configure,
    through: Through,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    defect: str,
    layout: str,
    says: str,
) -> None:
    monkeypatch.setenv(TRACE_VARIABLE, str(tmp_path))
    through(planted(defect), configure(MODEL, layout, *OFF_POLICY))
    failures = check_trace(read_trace(tmp_path)).failures
    assert any(says in failure for failure in failures), failures[:3]


@pytest.mark.parametrize("layout", ["pp2", "tp2 sp"])
def test_routes_that_one_rank_cant_replay_fail_all_ranks(
    configure: Configure, ranks: Ranks, replay_rows: Callable[[MasterConfig], Any], layout: str
) -> None:
    config = configure(MODEL, layout, "policy.packing.mode=none", REPLAY)
    group, rows = ranks(2), replay_rows(config)
    group.all(PolicyWorker.build, config)
    spoilt = rows.clone()
    spoilt["routed_experts"][3, 1] = 0  # one expert twice
    calls = [
        actor.logprobs.remote(given, {})
        for actor, given in zip(group._actors, (rows, spoilt), strict=True)
    ]
    with pytest.raises(RankFailed, match="rank 1: RouterReplayError: expected 2 of 8 experts"):
        ray_api.get(calls[0], timeout=60)
    with pytest.raises(RouterReplayError, match="for token 1 of row 3"):
        ray_api.get(calls[1], timeout=60)
    assert len(group.all(PolicyWorker.logprobs, rows, {})) == 2  # they still work together


def test_a_dense_model_is_refused(configure: Configure, ranks: Ranks) -> None:
    with pytest.raises(ConfigError, match="Qwen3-MoE"):
        ranks(2).all(PolicyWorker.build, configure("tiny_llama_copy", "tp2", REPLAY))
