"""Dynamic sampling: train on prompts of whose group something is learned, and generate until full.

    generated meta ── std above tolerance? ──▶ kept so far ── num_prompts full? ──▶ a step's rows
                          │ no                                  │ more than that
                          └────────────▶ to clear ◀─────────────┘

Groups whose rewards are equal have advantage 0 at each token: DAPO (Yu et al. 2025, arXiv
2503.14476), section 3.2 and eq. 11, leaves them out and samples more prompts in their place. All of
it is told from the metas' tags; nothing is fetched, and the trainer does the clearing:

    collected, batches = None, 0
    while True:
        meta = rollout(...).stamp_tags({STD: std}); batches += 1
        selection = select_groups(collected, meta, batches, options)
        policy.discard_samples(selection.cleared)
        if selection.complete:
            break
        collected = selection.kept
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from rlconform.contract import KVBatchMeta
from rlconform.grpo.algorithm.advantages import group_of
from rlconform.grpo.rollout.filters import BaseRolloutFilter, MissingTag, RolloutFilterError

#: Tag with the spread of the rewards of a row's group, from ``advantages.group_baseline``.
STD = "std"


class WrongStd(RolloutFilterError, ValueError):
    """A tag ``std`` that is no finite number from 0 on, or differs within a group."""


class TornGroup(RolloutFilterError, ValueError):
    """A group with more or fewer rows than each prompt has generations."""


class TooManyGenBatches(RuntimeError):
    """The step is not full after as many generation batches as are allowed.

    Attributes:
        sample_ids: Rows of this step that are still in the plane, for the trainer to clear.
    """

    def __init__(self, message: str, sample_ids: list[str]) -> None:
        super().__init__(message)
        self.sample_ids = sample_ids


@dataclass(frozen=True)
class DynamicSampling:
    """How many groups a step trains on, and which.

    Attributes:
        num_prompts_per_step: Groups of a full step.
        num_generations_per_prompt: Rows of each group.
        max_gen_batches: Most batches that are generated for one step.
        std_tolerance: A group is kept if its std is greater; 0 drops equal rewards alone.

    Raises:
        ValueError: A count below 1, a negative or infinite tolerance.
    """

    num_prompts_per_step: int
    num_generations_per_prompt: int
    max_gen_batches: int = 10
    std_tolerance: float = 0.0

    def __post_init__(self) -> None:
        for name in ("num_prompts_per_step", "num_generations_per_prompt", "max_gen_batches"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        if not 0 <= self.std_tolerance < math.inf:
            raise ValueError(
                f"std_tolerance must be finite and not negative, got {self.std_tolerance}"
            )


class Selection(NamedTuple):
    """What became of a generation batch; each row of it and of those collected is in one of two."""

    #: Rows kept so far, in the order generated; a full step's when ``complete``.
    kept: KVBatchMeta
    #: Ids of the rows that are not trained on, for the trainer to clear.
    cleared: list[str]
    #: Whether the step has all of its groups.
    complete: bool


class SpreadFilter(BaseRolloutFilter):
    """Keeps rows of groups whose rewards spread by more than ``tolerance``."""

    def __init__(self, tolerance: float = 0.0) -> None:
        self._tolerance = tolerance

    def keeps(self, sample_id: str, tags: Mapping[str, Any]) -> bool:
        """Whether something is learned of the row's group.

        Raises:
            MissingTag: No tag ``std``.
            WrongStd: The tag is no finite number, or negative.
        """
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
    options: DynamicSampling,
) -> Selection:
    """Join a generation batch to what is collected: whole groups, as many as a step trains on.

    A group is the rows whose ids share their ``<uid>``, wherever they lie. Of more groups than a
    step takes, those whose first rows come first stay.

    Args:
        collected: ``kept`` of the step's selection before, or None at its first batch.
        generated: The new batch, each row with its group's tag ``std``.
        gen_batches: Batches generated for this step, this one included.
        options: How many groups a step trains on, and which.

    Raises:
        TooManyGenBatches: The step is not full and ``gen_batches`` has reached its limit.
        MissingTag, WrongStd: The tags don't tell.
        TornGroup: A group of another size.
        ValueError: The metas can't be joined, or an id that names no group.
    """
    _check_groups(generated, options.num_generations_per_prompt)
    kept, dropped = SpreadFilter(options.std_tolerance).split(generated)
    if collected is not None:
        kept = collected.concat(kept)
        _check_groups(kept, options.num_generations_per_prompt)

    uids = [group_of(sample_id) for sample_id in kept.sample_ids]
    found = list(dict.fromkeys(uids))
    if len(found) < options.num_prompts_per_step and gen_batches >= options.max_gen_batches:
        raise TooManyGenBatches(
            f"only {len(found)} of {options.num_prompts_per_step} groups have rewards that spread "
            f"by more than {options.std_tolerance} after {gen_batches} generation batches",
            [*kept.sample_ids, *dropped.sample_ids],
        )

    chosen = set(found[: options.num_prompts_per_step])
    rows = [row for row, uid in enumerate(uids) if uid in chosen]
    overflow = kept.drop(rows)
    return Selection(
        kept.subset(rows),
        [*dropped.sample_ids, *overflow.sample_ids],
        complete=len(chosen) == options.num_prompts_per_step,
    )


def _check_groups(meta: KVBatchMeta, size: int) -> None:
    """Each group whole, and of one std: else its rows would part."""
    uids = [group_of(sample_id) for sample_id in meta.sample_ids]
    for uid, rows in Counter(uids).items():
        if rows != size:
            raise TornGroup(f"group {uid!r} has {rows} rows, {size} are due")
    stds: dict[str, Any] = {}
    for uid, tags in zip(uids, meta.tags or (), strict=False):
        if tags is not None and stds.setdefault(uid, tags.get(STD)) != tags.get(STD):
            raise WrongStd(f"rows of group {uid!r} have unlike tags {STD!r}")
