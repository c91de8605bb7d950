"""Dynamic sampling: train only on groups whose rewards differ, and generate until there are enough.

    generated meta ── std > tolerance? ─ yes ─▶ kept so far ── num_prompts reached? ─▶ step's rows
                          │ no                                  │ surplus
                          └────────────▶ to clear ◀─────────────┘

A group with equal rewards has advantage 0 at every token, so nothing is learned from it. DAPO (Yu
et al. 2025, arXiv 2503.14476), section 3.2 and eq. 11, leaves it out and samples another prompt.
The decision needs only tags, so no row is fetched. The trainer clears the dropped rows.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from typing import Any, NamedTuple

from rlconform.contract import KVBatchMeta
from rlconform.grpo.algorithm.advantages import group_of
from rlconform.grpo.config import GRPOConfig
from rlconform.grpo.rollout.staleness_filter import (
    BaseRolloutFilter,
    MissingTag,
    RolloutFilterError,
)

#: Tag with the standard deviation of the group's rewards, from ``advantages.group_baseline``.
STD = "std"


class WrongStd(RolloutFilterError, ValueError):
    """A tag ``std`` is not a finite number of at least 0, or differs within a group."""


class TornGroup(RolloutFilterError, ValueError):
    """A group has more or fewer rows than ``num_generations_per_prompt``."""


class TooManyGenBatches(RuntimeError):
    """Too few groups were found within the allowed number of generation batches."""

    def __init__(self, message: str, sample_ids: list[str]) -> None:
        super().__init__(message)
        #: Rows of this step that are still in the plane, for the trainer to clear.
        self.sample_ids = sample_ids


class Selection(NamedTuple):
    """The collected and the newly generated rows, divided into kept and dropped ones."""

    #: Rows kept so far, in the order generated; the step's rows when ``complete``.
    kept: KVBatchMeta
    #: Ids of the dropped rows, for the trainer to clear.
    cleared: list[str]
    #: Whether there are ``num_prompts_per_step`` groups.
    complete: bool


class RewardStdFilter(BaseRolloutFilter):
    """Keeps the rows of groups whose rewards have a std above ``tolerance``."""

    def __init__(self, tolerance: float) -> None:
        self._tolerance = tolerance

    def keeps(self, sample_id: str, tags: Mapping[str, Any]) -> bool:
        """Whether the tag ``std`` is above ``tolerance``; raises ``MissingTag`` or ``WrongStd``."""
        if STD not in tags:
            raise MissingTag(f"{sample_id!r} has no tag {STD!r}, only {sorted(tags)}")
        std = tags[STD]
        if isinstance(std, bool) or not isinstance(std, int | float) or not 0 <= std < math.inf:
            raise WrongStd(
                f"tag {STD!r} of {sample_id!r} must be a finite number, not negative, got {std!r}"
            )
        return bool(std > self._tolerance)


def select_groups(
    collected: KVBatchMeta | None,
    generated: KVBatchMeta,
    gen_batches: int,
    config: GRPOConfig,
) -> Selection:
    """Add a generation batch to the collected rows and keep as many whole groups as a step needs.

    A group is the rows whose ids have the same ``<uid>``, in any order. If there are more groups
    than a step needs, the first ones are kept. ``collected`` is ``kept`` of the step's previous
    selection; ``gen_batches`` counts the step's batches, including this one.

    Raises:
        TooManyGenBatches: Groups are missing and ``gen_batches`` has reached its limit.
        MissingTag, WrongStd: A tag ``std`` is missing or unusable.
        TornGroup: A group does not have ``num_generations_per_prompt`` rows.
        ValueError: The metas can't be joined, or an id names no group.
    """
    n_prompts, group_size = config.num_prompts_per_step, config.num_generations_per_prompt
    tolerance = config.dynamic_sampling_std_tolerance
    _check_groups(generated, group_size)
    kept, dropped = RewardStdFilter(tolerance).split(generated)
    if collected is not None:
        kept = collected.concat(kept)
        _check_groups(kept, group_size)

    uids = [group_of(sample_id) for sample_id in kept.sample_ids]
    found = list(dict.fromkeys(uids))
    if len(found) < n_prompts and gen_batches >= config.dynamic_sampling_max_gen_batches:
        raise TooManyGenBatches(
            f"only {len(found)} of {n_prompts} groups have rewards with a std above {tolerance} "
            f"after {gen_batches} generation batches",
            [*kept.sample_ids, *dropped.sample_ids],
        )

    chosen = set(found[:n_prompts])
    rows = [row for row, uid in enumerate(uids) if uid in chosen]
    overflow = kept.drop(rows)
    return Selection(
        kept.subset(rows),
        [*dropped.sample_ids, *overflow.sample_ids],
        complete=len(chosen) == n_prompts,
    )


def _check_groups(meta: KVBatchMeta, size: int) -> None:
    """Raise unless each group has ``size`` rows, all with the same tag ``std``."""
    uids = [group_of(sample_id) for sample_id in meta.sample_ids]
    for uid, rows in Counter(uids).items():
        if rows != size:
            raise TornGroup(f"group {uid!r} has {rows} rows, expected {size}")
    stds: dict[str, Any] = {}
    for uid, tags in zip(uids, meta.tags or (), strict=False):
        if tags is not None and stds.setdefault(uid, tags.get(STD)) != tags.get(STD):
            raise WrongStd(f"rows of group {uid!r} have different tags {STD!r}")
