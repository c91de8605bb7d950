"""GET of selections for which a backend may take a short cut: ranges, gaps, pages, pools.

A read that is right for a few rows or in one order may be wrong for many rows or in another.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest
import torch

from rlconform.certify.assertions.expect import expect, expect_equal
from rlconform.certify.plugin.markers import requirement
from rlconform.certify.recording.recorder import MAX_CALLS
from rlconform.certify.scenarios.partition import PartitionUnderTest
from rlconform.certify.scenarios.repeated_calls import IDS, Call, check_many
from rlconform.contract import KVBatchMeta
from rlconform.wire import rows_of

#: More rows than a backend puts into one page or one range.
MANY = 600


def numbered(new_partition: Callable[..., PartitionUnderTest]) -> PartitionUnderTest:
    """Return a new partition in which row ``r<n>`` has the number ``n`` as ``x``."""
    part = new_partition(num_samples=MANY)
    part.put([f"r{n}" for n in range(MANY)], x=torch.arange(MANY))
    return part


def shuffled_inside(first: int, last: int) -> list[int]:
    """Return the numbers of a range with its ends in place and the others shuffled."""
    order = torch.randperm(last - first - 1, generator=torch.Generator().manual_seed(0))
    return [first, *(first + 1 + int(i) for i in order), last]


@requirement("GET-01")
@pytest.mark.parametrize("span", [(0, 40), (100, 400), (0, MANY - 1)], ids=str)
def test_rows_between_the_ends_of_a_range_are_returned_in_the_order_asked(
    new_partition: Callable[..., PartitionUnderTest], span: tuple[int, int]
) -> None:
    part = numbered(new_partition)
    first, last = span
    every_second = [*range(first, last, 2), last]
    for order in (shuffled_inside(first, last), every_second):
        part.expect_rows([f"r{n}" for n in order], x=list(torch.tensor(order)))
        part.expect_rows_by_meta([f"r{n}" for n in order], x=list(torch.tensor(order)))


@requirement("GET-02")
def test_an_id_repeated_between_the_ends_of_a_range_repeats_or_is_rejected(
    new_partition: Callable[..., PartitionUnderTest],
) -> None:
    part = numbered(new_partition)
    order = [0, *([7] * 98), 99]  # as many as the range from the first to the last
    try:
        batch = part.get([f"r{n}" for n in order], "x")
    except Exception:  # noqa: BLE001 - a plane may refuse repeated ids
        return
    expect_equal(batch["x"].tolist(), order, "rows of a read with a repeated id")


@requirement("GET-13")
@pytest.mark.parametrize("elements", [1 << 10, 1 << 18], ids=["small", "large"])
def test_a_column_outlives_the_batch_that_it_was_read_in(
    part: PartitionUnderTest, elements: int
) -> None:
    ids = ["r0", "r1", "r2", "r3"]
    part.put(ids, x=torch.arange(4).repeat_interleave(elements).reshape(4, elements))
    for _ in range(MAX_CALLS):  # the recording keeps the batches of so many calls alive
        part.client.check_consumption_status(partition_id=part.id, task_names=["train"])
    kept = part.get(ids[:2], "x")["x"]
    for _ in range(3):  # the batch is gone, and a plane that lends buffers may reuse its own
        part.get(ids[2:], "x")
    got = [[int(row[0]), int(row[-1])] for row in rows_of(kept)]
    expect(got == [[0, 0], [1, 1]], "a column as it was read, after later reads", str(got))


#: Puts whose rows one read returns: more than a byte can number, or a list of segments holds.
MANY_PUTS = 1_100


@requirement("GET-01")
def test_rows_of_very_many_puts_are_read_at_once(
    new_partition: Callable[..., PartitionUnderTest],
) -> None:
    """Planes that number the messages of which a read is made up may run out of numbers."""
    part, made = new_partition(num_samples=MANY_PUTS), list[int]()
    for number in part.rounds(MANY_PUTS):
        part.put([f"r{number}"], x=torch.tensor([number]))
        made.append(number)
    for order in (made, made[::-1], Random(0).sample(made, len(made))):
        part.expect_rows([f"r{number}" for number in order], x=list(torch.tensor(order)))


#: Calls that change nothing.
IDLE: dict[str, Call] = {
    "reads": lambda part: part.get(IDS, "x"),
    "reads_by_meta": lambda part: part.get_data(KVBatchMeta(part.id, None, IDS[:1], ["x"])),
    "claims_of_nothing": lambda part: part.claim("train", ["y"]),
    "statuses": lambda part: part.consumed("train", "prev_lp"),
    "empty_puts": lambda part: part.put([], x=torch.ones(0, 4)),
    "clears_of_unknown_rows": lambda part: part.clear(["ghost"]),
    "clears_of_no_rows": lambda part: part.clear([]),
}


@requirement("GET-08", leans_on=("CLAIM-04", "PUT-18", "CLEAR-02"), scattered=False)
@pytest.mark.parametrize("kind", IDLE)
def test_very_many_idle_calls_change_nothing(part: PartitionUnderTest, kind: str) -> None:
    check_many(part, IDLE[kind])
