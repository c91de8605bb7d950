"""The checkers of histories by name, and which of them a failure names."""

from __future__ import annotations

import re
from collections.abc import Mapping

from rlconform.certify.concurrency.anomaly import Checker
from rlconform.certify.concurrency.checkers import calls, claims, reads, status, tags, torn_reads

#: Checkers by name, as a race's failure names them.
CHECKERS: Mapping[str, Checker] = {
    checker.__name__: checker
    for checker in (
        calls.hung,
        calls.refused,
        calls.refused_alone,
        claims.cross_task,
        claims.duplicated,
        claims.lost,
        claims.null_ids,
        claims.phantoms,
        reads.stale_reads,
        reads.unwritten,
        reads.wrong_rows,
        status.early_status,
        status.late_status,
        status.non_monotonic,
        tags.lost_updates,
        tags.tags_late,
        torn_reads.torn,
    )
}

#: Text of a race's failure; the name of the checker that found it follows. The seed repeats the
#: roles' choices, but not their timing.
REPEATED = (
    "chance decides when a race shows, and the same seed may not show it again; its history does: "
    "python -m rlconform.certify.concurrency.check_saved HISTORY_FILE"
)
_NAMED = re.compile(rf"{re.escape(REPEATED)} (\w+)\)")


def checker_named_in(evidence: str) -> Checker | None:
    """Return the checker that a race's failure names, or None for another failure."""
    found = _NAMED.search(evidence)
    return CHECKERS.get(found[1]) if found else None
