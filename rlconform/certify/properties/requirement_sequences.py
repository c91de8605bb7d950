"""``SequenceProfile``: which calls the sequences of one requirement make, and what they judge.

A sequence that judged everything would stop at the first difference, regardless of the requirement
that it tests. So each requirement that only sequences of calls can test thoroughly has its own
profile: it makes the calls that the requirement is about, and judges only what breaks that
requirement. Other profiles judge any other difference; there the model adopts the plane's answer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

#: Calls that a profile adds to puts of new fields, which every profile makes.
Call = Literal[
    "overwrite",
    "tag",
    "claim",
    "time_out",
    "fetch",
    "spoil",
    "read",
    "read_again",
    "status",
    "clear",
    "start_anew",
]

#: What may go wrong. ``put`` (of new rows and fields) to ``start_anew``: the call raised; a put of
#: a row whose id was cleared before is ``reuse``. ``rows``: a read raised or returned other bytes;
#: ``fetched``: the same for a read by a claim's meta. ``unknown``, ``cleared``, ``unproduced``: a
#: read that must raise returned. The rest: the call raised, or its answer differs from the model.
Kind = Literal[
    "put", "reuse", "overwrite", "tag", "clear", "start_anew",
    "rows", "fetched", "unknown", "cleared", "unproduced", "claims", "tags", "lengths", "timeouts",
    "status",
]  # fmt: skip

#: Rows that are judged: all, those whose id was cleared before, those that two partitions share.
Scope = Literal["all", "reused", "shared"]


@dataclass(frozen=True)
class SequenceProfile:
    """The sequences of one requirement; all judge ``put`` too, as the other calls need its rows."""

    calls: set[Call]
    judged: set[Kind]
    scope: Scope = "all"
    partitions: tuple[str, ...] = ("train",)
    examples: int = 8  # sequences; more where calls on two partitions must meet
    group_size: int = 1  # rows of a group, of the two groups that claims return whole


#: Names of two partitions, for profiles in which one must not affect the other.
TWO = ("train", "train_val")


PROFILES: dict[str, SequenceProfile] = {
    "REG-03": SequenceProfile(
        {"claim", "read", "read_again", "start_anew"},
        {"reuse", "start_anew", "rows", "claims"},
        scope="reused",
    ),
    "REG-04": SequenceProfile(
        {"overwrite", "tag", "claim", "read", "read_again", "status", "clear", "start_anew"},
        {"rows", "claims", "tags", "clear"},
        scope="shared",
        partitions=TWO,
        examples=30,
    ),
    "PUT-12": SequenceProfile({"claim", "read"}, {"unproduced", "claims"}),
    "PUT-13": SequenceProfile({"overwrite", "tag", "read", "read_again"}, {"overwrite", "rows"}),
    "GET-01": SequenceProfile({"read", "read_again"}, {"rows"}),
    "GET-04": SequenceProfile({"read"}, {"unknown"}),
    "GET-06": SequenceProfile({"read", "read_again", "clear"}, {"cleared"}),
    "TAG-01": SequenceProfile({"tag", "overwrite", "claim", "spoil"}, {"tag", "tags"}),
    "TAG-06": SequenceProfile({"tag", "claim"}, {"lengths"}, group_size=2),
    "CLAIM-02": SequenceProfile({"claim", "spoil", "tag", "read"}, {"claims"}),
    "CLAIM-06": SequenceProfile({"claim", "time_out"}, {"timeouts", "claims"}),
    "CLAIM-08": SequenceProfile({"claim", "overwrite"}, {"claims"}),
    "CLAIM-09": SequenceProfile({"tag", "claim", "overwrite", "fetch", "status"}, {"fetched"}),
    "CLAIM-10": SequenceProfile({"claim", "overwrite", "tag", "clear"}, {"claims"}),
    "STAT-01": SequenceProfile(
        {"claim", "overwrite", "tag", "clear", "status"},
        {"status"},
        partitions=TWO,
        examples=15,
    ),
    "CLAIM-15": SequenceProfile({"claim", "overwrite", "tag"}, {"claims"}, group_size=2),
    "CLEAR-01": SequenceProfile(
        {"claim", "read", "read_again", "clear"}, {"clear", "rows", "claims"}
    ),
    "CLEAR-04": SequenceProfile(
        {"tag", "claim", "read", "read_again", "clear"},
        {"reuse", "rows", "unproduced", "claims", "tags"},
        scope="reused",
    ),
}
