"""A call is made hundreds of times, and everything else is as before.

A plane that numbers its calls, tickets, versions or errors in a byte, or pools so many of them, is
right at first and wrong in the course of a run.
"""

from __future__ import annotations

from collections.abc import Callable

from rlconform.certify.assertions.expect import expect, expect_equal
from rlconform.certify.scenarios.normalize_metas import tags_by_id
from rlconform.certify.scenarios.partition import PartitionUnderTest, expect_ids

#: More calls of one kind than a byte can number.
MANY = 300
#: The part of a check's time in which it makes them.
TIME_SHARE = 1 / 30
IDS = ["u0_g0", "u0_g1", "u1_g0", "u1_g1"]
TAGS = [{"v": n, "input_lengths": n + 1} for n, _ in enumerate(IDS)]

Call = Callable[[PartitionUnderTest], object]


def _put_and_claim_half(part: PartitionUnderTest) -> None:
    """Put four rows, of which ``train`` has claimed the first two; ``prev_lp`` none."""
    part.put_labeled(IDS[:2], tags=TAGS[:2])
    expect_ids(part.claim("train"), IDS[:2], "rows claimed before")
    part.put_labeled(IDS[2:], tags=TAGS[2:])


def _expect_nothing_else(part: PartitionUnderTest, what: str) -> None:
    """Expect the state that ``_put_and_claim_half`` left, and calls to work as ever."""
    part.expect_labeled(IDS[::-1])
    expect(not part.consumed("train"), f"a row unconsumed after {what}", "status True")
    for task, left in (("train", IDS[2:]), ("prev_lp", IDS)):
        claimed = part.claim(task)
        expect_ids(claimed, left, f"rows that {task!r} claims after {what}")
        due = {i: tags for i, tags in zip(IDS, TAGS, strict=True) if i in left}
        expect_equal(tags_by_id(claimed), due, f"tags after {what}")
    expect(part.consumed("train", "prev_lp"), f"all rows consumed after {what}", "status False")
    part.clear(IDS[:1])
    part.put_labeled(IDS[:1], version=1, tags=[{"again": 1}])
    expect_ids(part.claim("train"), IDS[:1], f"rows put after {what}")
    part.expect_labeled(IDS[:1], version=1)
    part.expect_labeled(IDS[1:])


def check_many(part: PartitionUnderTest, call: Call) -> None:
    """Make a call many times, and expect rows, tags and claims as before."""
    _put_and_claim_half(part)
    made = 0
    for _ in part.rounds(MANY, TIME_SHARE):
        call(part)
        made += 1
    _expect_nothing_else(part, f"{made} such calls")
