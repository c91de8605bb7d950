"""Which requirement a wrong answer breaks: that depends on the answer and on what happened before.

Each requirement has a check, which reports only the differences that are attributed to it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from rlconform.certify.interplay.scenario import Change

#: What is wrong. ``rows``: a read raised or returned other bytes; ``order``: the right rows in
#: another order; ``repeated``: a read that repeats ids returned other rows; ``fetched``,
#: ``receipt``: a read by the meta of a claim or of a put raised. ``cleared``, ``unknown``,
#: ``unproduced``: a read that must raise returned. ``lost``, ``again``, ``unready``, ``gone``,
#: ``split``: a claim misses a row, or has one that was claimed, lacks a field, was cleared, or
#: whose group is not whole. ``wake``: a waiting claim did not return. ``call``: a change raised.
Kind = Literal[
    "rows", "order", "repeated", "fetched", "receipt", "cleared", "unknown", "unproduced", "lost",
    "again", "unready", "gone", "split", "tags", "old_tags", "lengths", "status", "wake",
    "call", "accepted",
]  # fmt: skip

#: The requirement of a wrong answer that nothing special explains.
USUAL: dict[Kind, str] = {
    "rows": "GET-10",
    "order": "GET-01",
    "repeated": "GET-02",
    "fetched": "CLAIM-09",
    "receipt": "GET-11",
    "cleared": "CLEAR-01",
    "unknown": "GET-04",
    "unproduced": "GET-05",
    "lost": "CLAIM-02",
    "again": "CLAIM-02",
    "unready": "CLAIM-01",
    "gone": "CLAIM-10",
    "split": "CLAIM-15",
    "tags": "TAG-01",
    "old_tags": "TAG-03",
    "lengths": "TAG-06",
    "status": "STAT-02",
    "wake": "CLAIM-05",
    "call": "GET-10",
    "accepted": "PUT-15",
}

#: The requirement of any wrong answer after this change, or of some kinds of them.
AFTER: dict[Change, str] = {
    "start_anew": "REG-03",
    "start_with_other_schema": "REG-03",
    **dict.fromkeys(("reuse_ids", "reuse_own_ids"), "CLEAR-04"),
    "use_neighbour": "REG-04",
    "refused_put": "PUT-16",
    "refused_read": "LIFE-07",
    "refused_claim": "LIFE-07",
    "refused_registration": "LIFE-07",
    "complete_group": "PUT-16",
}
_REWRITES: tuple[Change, ...] = (
    "overwrite", "overwrite_wider", "overwrite_column", "overwrite_reversed", "overwrite_some",
    "overwrite_large", "change_dtype", "try_former_dtype", "correct_dtype", "put_column",
    "put_column_by_parts",
)  # fmt: skip
AFTER_SOME: dict[tuple[Change, Kind], str] = {
    ("change_dtype", "rows"): "PUT-13",
    ("try_former_dtype", "rows"): "PUT-23",
    ("correct_dtype", "rows"): "PUT-13",
    ("clear_own", "cleared"): "CLEAR-03",
    ("clear_some", "rows"): "CLEAR-01",
    ("clear_some", "lost"): "CLEAR-01",
    **{(change, "again"): "CLAIM-08" for change in _REWRITES},
    **{(change, "tags"): "TAG-02" for change in _REWRITES},
}

#: The requirement that a change breaks if it raises.
RAISED: dict[Change, str] = {
    **dict.fromkeys(_REWRITES, "PUT-13"),
    **dict.fromkeys(("put_column", "put_column_by_parts"), "PUT-11"),
    **dict.fromkeys(("tag", "tag_again", "tag_lengths", "tag_some", "tag_new"), "PUT-17"),
    "clear_some": "CLEAR-01",
    "clear_all": "CLEAR-01",
    "clear_own": "CLEAR-03",
    "claim": "CLAIM-02",
    "claim_other_task": "CLAIM-02",
    "claim_few": "CLAIM-02",
}
#: What one process breaks where several would break a requirement of theirs.
IN_ONE_PROCESS = {"GET-10": "PUT-13", "STAT-02": "STAT-01"}
#: What one process breaks by a read that must raise, whatever happened before: a plane that leaves
#: unknown rows out of a batch has one defect, which its vendor may have waived.
MUST_RAISE: dict[Kind, str] = {"unknown": "GET-04", "unproduced": "GET-05", "cleared": "GET-06"}


@dataclass
class Circumstances:
    """What happened in a scenario until now, as far as it decides what a wrong answer breaks.

    Attributes:
        change: The newest change.
        registered_again: The partition was registered while it had rows, which the contract asks
            only in REG-08 to keep.
        others_left: A process cleared all its rows beside those of others, see CLEAR-08.
        late, left: The last looker attached late; a client was closed.
        alone: One process does everything.
    """

    change: Change | None = None
    registered_again: bool = False
    others_left: bool = False
    late: bool = False
    left: bool = False
    alone: bool = False


def requirement_of(kind: Kind, now: Circumstances) -> str:
    """Return the id of the requirement that a wrong answer of this kind breaks."""
    if now.alone and kind in MUST_RAISE:
        return MUST_RAISE[kind]
    broken = _broken(kind, now)
    return IN_ONE_PROCESS.get(broken, broken) if now.alone else broken


def _broken(kind: Kind, now: Circumstances) -> str:
    change = now.change
    if now.registered_again:
        return "REG-08"
    if now.others_left and kind in {"rows", "fetched", "lost", "status"}:
        return "CLEAR-08"
    if kind in {"old_tags", "wake", "accepted", "split"}:
        return USUAL[kind]
    if now.late:
        return "LIFE-06"
    if now.left:
        return "LIFE-02"
    if kind == "call":
        return RAISED.get(change) or AFTER.get(change, USUAL[kind]) if change else "REG-01"
    if change is None:
        return USUAL[kind]
    if kind in {"lengths", "status", "repeated", "receipt"}:
        return USUAL[kind]
    return AFTER.get(change) or AFTER_SOME.get((change, kind), USUAL[kind])
