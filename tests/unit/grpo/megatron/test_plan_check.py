"""Plans of ranks that would wait for each other are told apart from plans that fit."""

from __future__ import annotations

import pytest

from rlconform.grpo.workers.megatron.plan_check import MicrobatchShape, RankPlan, plan_difference


def plan(rank: int, dp_rank: int, *batches: list[tuple[int, int]]) -> RankPlan:
    shapes = [[MicrobatchShape(*shape) for shape in batch] for batch in batches]
    return RankPlan(rank, dp_rank, shapes)


TWO_EQUAL = [plan(0, 0, [(2, 8), (2, 8)]), plan(1, 1, [(2, 8), (2, 8)])]
FEWER = [plan(0, 0, [(2, 8), (2, 8)]), plan(1, 1, [(4, 8)])]
NARROWER = [plan(0, 0, [(2, 8), (2, 8)]), plan(1, 1, [(2, 8), (2, 6)])]
IN_A_REPLICA = [plan(0, 0, [(2, 8)]), plan(1, 0, [(2, 6)])]


@pytest.mark.parametrize("counts", [True, False])
@pytest.mark.parametrize("widths", [True, False])
def test_equal_plans_fit(counts: bool, widths: bool) -> None:
    assert plan_difference(TWO_EQUAL, counts=counts, widths=widths) == ""
    assert plan_difference(TWO_EQUAL[:1], counts=counts, widths=widths) == ""


def test_unequal_counts_are_named_where_they_matter() -> None:
    message = plan_difference(FEWER, counts=True, widths=False)
    assert "[2] by global batch on rank 0, [1] on rank 1" in message
    assert plan_difference(FEWER, counts=False, widths=False) == ""


def test_unequal_counts_in_one_of_several_batches_are_found() -> None:
    plans = [plan(0, 0, [(1, 4)], [(1, 4)] * 2), plan(1, 1, [(1, 4)] * 2, [(1, 4)])]
    assert "[1, 2] by global batch on rank 0, [2, 1] on rank 1" in plan_difference(
        plans, counts=True, widths=False
    )


def test_unequal_widths_are_named_where_they_matter() -> None:
    message = plan_difference(NARROWER, counts=True, widths=True)
    assert "[[8, 8]] by global batch on rank 0, [[8, 6]] on rank 1" in message
    assert plan_difference(NARROWER, counts=True, widths=False) == ""


def test_rows_may_differ_between_replicas() -> None:
    plans = [plan(0, 0, [(2, 8)]), plan(1, 1, [(3, 8)])]
    assert plan_difference(plans, counts=True, widths=True) == ""


def test_the_ranks_of_a_replica_need_equal_shapes() -> None:
    message = plan_difference(IN_A_REPLICA, counts=False, widths=False)
    assert "[['2x6']] on rank 1; [['2x8']] on rank 0" in message
