"""CLEAR-01: the rows that a clear of most rows leaves keep all that belongs to them.

Planes that free memory in larger units than rows move what is left of a unit once most of it is
cleared.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from rlconform.certify.assertions.expect import expect_equal, leaning_on
from rlconform.certify.plugin.markers import requirement
from rlconform.certify.scenarios.normalize_metas import tags_by_id
from rlconform.certify.scenarios.partition import PartitionUnderTest, expect_ids
from rlconform.wire import stack_or_nest

ROWS = 64
IDS = [f"u{n // 4}_g{n % 4}" for n in range(ROWS)]
#: Rows of a step of many prompts.
MANY = 2048

#: The rows that are left, by their place in the put.
LEFT = {
    "first_middle_last": [0, 31, 63],
    "last": [63],
    "every_seventh": list(range(3, ROWS, 7)),
    "a_run": list(range(20, 30)),
}
left_rows = pytest.mark.parametrize("left", LEFT.values(), ids=LEFT)
TASKS = ("train", "prev_lp", "ref_lp", "audit")


def cleared_but_for(
    new_partition: Callable[..., PartitionUnderTest], left: list[int], claims: tuple[str, ...]
) -> tuple[PartitionUnderTest, list[str]]:
    """Put rows at once, claim them for some tasks, and clear all but those that are left."""
    part = new_partition(fields=["x", "y"], tasks=TASKS, num_samples=ROWS)
    part.put_labeled(IDS, "x", "y", tags=[{"number": n} for n in range(ROWS)])
    for task in claims:
        part.claim(task)
    kept = [IDS[n] for n in left]
    part.clear([i for i in IDS if i not in kept])
    return part, kept


@requirement("CLEAR-01")
@left_rows
def test_the_few_rows_that_are_left_stay_claimed_by_every_task(
    new_partition: Callable[..., PartitionUnderTest], left: list[int]
) -> None:
    part, kept = cleared_but_for(new_partition, left, TASKS[:3])
    for task in TASKS[:3]:
        again = part.claim(task, batch_size=len(kept)).sample_ids
        expect_equal(again, [], f"rows that {task} claims again after a clear of the others")
    expect_equal(part.consumed(*TASKS[:3]), True, f"the status of {list(TASKS[:3])}")
    expect_equal(part.consumed(*TASKS), False, f"the status of {list(TASKS)}, without a claim of")


@requirement("CLEAR-01", leans_on=("CLAIM-04",))
@left_rows
def test_the_few_rows_that_are_left_keep_their_values_and_tags(
    new_partition: Callable[..., PartitionUnderTest], left: list[int]
) -> None:
    part, kept = cleared_but_for(new_partition, left, TASKS[:1])
    part.expect_labeled(kept[::-1], "x", "y")
    with leaning_on("TAG-01"):
        tags = tags_by_id(part.claim("ref_lp", ["y"], batch_size=len(kept)))
        expect_equal(tags, {IDS[n]: {"number": n} for n in left}, "tags of the rows that are left")
    part.put_labeled(kept, "x", version=1)
    part.expect_labeled(kept, "x", version=1)
    part.expect_labeled(kept, "y")
    part.expect_absent([i for i in IDS if i not in kept][:2])


@requirement("CLEAR-01", leans_on=("PUT-06", "CLAIM-04"))
@pytest.mark.parametrize("unit", [1, 1000], ids=["small", "large"])
@left_rows
def test_the_few_rows_that_are_left_keep_values_without_elements(
    new_partition: Callable[..., PartitionUnderTest], left: list[int], unit: int
) -> None:
    """Planes that move what is left may take a row without bytes for another, or for none."""
    part = new_partition(fields=["x", "y"], tasks=TASKS, num_samples=ROWS)
    lengths = [0 if n in left[::2] else unit * (n % 5 + 1) for n in range(ROWS)]
    rows = [torch.arange(length) + n for n, length in enumerate(lengths)]
    part.put(IDS, x=stack_or_nest(rows), y=torch.zeros(ROWS))
    kept = [IDS[n] for n in left]
    part.clear([i for i in IDS if i not in kept])
    part.expect_rows(kept, x=[rows[n] for n in left])
    claimed = part.claim("train", ["x", "y"], batch_size=len(kept))
    expect_ids(claimed, kept, "rows that are left")


@requirement("CLEAR-01", leans_on=("PUT-17", "TAG-02", "CLAIM-04"))
@left_rows
@pytest.mark.parametrize("field", ["", "y"], ids=["tags_only", "one_field"])
def test_unfinished_rows_stay_when_all_finished_ones_are_cleared(
    new_partition: Callable[..., PartitionUnderTest], left: list[int], field: str
) -> None:
    """Planes that move the finished rows of a unit may drop a row that has only tags, or a field.

    Two steps are cleared: more rows than are left, and more than a small page.
    """
    part = new_partition(fields=["x", "y"], tasks=TASKS, num_samples=ROWS)
    kept = [f"later_{n}" for n in left]
    tags = [{"number": n} for n in left]
    part.put_labeled(IDS, "x", "y")
    if field:
        part.put_labeled(kept, field, tags=tags)
    else:
        part.put(kept, tags)
    more = [f"more_{i}" for i in IDS]
    part.put_labeled(more, "x", "y")
    for step in (IDS, more):
        part.claim("train", batch_size=ROWS)
        part.clear(step)
    if field:
        part.expect_labeled(kept, field)
    part.put_labeled(kept, "x")
    for task in TASKS:
        claimed = part.claim(task, ["x"], batch_size=len(kept))
        expect_ids(claimed, kept, "rows that were finished later")
        due = dict(zip(kept, tags, strict=True))
        expect_equal(tags_by_id(claimed), due, "tags of rows that were finished later")
    part.expect_labeled(kept, "x")


@requirement("CLEAR-01", leans_on=("PUT-17", "CLAIM-04"))
@pytest.mark.parametrize("size", [4, 16])
def test_a_large_clear_leaves_each_row_of_a_group_that_it_does_not_name(
    new_partition: Callable[..., PartitionUnderTest], size: int
) -> None:
    """A filter keeps the best answer of each prompt, which may be any one of its group.

    Planes that write a large clear as ranges of ids, or by group, drop what lies between.
    """
    part = new_partition(fields=["x", "y"], tasks=TASKS, num_samples=MANY)
    groups = range(MANY // size)
    ids = [f"u{group}_g{member}" for group in groups for member in range(size)]
    kept = [f"u{group}_g{group % size}" for group in groups]
    part.put_labeled(ids, "x")
    part.claim("train", ["x"], batch_size=MANY)
    stay = set(kept)
    part.clear([one for one in ids if one not in stay])
    part.expect_labeled(kept, "x")
    claimed = part.claim("prev_lp", ["x"], batch_size=len(kept))
    expect_ids(claimed, kept, "rows that a large clear did not name")
    again = part.claim("train", ["x"], batch_size=len(kept)).sample_ids
    expect_equal(again, [], "rows claimed again after a large clear of others")


@requirement("CLEAR-03", leans_on=("PUT-17",))
@pytest.mark.parametrize("bare", [[0], [70], list(range(0, 200, 50))], ids=str)
def test_everything_is_dropped_though_some_rows_have_tags_only(
    new_partition: Callable[..., PartitionUnderTest], bare: list[int]
) -> None:
    """Planes that clear page by page may stop at a page with a row that has no fields."""
    part, ids = new_partition(num_samples=200), [f"r{n}" for n in range(200)]
    part.put(ids, [{"step": 1}] * len(ids))
    produced = [i for n, i in enumerate(ids) if n not in bare]
    part.put(produced, x=torch.arange(len(produced)))
    part.clear(None)
    part.register()  # clearing everything may end the registration
    for start in range(0, len(produced), 13):
        part.expect_absent(produced[start : start + 1])


#: The rows of a prompt.
GROUP = [f"u0_g{n}" for n in range(8)]


@requirement("CLEAR-01")
@pytest.mark.parametrize("elements", [4, 300, 20_000], ids=["bytes", "kilobytes", "more"])
@pytest.mark.parametrize("puts", ["one_put", "two_puts", "overwritten"])
def test_a_cleared_row_takes_nothing_from_rows_that_equal_it(
    part: PartitionUnderTest, puts: str, elements: int
) -> None:
    """The rows of a group share a prompt; a plane that stores it once must count their rows."""
    prompt = torch.arange(elements)
    ragged = [prompt, *[prompt[1:]] * 7]
    if puts == "overwritten":
        part.put_labeled(GROUP, "x", "y")
    for some in (GROUP[:4], GROUP[4:]) if puts == "two_puts" else (GROUP,):
        rows = [ragged[GROUP.index(i)] for i in some]
        part.put(some, x=prompt.expand(len(some), -1), y=stack_or_nest(rows))
    left = list(range(8))
    for n in (0, 5, 2):
        part.clear([GROUP[n]])
        left.remove(n)
        kept = [GROUP[i] for i in left]
        part.expect_rows(kept, x=[prompt] * len(left), y=[ragged[i] for i in left])
    part.put([GROUP[5]], x=prompt.unsqueeze(0) + 1)
    part.expect_rows([GROUP[i] for i in left], x=[prompt] * len(left))
