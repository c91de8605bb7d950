"""PUT-13: an overwrite that differs from the old value in one place is stored.

Planes that skip a put of what they hold already may compare by less than the whole: by a hash of
the beginning and the end, by a sample, by a sum.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch

from rlconform.certify.assertions.expect import expect_objects
from rlconform.certify.plugin.markers import requirement
from rlconform.certify.scenarios.partition import PartitionUnderTest
from rlconform.certify.scenarios.refusable_objects import put_unless_refused
from rlconform.contract import Target
from rlconform.wire import object_array, rows_of, stack_or_nest

#: Lengths of the rows of a column: many short rows, rows of a page, few large ones; ragged ones.
LENGTHS = {
    "short": [8] * 64,
    "pages": [1024] * 16,
    "large": [1 << 17] * 3,
    "ragged": [700 + 7 * n for n in range(16)],
}

#: Where an overwrite differs, as a part of the column.
PLACES = [0.0, 0.3, 0.5, 0.8, 1.0]


@requirement("PUT-13")
@pytest.mark.parametrize("lengths", LENGTHS.values(), ids=LENGTHS)
def test_an_overwrite_that_differs_in_one_element_is_stored(
    part: PartitionUnderTest, lengths: list[int]
) -> None:
    ids = [f"r{n}" for n in range(len(lengths))]
    tokens = torch.arange(sum(lengths), dtype=torch.int32)
    part.put(ids, x=stack_or_nest(list(tokens.split(lengths))))
    for place in PLACES:
        tokens[round(place * (len(tokens) - 1))] += 1
        rows = list(tokens.split(lengths))
        part.put(ids, x=stack_or_nest(rows))
        part.expect_rows(ids, x=rows)


@requirement("PUT-13")
def test_an_overwrite_that_exchanges_two_rows_is_stored(part: PartitionUnderTest) -> None:
    ids, column = [f"r{n}" for n in range(16)], torch.arange(16 * 1024).reshape(16, 1024)
    part.put(ids, x=column)
    column = column[[*range(7), 8, 7, *range(9, 16)]]
    part.put(ids, x=column)
    part.expect_rows(ids, x=list(column))


@requirement("PUT-13", leans_on=("PUT-21",))
def test_an_overwrite_that_differs_within_one_object_is_stored(
    part: PartitionUnderTest, target: Target
) -> None:
    ids, texts = ["r0", "r1", "r2"], ["a" * 20_000, "b" * 20_000, "c" * 20_000]
    if not put_unless_refused(part, target, ids, log=object_array([[text] for text in texts])):
        return
    texts[1] = "b" * 10_000 + "!" + "b" * 9_999
    part.put(ids, log=object_array([[text] for text in texts]))
    expect_objects(part.get(ids, "log"), "log", [[text] for text in texts])


#: Columns whose rows are equal, so that a plane may store one value for all of them.
EQUAL_ROWS: dict[str, Callable[[int], torch.Tensor]] = {
    "expanded": lambda width: torch.arange(width).expand(4, width),
    "expanded_numbers": lambda width: torch.tensor(width).expand(4),
    "repeated": lambda width: torch.arange(width).repeat(4, 1),
    "jagged": lambda width: stack_or_nest([torch.arange(width)] * 3 + [torch.arange(width + 1)]),
}


@requirement("PUT-13", scattered=False)
@pytest.mark.parametrize("width", [8, 1 << 15], ids=["small", "large"])
@pytest.mark.parametrize("make", EQUAL_ROWS.values(), ids=EQUAL_ROWS)
def test_an_overwrite_of_one_of_several_equal_rows_leaves_the_others(
    part: PartitionUnderTest, make: Callable[[int], torch.Tensor], width: int
) -> None:
    ids, column = ["r0", "r1", "r2", "r3"], make(width)
    rows = [row.clone() for row in rows_of(column)]
    part.put(ids, x=column)
    for n in (1, 0, 2):
        rows[n] = rows[n] + 1 + n
        part.put(ids[n : n + 1], x=torch.stack([rows[n]]))
        part.expect_rows(ids, x=rows)


@requirement("PUT-13", leans_on=("PUT-09",))
@pytest.mark.parametrize("width", [8, 1 << 15], ids=["small", "large"])
def test_an_array_that_numpy_fills_again_is_stored_anew(
    part: PartitionUnderTest, width: int
) -> None:
    """Torch counts its own writes to a tensor, and so a plane may miss those of numpy."""
    ids, array = ["r0", "r1", "r2"], np.zeros((3, width), dtype=np.int32)
    column = torch.from_numpy(array)
    for version in range(3):
        array[:] = np.arange(width) + version
        part.put(ids, x=column)
        array[:] = -1
        part.expect_rows(ids, x=[torch.arange(width, dtype=torch.int32) + version] * 3)


@requirement("PUT-13", leans_on=("PUT-23",))
@pytest.mark.parametrize("cleared", ["first", "last"])
def test_all_rows_that_are_left_after_a_clear_take_another_dtype(
    part: PartitionUnderTest, cleared: str
) -> None:
    """Planes that count the rows of a dtype may still count those that were cleared."""
    ids = ["a", "b", "c", "d"]
    part.put(ids, x=torch.arange(4))
    gone = ids[:1] if cleared == "first" else ids[-1:]
    part.clear(gone)
    left, halves = [i for i in ids if i not in gone], torch.tensor([0.5, 1.5, 2.5])
    part.put(left, x=halves)
    part.expect_rows(left, x=list(halves))
