"""Advantages: how much better a response did than the other responses to the same prompt.

    rewards (N,) ─ group_baseline ─▶ baseline, std (N,)
                 ─ compute_advantages ─▶ (N,) ─ broadcast_to_tokens ─▶ (N, S)

The driver calls these functions once per step, with one reward per row.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def group_of(sample_id: str) -> str:
    """Return the ``<uid>`` of a sample id ``<uid>_g<i>``; ``ValueError`` for another form."""
    uid, found, index = sample_id.rpartition("_g")
    if not found or not index.isdecimal():
        raise ValueError(f"sample id {sample_id!r} names no group: expected <uid>_g<i>")
    return uid


def group_baseline(
    rewards: Tensor,
    groups: Sequence[str],
    leave_one_out: bool = False,
    counted: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Compute each row's baseline and the standard deviation of its group's rewards.

    For a row i of a group of G counted rows with rewards r_1 ... r_G of mean m::

        baseline_i = m                              the group's mean (GRPO), or
        baseline_i = (sum_j r_j - r_i) / (G - 1)    the mean of the others (leave one out)
        std_i      = sqrt(sum_j (r_j - m)^2 / (G - 1))

    In both cases ``std`` covers the whole group, so that dynamic sampling keeps or drops all rows
    of a group. In a group of one row the baseline is the row's reward and the std is 0. For equal
    rewards the baseline is exactly their value and the std exactly 0, without rounding errors.

    Rows that are not ``counted`` (N,) bool, because they have no reward, change no other row's
    result; their own baseline is the group's mean. In a group without counted rows all is 0.

    Sources: DeepSeekMath (Shao et al. 2024, arXiv 2402.03300), section 4.1.2; leave one out: Kool
    et al. 2019, "Buy 4 REINFORCE samples, get a baseline for free!", and RLOO (Ahmadian et al.
    2024, arXiv 2402.14740).

    ``rewards`` are (N,) floating point and finite where counted, else ``ValueError``; by default
    all rows are counted. Rows with equal names in
    ``groups`` form a group, in any order. Both results are (N,), of the rewards' dtype and device.
    """
    if rewards.dim() != 1 or not rewards.is_floating_point():
        raise ValueError(
            f"rewards must be (N,) floating point, got {tuple(rewards.shape)} {rewards.dtype}"
        )
    if len(groups) != len(rewards):
        raise ValueError(f"{len(groups)} groups for {len(rewards)} rewards")
    if counted is None:
        counted = torch.ones_like(rewards, dtype=torch.bool)
    if counted.shape != rewards.shape or counted.dtype != torch.bool:
        raise ValueError(
            f"counted must be {tuple(rewards.shape)} bool, got {tuple(counted.shape)} "
            f"{counted.dtype}"
        )
    if not bool(torch.isfinite(rewards[counted]).all()):
        raise ValueError(f"a reward is not finite: {rewards.tolist()}")

    counts = counted.cpu()
    first: dict[str, int] = {}
    for row in (*counts.nonzero().flatten().tolist(), *(~counts).nonzero().flatten().tolist()):
        first.setdefault(groups[row], row)
    # Each row's group is named by its first counted row.
    index = torch.tensor([first[group] for group in groups], dtype=torch.int64)

    exact = torch.where(counts, rewards.detach().cpu().double(), 0)
    origin = exact[index]
    # Equal rewards are zeros here, whose sums and squares are exact.
    offset = torch.where(counts, exact - origin, 0)

    def of_group(values: Tensor) -> Tensor:
        return torch.zeros_like(values).index_add_(0, index, values)[index]

    size = of_group(counts.double())
    total = of_group(offset)
    mean = total / size.clamp(min=1)
    others = (size - 1).clamp(min=1)  # a group of one has offset 0, whatever it is divided by
    baseline = origin + (
        torch.where(counts, (total - offset) / others, mean) if leave_one_out else mean
    )
    std = (of_group(torch.where(counts, offset - mean, 0).square()) / others).sqrt()
    return baseline.to(rewards), std.to(rewards)


def compute_advantages(
    rewards: Tensor,
    baseline: Tensor,
    std: Tensor,
    normalize: bool = True,
    epsilon: float = 1e-6,
) -> Tensor:
    """Compute each row's advantage over its baseline.

    ::

        A_i = r_i - baseline_i                        or, with ``normalize``,
        A_i = (r_i - baseline_i) / (std_i + epsilon)  and 0 where std_i is 0

    Sources: DeepSeekMath (arXiv 2402.03300), section 4.1.2. Dr. GRPO (Liu et al. 2025, arXiv
    2503.20783) omits the division, because it gives more weight to very easy and very hard prompts.

    All tensors are (N,), else ``ValueError``. ``epsilon`` makes the advantages of nearly equal
    rewards small.
    """
    if rewards.dim() != 1 or not rewards.shape == baseline.shape == std.shape:
        shapes = [tuple(values.shape) for values in (rewards, baseline, std)]
        raise ValueError(f"rewards, baseline and std must have the same shape (N,), got {shapes}")
    if epsilon < 0:
        raise ValueError(f"epsilon must not be negative, got {epsilon}")
    difference = rewards - baseline
    if not normalize:
        return difference
    return torch.where(std > 0, difference / (std + epsilon), 0)


def broadcast_to_tokens(advantages: Tensor, token_mask: Tensor) -> Tensor:
    """Copy each row's advantage to each of its trained tokens; 0 elsewhere: A_{i,t} = A_i.

    With outcome supervision all tokens of a response have the same advantage: DeepSeekMath (arXiv
    2402.03300), section 4.1.2. ``advantages`` (N,) and ``token_mask`` (N, S) give (N, S); other
    shapes raise ``ValueError``.
    """
    if token_mask.dim() != 2 or advantages.shape != token_mask.shape[:1]:
        raise ValueError(
            f"advantages must be (N,) and token_mask (N, S), got {tuple(advantages.shape)} and "
            f"{tuple(token_mask.shape)}"
        )
    return torch.where(token_mask.bool(), advantages.unsqueeze(1), 0)
