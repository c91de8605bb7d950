"""``call_kind``: what of a call decides whether it hangs.

Calls of a kind that hung in several checks are not made again (``isolation.hang_tally``); those of
other kinds of the same method are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

#: The kind of a claim that waits.
BLOCKING_CLAIM = "claim_meta, blocking"

#: Rows from which a call is of a kind of its own.
MANY_ROWS = 1_000


def call_kind(method: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
    """Return the method's name, and what of the call decides whether it hangs.

    Of claims only those that block may wait. Of calls with rows a plane may be too slow for many
    rows alone, if its time grows with the square of their number.
    """
    if method == "claim_meta":
        return BLOCKING_CLAIM if kwargs.get("blocking", True) else "claim_meta, not blocking"
    rows = args[0] if args else kwargs.get("sample_ids", kwargs.get("meta"))
    ids = getattr(rows, "sample_ids", rows)
    many = isinstance(ids, list | tuple) and len(ids) >= MANY_ROWS
    return f"{method} of {MANY_ROWS:,} rows or more" if many else method
