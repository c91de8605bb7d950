"""A failure on one rank, or plans that don't fit, raises on all ranks; nothing hangs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import ray as ray_api
from ray.exceptions import RayTaskError
from tensordict import TensorDict

from rlconform.contract import ConfigError, DataPlaneClient
from rlconform.grpo.actors import RunActors
from rlconform.grpo.config import ClusterConfig, MasterConfig
from rlconform.grpo.failures import RankFailed
from rlconform.grpo.models import load_tokenizer
from rlconform.grpo.plane_traffic import Attach
from rlconform.grpo.trainers.legacy_policy import LegacyPolicy
from rlconform.grpo.trainers.plane_policy import TRAIN_PARTITION, PlanePolicy
from rlconform.grpo.workers.plane_policy_worker import PlanePolicyWorker
from rlconform.grpo.workers.policy_worker import PolicyWorker
from rlconform.grpo.workers.train_step import PlanMismatch
from rlconform.grpo.workers.worker_group import WorkerGroup
from rlconform.plane import kv_first_write, mint_sample_ids

pytestmark = pytest.mark.timeout(600)

#: Seconds after which a collective of the broken ranks fails.
TIMEOUT_S = 8.0
WIDTH = 12  # of the rows

Configure = Callable[..., MasterConfig]
Ranks = Callable[[int], WorkerGroup]


def errors(group: WorkerGroup, method: Any, *args: Any) -> list[Any]:
    """Call the method on every rank; return what each raised, by rank."""
    raised: list[Any] = []
    for call in group.start(method, *args):
        try:
            ray_api.get(call, timeout=120)
            raised.append(None)
        except RayTaskError as error:
            raised.append(error.cause)
    return raised


@pytest.fixture
def policy(
    groups: Callable[[int], RunActors],
    configure: Configure,
    owner: DataPlaneClient,
    attach: Attach,
    rows: TensorDict,
) -> Iterator[Callable[..., Any]]:
    """``policy(layout)``: a policy on two ranks, and the meta of its rows in the plane."""
    opened: list[PlanePolicy] = []

    def open_policy(layout: str) -> Any:
        config = configure("tiny_llama_copy", layout, "policy.packing.mode=none")
        groups(2).workers.all(PolicyWorker.build, config)
        pad = load_tokenizer(config.policy.model_name).pad_token_id
        opened.append(PlanePolicy(groups(2), config, owner, attach, int(pad)))
        opened[-1].prepare_step(num_samples=16, group_size=4)
        meta = kv_first_write(owner, rows, mint_sample_ids("abcd", 4), TRAIN_PARTITION)
        return opened[-1], meta

    yield open_policy
    for each in opened:
        each.shutdown()


@pytest.mark.parametrize("layout", ["tp2", "tp2 leader", "dp2"])
def test_rows_that_one_rank_can_not_fetch(
    policy: Callable[..., Any], ranks: Ranks, layout: str
) -> None:
    """The rank that knows the reason raises it, the others say which rank failed, at once."""
    opened, meta = policy(layout)
    shards = opened._shards(meta, "train", 16)
    lost = [shards[0], shards[-1]]
    lost[1] = lost[1].subset(range(lost[1].size))
    lost[1].sample_ids[-1] = "lost_g0"
    # the leader's request counts, and it differs from the other's
    expected = "differ in sample_ids" if layout == "tp2 leader" else "lost_g0"
    calls = [
        actor.logprobs_from_meta.remote(shard)
        for actor, shard in zip(ranks(2)._actors, lost, strict=True)
    ]
    raised = []
    for call in calls:
        with pytest.raises(Exception) as info:  # noqa: PT011 - compared below
            ray_api.get(call, timeout=60)
        raised.append(str(info.value))
    assert any(expected in text for text in raised)
    assert all("rank 1" in text or "ranks [1]" in text or expected in text for text in raised)
    opened.get_logprobs_from_meta(meta)  # the ranks still work together
    opened.finish_step(meta)


@pytest.mark.parametrize("layout", ["tp2", "tp2 leader", "pp2", "dp2"])
def test_a_column_that_one_rank_can_not_write(
    policy: Callable[..., Any], ranks: Ranks, rank_class: type[Any], layout: str
) -> None:
    opened, meta = policy(layout)
    shards = opened._shards(meta, "logprob", 16)
    ranks(2).all(rank_class.break_write, 0)
    calls = [
        actor.logprobs_from_meta.remote(shard)
        for actor, shard in zip(ranks(2)._actors, (shards[0], shards[-1]), strict=True)
    ]
    with pytest.raises(OSError, match="no space left"):
        ray_api.get(calls[0], timeout=60)
    with pytest.raises(RankFailed, match="rank 0: OSError: no space left"):
        ray_api.get(calls[1], timeout=60)
    opened.get_reference_policy_logprobs_from_meta(meta)  # the ranks still work together
    opened.finish_step(meta)


@pytest.mark.parametrize("layout", ["tp2", "pp2"])
def test_micro_batches_of_other_shapes_in_a_replica_are_named(
    ranks: Ranks, configure: Configure, rows: TensorDict, layout: str
) -> None:
    """A rank that plans for itself would broadcast other rows into the same collective."""
    config = configure("tiny_llama_copy", layout, "policy.packing.mode=none")
    group = ranks(2)
    group.all(PolicyWorker.build, config)
    with pytest.raises(
        PlanMismatch, match=r"rank 1 runs micro-batches of other shapes than rank 0"
    ):
        group.each(PolicyWorker.train, [(rows, {}, 2, None, 2), (rows, {}, 2, None, 4)])
    assert LegacyPolicy(group, config).train(rows)[0]["grad_norm"] > 0


def test_micro_batches_of_another_number_are_named(
    ranks: Ranks, configure: Configure, rows: TensorDict
) -> None:
    """A rank that plans for itself would wait for the others forever."""
    config = configure("tiny_llama_copy", "dp2", "policy.packing.mode=none")
    group = ranks(2)
    group.all(PolicyWorker.build, config)
    with pytest.raises(PlanMismatch, match=r"got \[4\] by global batch on rank 0, \[2\] on rank 1"):
        group.each(
            PolicyWorker.train,
            [(rows[:8], {}, 1, None, 2), (rows[8:], {}, 1, None, 4)],
        )
    assert LegacyPolicy(group, config).train(rows)[0]["grad_norm"] > 0


def test_micro_batches_of_another_width_are_named(
    ranks: Ranks, configure: Configure, rows: TensorDict
) -> None:
    """Each rank pads to its own longest row; the experts are on both ranks."""
    config = configure("tiny_moe_copy", "ep2", "policy.packing.mode=none")
    group = ranks(2)
    group.all(PolicyWorker.build, config)
    narrow = TensorDict(
        {
            name: column[8:, :10] if column.dim() > 1 else column[8:].clamp(max=10)
            for name, column in rows.items()
        },
        batch_size=[8],
    )
    with pytest.raises(PlanMismatch, match=r"12, 12, 12, 12.* on rank 0, \[\[10, 10, 10, 10"):
        group.each(PolicyWorker.train, [(rows[:8], {}, 1), (narrow, {}, 1)])


@pytest.mark.parametrize("layout", ["tp2", "dp2"])
def test_packed_rows_that_do_not_fit_into_their_plan_are_named(
    ranks: Ranks, configure: Configure, rows: TensorDict, layout: str
) -> None:
    """Rank 1 gets rows without the driver's plan: their last tokens would be left out."""
    config = configure("tiny_llama_copy", layout, "policy.packing.mode=sequence_packing")
    group = ranks(2)
    group.all(PolicyWorker.build, config)
    one = rows[:1].clone()
    fits = {
        "elem_counts_per_gb": [1],
        "micro_batch_indices": [[(0, 1)]],
        "micro_batch_lengths": [[WIDTH]],
    }
    two = rows[:2].clone()
    calls = [
        actor.logprobs.remote(given, packing)
        for actor, given, packing in zip(group._actors, (one, two), (fits, {}), strict=True)
    ]
    with pytest.raises(RankFailed, match=r"rank 1: PlanMismatch: expected rows 0 to 1 to fit"):
        ray_api.get(calls[0], timeout=60)
    with pytest.raises(PlanMismatch, match="make the plan on the driver"):
        ray_api.get(calls[1], timeout=60)
    assert LegacyPolicy(group, config).train(rows)[0]["grad_norm"] > 0


def test_a_rank_that_fails_in_a_pass_fails_all_within_the_timeout(
    rank_class: type[Any], configure: Configure, rows: TensorDict
) -> None:
    """The other rank waits in a collective of the model, which ends with the timeout."""
    group = WorkerGroup(rank_class, ClusterConfig(dp_size=2, timeout_s=TIMEOUT_S * 10))
    try:
        config = configure(
            "tiny_llama_copy", "tp2", "policy.packing.mode=none", f"cluster.timeout_s={TIMEOUT_S}"
        )
        group.all(PolicyWorker.build, config)
        group.all(rank_class.break_passes, 1)
        first, second = errors(group, PolicyWorker.train, rows, {}, 2)
        assert isinstance(second, ArithmeticError)
        assert isinstance(first, RuntimeError)
        assert not isinstance(first, RankFailed)
    finally:
        group.shutdown()


def test_what_the_ranks_or_the_model_do_not_allow(ranks: Ranks, configure: Configure) -> None:
    def refused(model: str, layout: str, *overrides: str) -> str:
        with pytest.raises(ConfigError) as info:
            ranks(2).all(PolicyWorker.build, configure(model, layout, *overrides))
        return str(info.value)

    assert "4 ranks" in refused(
        "tiny_llama_copy", "tp2", "policy.megatron_cfg.pipeline_model_parallel_size=2"
    )
    assert "no experts" in refused("tiny_llama_copy", "ep2")
    assert "sequence_parallel: true" in refused("tiny_moe_copy", "tp2")
    assert "one part of the model per rank; got 2" in refused(
        "tiny_llama_copy", "pp2", "policy.megatron_cfg.virtual_pipeline_model_parallel_size=2"
    )


def test_one_rank_writes_where_there_is_no_replica_group(
    policy: Callable[..., Any], ranks: Ranks
) -> None:
    """Both tensor-parallel ranks fetch and compute; the logprobs are in the plane once."""
    for layout in ("tp2", "tp2 leader"):
        opened, meta = policy(layout)
        opened.get_logprobs_from_meta(meta)
        traffic = ranks(2).all(PlanePolicyWorker.traffic)
        assert [each.bytes_written > 0 for each in traffic] == [True, False]
        assert [each.bytes_read > 0 for each in traffic] == [True, layout == "tp2"]
        opened.finish_step(meta)
