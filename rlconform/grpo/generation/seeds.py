"""A seed for every turn of every row, whichever batch it is generated in."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b


def row_seeds(seed: int, sample_ids: Sequence[str], turn: int = 0) -> list[int]:
    """One number below 2^63 for each row, from the run's seed, the row's id and the turn.

    Args:
        seed: ``grpo.seed``.
        sample_ids: Ids as minted for the rollout: a prompt of a later step has another.
        turn: Which of the policy's turns, from 0.
    """
    return [_digest(f"{seed}/{turn}/{sample_id}") for sample_id in sample_ids]


def _digest(text: str) -> int:
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "big") >> 1
