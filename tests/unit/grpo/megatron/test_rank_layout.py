"""Which replica, part of the model and rows each rank has."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from rlconform.contract import ConfigError
from rlconform.grpo.config import MasterConfig, load_config
from rlconform.grpo.config.megatron import MegatronConfig
from rlconform.grpo.workers.rank_layout import RankLayout
from rlconform.plane import ModelRanks

_ON = "policy.megatron_cfg.enabled=true"


def config(*overrides: str) -> MasterConfig:
    return load_config("tiny_moe_copy", [_ON, *overrides])


def test_ranks_are_numbered_tp_then_dp_then_pp() -> None:
    layout = RankLayout(dp=2, tp=2, pp=2)
    assert layout.world == 8
    assert [layout.dp_rank(rank) for rank in range(8)] == [0, 0, 1, 1, 0, 0, 1, 1]
    assert layout.replica(1) == [2, 3, 6, 7]
    assert layout.model_ranks(7) == ModelRanks(tp=1, cp=0, pp=1)


@pytest.mark.parametrize("tp", [1, 2, 3])
@pytest.mark.parametrize("cp", [1, 2])
@pytest.mark.parametrize("pp", [1, 4])
@pytest.mark.parametrize("dp", [1, 3])
def test_one_rank_of_each_replica_writes(tp: int, cp: int, pp: int, dp: int) -> None:
    layout = RankLayout(dp=dp, tp=tp, cp=cp, pp=pp)
    places = [(layout.dp_rank(rank), layout.model_ranks(rank)) for rank in range(layout.world)]
    assert len({str(place) for place in places}) == layout.world
    writers = [rank for rank in range(layout.world) if layout.model_ranks(rank).is_src]
    assert writers == layout.writers
    assert [layout.dp_rank(rank) for rank in writers] == list(range(dp))


def test_the_ranks_that_a_layout_needs() -> None:
    sharded = config(
        "policy.megatron_cfg.tensor_model_parallel_size=2",
        "policy.megatron_cfg.pipeline_model_parallel_size=2",
    ).policy
    assert RankLayout.of(sharded, 8) == RankLayout(dp=2, tp=2, pp=2)
    with pytest.raises(ConfigError, match=r"multiple of 4 ranks.*got 6"):
        RankLayout.of(sharded, 6)
    experts = config("policy.megatron_cfg.expert_model_parallel_size=4").policy
    assert RankLayout.of(experts, 4).dp == 4
    with pytest.raises(ConfigError, match="expert_model_parallel_size 4"):
        RankLayout.of(experts, 2)
    assert RankLayout.of(load_config("tiny_moe_copy", []).policy, 3) == RankLayout(dp=3)


@pytest.mark.parametrize(
    ("policy", "layout", "leader"),
    [
        ("auto", RankLayout(dp=2, tp=2), False),
        ("auto", RankLayout(dp=1, cp=2), True),
        ("leader", RankLayout(dp=2, tp=2), True),
        ("leader", RankLayout(dp=2), False),
        ("independent", RankLayout(dp=1, cp=2), False),
    ],
)
def test_who_fetches(policy: Any, layout: RankLayout, leader: bool) -> None:
    assert layout.has_leader(policy) is leader


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["context_parallel_size=2"], "make_sequence_length_divisible_by to be a multiple of 4"),
        (["sequence_parallel=true"], "tensor_model_parallel_size above 1"),
        (["sequence_parallel=true", "tensor_model_parallel_size=2"], "a multiple of"),
    ],
)
def test_what_is_refused_at_the_start(overrides: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        config(*(f"policy.megatron_cfg.{each}" for each in overrides))


def test_float16_is_refused() -> None:
    with pytest.raises(ConfigError, match="float32 or bfloat16"):
        config("policy.precision=float16")


def test_a_replica_of_a_model_that_is_not_sharded_is_one_rank() -> None:
    sizes: dict[str, Any] = {"tensor_model_parallel_size": 2, "pipeline_model_parallel_size": 3}
    assert MegatronConfig(enabled=True, **sizes).replica_ranks == 6
    assert MegatronConfig(**sizes).replica_ranks == 1
    with pytest.raises(ValidationError):
        MegatronConfig.model_validate({"fetch_policy": "everyone"})
