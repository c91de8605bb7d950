"""CLAIM with more claims in a row, and more claimed rows, than a GRPO step has."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest
import torch

from rlconform.certify.assertions.expect import expect, expect_equal
from rlconform.certify.plugin.markers import requirement
from rlconform.certify.scenarios.large_step import STEP_ROWS
from rlconform.certify.scenarios.partition import TASKS, PartitionUnderTest, expect_ids

#: More claims than a step makes.
MANY_CLAIMS = 300


@requirement("CLAIM-02")
def test_many_claims_in_a_row_return_each_row_once(
    new_partition: Callable[..., PartitionUnderTest],
) -> None:
    part = new_partition(num_samples=MANY_CLAIMS)
    ids = [f"r{n}" for n in range(MANY_CLAIMS)]
    part.put_labeled(ids)
    claimed = [i for _ in ids for i in part.claim(batch_size=1).sample_ids]
    expect_equal(Counter(claimed), Counter(ids), f"rows of {MANY_CLAIMS} claims of one row each")
    expect_equal(part.claim(batch_size=1).sample_ids, [], f"rows of claim {MANY_CLAIMS + 1}")
    expect(part.consumed(), "every row consumed", f"False after {MANY_CLAIMS} claims")


#: Puts, and rows of each: many times as many rows as the partition is registered for.
PUTS, ROWS = 12, 100


@requirement("CLAIM-09", leans_on=("REG-07",))
@pytest.mark.parametrize("read", [False, True], ids=["claimed", "claimed_and_read"])
def test_rows_that_all_tasks_have_claimed_stay_while_others_follow(
    new_partition: Callable[..., PartitionUnderTest], read: bool
) -> None:
    """Planes with room for so many rows may take that of rows which every task has claimed."""
    part = new_partition(num_samples=4)
    ids = [f"r{n}" for n in range(PUTS * ROWS)]
    for start in range(0, len(ids), ROWS):
        part.put(ids[start : start + ROWS], x=torch.arange(start, start + ROWS))
        for task in TASKS:
            meta = part.claim(task, batch_size=ROWS)
            if read:
                part.get_data(meta)
    expect(part.consumed(*TASKS), "every row consumed", "False")
    part.expect_rows(ids, x=list(torch.arange(len(ids))))
    part.expect_rows_by_meta(ids[:ROWS], x=list(torch.arange(ROWS)))


@requirement("CLAIM-04")
def test_a_claim_takes_the_rows_of_very_many_puts(
    new_partition: Callable[..., PartitionUnderTest],
) -> None:
    part = new_partition(num_samples=MANY_CLAIMS)
    ids = [f"r{n}" for n in range(MANY_CLAIMS)]
    for sample_id in ids:
        part.put_labeled([sample_id])
    claimed = part.claim(batch_size=MANY_CLAIMS).sample_ids
    expect_equal(Counter(claimed), Counter(ids), f"rows of one claim after {MANY_CLAIMS} puts")


@requirement("CLAIM-04", leans_on=("PUT-12",))
@pytest.mark.parametrize("asked", [1, 5])
@pytest.mark.parametrize("rows", [300, STEP_ROWS])
def test_ready_rows_are_found_behind_many_that_are_not(
    new_partition: Callable[..., PartitionUnderTest], rows: int, asked: int
) -> None:
    """Planes that look at the oldest rows first must look at the others too."""
    part, ids = new_partition(num_samples=rows), [f"r{n}" for n in range(rows)]
    part.put(ids, x=torch.arange(len(ids)))
    part.put(ids[-5:], y=torch.arange(5))
    claimed = part.claim("train", ["x", "y"], asked).sample_ids
    expect_equal(len(claimed), asked, f"rows with both fields, the newest of {rows}")
    expect_ids(part.claim("prev_lp", ["x", "y"], rows), ids[-5:], "all rows with both fields")


@requirement("CLAIM-02", leans_on=("CLAIM-07", "STAT-01"))
@pytest.mark.parametrize("rows", [300, STEP_ROWS])
def test_rows_that_a_claim_passed_over_are_claimed_once_they_are_ready(
    new_partition: Callable[..., PartitionUnderTest], rows: int
) -> None:
    """A trainer polls while all rows of a step lack a field: planes may note which they saw."""
    part, ids = new_partition(num_samples=rows), [f"r{n}" for n in range(rows)]
    part.put(ids, x=torch.arange(rows))
    for _ in range(2):
        expect_ids(part.claim("train", ["x", "y"], rows), [], "rows that lack y")
    third = rows // 3
    for some in (ids[third:], ids[:third]):
        part.put(some[::-1], y=torch.arange(len(some)))
    claimed = part.claim_all("train", ["x", "y"], 4096)
    expect_equal(sorted(claimed), sorted(ids), "all rows, once they have y")
    expect_equal(part.consumed("train"), True, "status once all rows are claimed")


@requirement("CLAIM-02", leans_on=("REG-07", "STAT-01"))
@pytest.mark.parametrize("first", [60, 2000])
def test_rows_beyond_those_announced_are_claimed_after_others_were(
    new_partition: Callable[..., PartitionUnderTest], first: int
) -> None:
    """Planes that make room for more rows must mark none of these as claimed."""
    part, ids = new_partition(num_samples=8), [f"r{n}" for n in range(3 * first)]
    for start in range(0, len(ids), first):
        some = ids[start : start + first]
        part.put(some, x=torch.arange(len(some)))
        claimed = part.claim_all("train", ["x"], 4096)
        expect_equal(sorted(claimed), sorted(some), f"rows put after {start} others were claimed")
    expect_equal(part.consumed("train"), True, "status once all rows are claimed")


#: Rows of a claim, characters of each row's id, and of its tag: above 8 MiB in one answer.
LONG = {
    "many_tags": (4096, 0, 2100),
    "long_tags": (40, 0, 220_000),
    "long_ids": (4096, 2100, 0),
}


@requirement("CLAIM-02", leans_on=("CLAIM-04", "TAG-01"))
@pytest.mark.parametrize(("rows", "of_id", "of_tag"), LONG.values(), ids=LONG)
def test_claims_with_megabytes_of_ids_and_tags_return_each_row_once(
    new_partition: Callable[..., PartitionUnderTest], rows: int, of_id: int, of_tag: int
) -> None:
    """A prompt or an answer may be a tag. Planes that cut a large answer claim the rest as well."""
    part = new_partition(num_samples=rows)
    ids = [f"{n:05}{'i' * of_id}" for n in range(rows)]
    texts = {one: f"{n}{'t' * of_tag}" for n, one in enumerate(ids)}
    part.put(ids, [{"text": texts[one]} for one in ids], x=torch.arange(rows))
    claimed: list[str] = []
    while len(claimed) <= rows and (meta := part.claim(batch_size=rows)).sample_ids:
        claimed += meta.sample_ids
        tags = [tags["text"] for tags in meta.tags or []]
        right = tags == [texts[one] for one in meta.sample_ids]
        expect(right, f"the tags of {len(meta.sample_ids)} claimed rows", "others")
    missing = len({*ids} - {*claimed})
    expect(missing == 0, f"all of {rows} rows to be claimed", f"{missing} that no claim returned")
    expect_equal(len(claimed), rows, "number of rows claimed")
    expect(part.consumed(), "every row consumed", "False")


@requirement("CLAIM-07", leans_on=("CLAIM-04", "PUT-12"))
@pytest.mark.parametrize("every", [2, 3])
@pytest.mark.parametrize("rows", [300, 4096])
def test_rows_between_claimed_ones_are_claimed_once_they_are_ready(
    new_partition: Callable[..., PartitionUnderTest], rows: int, every: int
) -> None:
    """Planes that keep claimed rows as ranges, or as a count, may count what lies between them."""
    part, ids = new_partition(num_samples=rows), [f"r{n}" for n in range(rows)]
    part.put(ids, x=torch.arange(rows))
    for first in range(every):
        expect(not part.consumed(), f"rows from {first} on not yet consumed", "True")
        ready = ids[first::every]
        part.put(ready, y=torch.arange(len(ready)))
        claimed = part.claim("train", ["x", "y"], rows).sample_ids
        expect_equal(
            (len(claimed), sorted(claimed) == sorted(ready)),
            (len(ready), True),
            f"number of rows claimed, and whether they are every {every}. row from {first} on:",
        )
    expect(part.consumed(), "every row consumed", "False")
