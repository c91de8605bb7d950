"""``plan_difference``: why the ranks' micro-batches don't fit together; a pure function.

    each rank ── RankPlan ──▶ every rank ── plan_difference ──▶ "" or one error on all of them

Ranks that ran different numbers of micro-batches, or shapes, would wait for each other forever in a
collective. So they compare their plans before the first one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class MicrobatchShape(NamedTuple):
    """The shape of a model's input."""

    rows: int
    width: int  # tokens


class RankPlan(NamedTuple):
    """One rank's micro-batches, by global batch."""

    rank: int
    dp_rank: int
    shapes: list[list[MicrobatchShape]]


def plan_difference(plans: Sequence[RankPlan], *, counts: bool, widths: bool) -> str:
    """Return an error message if the plans don't fit together, else "".

    Args:
        plans: The plans of all ranks.
        counts: Whether all replicas must run equally many micro-batches.
        widths: Whether their n-th micro-batches must be equally wide.
    """
    first_of: dict[int, RankPlan] = {}
    for plan in plans:
        first = first_of.setdefault(plan.dp_rank, plan)
        if plan.shapes != first.shapes:
            return (
                f"rank {plan.rank} runs micro-batches of other shapes than rank {first.rank} of "
                f"its replica: {_described(plan)}; {_described(first)}"
            )
    first, *others = first_of.values()
    for other in others:
        numbers = [list(map(len, plan.shapes)) for plan in (first, other)]
        if counts and numbers[0] != numbers[1]:
            return (
                f"expected equally many micro-batches on every rank; got {numbers[0]} by global "
                f"batch on rank {first.rank}, {numbers[1]} on rank {other.rank}: make the plan "
                f"once, on the driver, for all ranks"
            )
        if widths and _widths(first) != _widths(other):
            return (
                f"expected micro-batches of equal width on every rank; got {_widths(first)} by "
                f"global batch on rank {first.rank}, {_widths(other)} on rank {other.rank}: pad "
                f"to the step's width, not to a rank's longest row"
            )
    return ""


def _widths(plan: RankPlan) -> list[list[int]]:
    return [[shape.width for shape in batch] for batch in plan.shapes]


def _described(plan: RankPlan) -> str:
    batches = [[f"{shape.rows}x{shape.width}" for shape in batch] for batch in plan.shapes]
    return f"{batches} on rank {plan.rank}"
