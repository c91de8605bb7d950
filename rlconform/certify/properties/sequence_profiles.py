"""Which calls a history may hold, and what of it is judged, by requirement.

A history that compared everything would stop at its first difference, under whichever id it ran.
So there is one play for each id that only a history can try in earnest: it makes the calls that
the id speaks of, and judges only what breaks that id. A difference of another kind is followed, as
the play of its own id tells of it: the model takes over what the plane answered.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

#: Calls beside puts of new fields, which each play has.
Call = Literal[
    "overwrite", "tag", "claim", "time_out", "fetch", "read", "status", "clear", "start_anew"
]

#: What may go wrong. ``put`` (of new rows and fields) to ``start_anew``: the call raised, where a
#: put of a row whose id was cleared before is ``rebirth``. ``rows``: a read raised or gave other
#: bytes, ``fetched``: that of a claim's meta did. ``unknown``, ``cleared``, ``unproduced``: a read
#: that is due to raise did not. The rest: the call raised, or its answer is not the model's.
Kind = Literal[
    "put", "rebirth", "overwrite", "tag", "clear", "start_anew",
    "rows", "fetched", "unknown", "cleared", "unproduced", "claims", "tags", "timeouts", "status",
]  # fmt: skip

#: Rows that are judged: all, those whose id was cleared before, those that two partitions share.
Whose = Literal["all", "reborn", "shared"]


@dataclass(frozen=True)
class SequenceProfile:
    """The histories of one requirement."""

    calls: frozenset[Call]
    judged: frozenset[Kind]
    whose: Whose = "all"
    partitions: tuple[str, ...] = ("train",)


#: Names of two partitions, for the plays in which one must not show in the other.
TWO = ("train", "val")


def _play(
    calls: set[Call],
    judged: set[Kind],
    whose: Whose = "all",
    partitions: tuple[str, ...] = ("train",),
) -> SequenceProfile:
    # a plane that can't put new rows can't be judged by any play, and fails them all
    return SequenceProfile(frozenset(calls), frozenset({"put", *judged}), whose, partitions)


PROFILES: dict[str, SequenceProfile] = {
    "REG-03": _play(
        {"claim", "read", "start_anew"}, {"rebirth", "start_anew", "rows", "claims"}, whose="reborn"
    ),
    "REG-04": _play(
        {"overwrite", "tag", "claim", "read", "status", "clear", "start_anew"},
        {"rows", "claims", "tags", "clear"},
        whose="shared",
        partitions=TWO,
    ),
    "PUT-12": _play({"claim", "read"}, {"unproduced", "claims"}),
    "PUT-13": _play({"overwrite", "read"}, {"overwrite", "rows"}),
    "GET-01": _play({"read"}, {"rows"}),
    "GET-04": _play({"read"}, {"unknown"}),
    "GET-06": _play({"read", "clear"}, {"cleared"}),
    "TAG-01": _play({"tag", "overwrite", "claim"}, {"tag", "tags"}),
    "CLAIM-02": _play({"claim", "tag", "read"}, {"claims"}),
    "CLAIM-06": _play({"claim", "time_out"}, {"timeouts", "claims"}),
    "CLAIM-08": _play({"claim", "overwrite"}, {"claims"}),
    "CLAIM-09": _play({"tag", "claim", "fetch", "status"}, {"fetched"}),
    "CLAIM-10": _play({"claim", "overwrite", "tag", "clear"}, {"claims"}),
    "STAT-01": _play({"claim", "overwrite", "tag", "clear", "status"}, {"status"}, partitions=TWO),
    "CLEAR-01": _play({"claim", "read", "clear"}, {"clear", "rows", "claims"}),
    "CLEAR-04": _play(
        {"tag", "claim", "read", "clear"},
        {"rebirth", "rows", "unproduced", "claims", "tags"},
        whose="reborn",
    ),
}
