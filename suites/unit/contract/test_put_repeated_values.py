"""PUT-01, PUT-05, PUT-21: columns of many distinct values, each of which occurs several times.

Rewards, prompts and logs of a group repeat, so planes keep such a column as a dictionary and codes:
the codes must hold as many values as there are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import pytest
import torch

from rlconform.certify.assertions.expect import expect_objects
from rlconform.certify.plugin.markers import requirement
from rlconform.certify.scenarios.labeled_rows import jagged
from rlconform.certify.scenarios.partition import PartitionUnderTest
from rlconform.certify.scenarios.refusable_objects import put_or_leave_nothing
from rlconform.contract import Target
from rlconform.wire import object_array

#: Distinct values: one more than a byte counts, and more than other small tables hold.
DISTINCT = (257, 2500)
#: How often each occurs.
TIMES = 2

distinct = pytest.mark.parametrize("n", DISTINCT)


def repeated(n: int) -> list[int]:
    """Return the numbers below ``n``, each ``TIMES`` times, in any order."""
    numbers = list(range(n)) * TIMES
    Random(n).shuffle(numbers)
    return numbers


def ids_of(values: Sequence[object]) -> list[str]:
    """Return an id for each value."""
    return [f"r{at}" for at in range(len(values))]


#: Rows of tensor columns by their number.
ROWS: dict[str, Callable[[int], torch.Tensor]] = {
    "int64": lambda n: torch.tensor(n * 10**12),
    "float32": lambda n: torch.tensor(n / 7, dtype=torch.float32),
    "bfloat16": lambda n: torch.tensor(n, dtype=torch.int16).view(torch.bfloat16),
    "row": lambda n: torch.arange(n, n + 9, dtype=torch.int32),
}


@requirement("PUT-01")
@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)
@distinct
def test_many_distinct_rows_that_repeat_come_back(
    new_partition: Callable[..., PartitionUnderTest], row: Callable[[int], torch.Tensor], n: int
) -> None:
    rows = [row(number) for number in repeated(n)]
    part = new_partition(num_samples=len(rows))
    part.put(ids_of(rows), x=torch.stack(rows))
    part.expect_rows(ids_of(rows), x=rows)


@requirement("PUT-01")
def test_more_distinct_tokens_than_two_bytes_count_come_back(part: PartitionUnderTest) -> None:
    rows = list(torch.arange(70_000).repeat(TIMES).view(4, -1))
    part.put(ids_of(rows), x=torch.stack(rows))
    part.expect_rows(ids_of(rows), x=rows)


@requirement("PUT-05")
@distinct
def test_many_distinct_jagged_rows_that_repeat_come_back(
    new_partition: Callable[..., PartitionUnderTest], n: int
) -> None:
    rows = [torch.arange(number, number + number % 5) for number in repeated(n)]
    part = new_partition(num_samples=len(rows))
    part.put(ids_of(rows), x=jagged(rows))
    part.expect_rows(ids_of(rows), x=rows)


#: Objects by their number.
OBJECTS: dict[str, Callable[[int], Any]] = {
    "texts": lambda n: f"prompt {n}",
    "long_texts": lambda n: f"prompt {n} " * 40,
    "numbers": lambda n: n,
    "logs": lambda n: [{"role": "user", "content": f"turn {n}"}],
}


@requirement("PUT-21")
@pytest.mark.parametrize("make", OBJECTS.values(), ids=OBJECTS)
@distinct
def test_many_distinct_objects_that_repeat_come_back(
    new_partition: Callable[..., PartitionUnderTest],
    target: Target,
    make: Callable[[int], Any],
    n: int,
) -> None:
    values = [make(number) for number in repeated(n)]
    part, ids = new_partition(num_samples=len(values)), ids_of(values)
    if put_or_leave_nothing(part, target, ids, log=object_array(values)):
        expect_objects(part.get(ids, "log"), "log", values)
