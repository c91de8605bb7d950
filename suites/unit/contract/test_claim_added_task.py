"""CLAIM-03: a task that a later registration adds gets every row, whatever happened to the rows.

An evaluation that is switched on in the middle of a run registers a task of its own.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from rlconform.certify.assertions.expect import expect_equal, is_rejected
from rlconform.certify.plugin.markers import requirement
from rlconform.certify.scenarios.partition import PartitionUnderTest, expect_ids

IDS = [f"u{i // 2}_g{i % 2}" for i in range(6)]
TAGS = [{"v": i} for i in range(len(IDS))]


def several_puts(part: PartitionUnderTest) -> None:
    """Put the fields one by one, of some rows in another order."""
    part.put_labeled(IDS[:3], "x")
    part.put_labeled(IDS, "y")
    part.put_labeled(IDS[3:], "x")


def overwritten(part: PartitionUnderTest) -> None:
    """Put the rows, and half of them again once a task has claimed them."""
    part.put_labeled(IDS, "x", "y")
    part.claim("train", batch_size=len(IDS))
    part.put_labeled(IDS[::2], "x", version=1)


def tagged(part: PartitionUnderTest) -> None:
    """Announce half of the rows by tags, and stamp the others after they were claimed."""
    part.put(IDS[:3], tags=TAGS[:3])
    part.put_labeled(IDS, "x", "y")
    part.claim("train", batch_size=len(IDS))
    part.put(IDS[3:], tags=TAGS[3:])


def put_again(part: PartitionUnderTest) -> None:
    """Clear half of the rows, some claimed and some not, and put them again."""
    part.put_labeled(IDS, "x", "y")
    part.claim("train", batch_size=3)
    part.clear(IDS[1:4])
    part.put_labeled(IDS[1:4], "x", "y")


HISTORIES = (several_puts, overwritten, tagged, put_again)


@requirement("CLAIM-03", leans_on=("REG-08",))
@pytest.mark.parametrize("history", HISTORIES, ids=lambda history: history.__name__)
def test_an_added_task_gets_rows_of_every_history(
    new_partition: Callable[..., PartitionUnderTest], history: Callable[[PartitionUnderTest], None]
) -> None:
    part = new_partition(tasks=["train"], earlier_rows=False)
    history(part)
    part.register(tasks=["train", "added"])
    if is_rejected(lambda: part.get(IDS, "x", "y")):
        return  # the registration dropped the rows, which REG-08 judges
    claimed = part.claim("added", ["x", "y"], len(IDS))
    expect_ids(claimed, IDS, "rows that a task claims which was added since")
    expect_equal(part.consumed("added"), True, "the status of the added task once it has them:")
