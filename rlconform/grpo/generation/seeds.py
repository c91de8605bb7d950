"""Seeds of generation, one per row and turn, independent of the batch that the row is in."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b


def row_seeds(seed: int, sample_ids: Sequence[str], turn: int = 0) -> list[int]:
    """Derive a seed below 2^63 for each row from the run's seed, the row's id and the turn.

    Args:
        seed: ``grpo.seed``.
        sample_ids: Sample ids; a prompt has a new id in each step.
        turn: The policy's turn, counted from 0.
    """
    return [_digest(f"{seed}/{turn}/{sample_id}") for sample_id in sample_ids]


def _digest(text: str) -> int:
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "big") >> 1
