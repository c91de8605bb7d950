"""PUT across processes: rows of a large step that several processes put by turns.

Planes join the columns of several writers page by page, by codes or by lists of a limited length.
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
from rlconform.certify.scenarios.two_processes import Actors, each_pair, looker_and_changer
from rlconform.contract import Target
from rlconform.wire import object_array

pytestmark = pytest.mark.large

#: Rows of the step, and of a put.
ROWS, OF_A_PUT = 2304, 256

IDS = [f"r{n}" for n in range(ROWS)]

#: Positions of rows, in orders in which a step is read.
ORDERS: dict[str, list[int]] = {
    "as_put": list(range(ROWS)),
    "reversed": list(range(ROWS))[::-1],
    "shuffled": Random(0).sample(range(ROWS), ROWS),
}


@pytest.fixture
def step(new_partition: Callable[..., PartitionUnderTest]) -> PartitionUnderTest:
    """Return a partition for the rows of a step."""
    return new_partition(fields=["x", "log"], num_samples=ROWS)


def views_of(part: PartitionUnderTest, actors: Actors) -> list[PartitionUnderTest]:
    """Return the partition as the owner and two other processes see it."""
    return [part, *(part.via(actor) for actor in actors(2))]


def turns(views: Sequence[PartitionUnderTest]) -> list[tuple[PartitionUnderTest, slice]]:
    """Return the rows of each put, with the process whose turn it is."""
    starts = range(0, ROWS, OF_A_PUT)
    return [
        (views[turn % len(views)], slice(start, start + OF_A_PUT))
        for turn, start in enumerate(starts)
    ]


def number_of(row: int) -> int:
    """Return one of 100 numbers of the row's writer, so that all have more than a byte counts."""
    return 100 * (row // OF_A_PUT % 3) + row % 100


@requirement("PUT-01", leans_on=("GET-01",))
@pytest.mark.parametrize("dtype", [torch.int64, torch.int16, torch.float32], ids=str)
def test_few_numbers_of_each_of_several_processes_are_read_together(
    step: PartitionUnderTest, actors: Actors, dtype: torch.dtype
) -> None:
    views = views_of(step, actors)
    rows = [torch.tensor(number_of(n), dtype=dtype) for n in range(ROWS)]
    for view, some in turns(views):
        view.put(IDS[some], x=torch.stack(rows[some]))
    for view, order in zip(views, ORDERS.values(), strict=True):
        view.expect_rows([IDS[n] for n in order], x=[rows[n] for n in order])


@requirement("PUT-06", leans_on=("PUT-05", "GET-01"))
def test_empty_rows_of_a_large_step_of_several_processes_stay_in_place(
    step: PartitionUnderTest, actors: Actors
) -> None:
    views = views_of(step, actors)
    rows = [torch.arange(n, n + n % 7) if n % OF_A_PUT else torch.arange(0) for n in range(ROWS)]
    for view, some in turns(views):
        view.put(IDS[some], x=jagged(rows[some]))
    for view, order in zip(views, ORDERS.values(), strict=True):
        view.expect_rows([IDS[n] for n in order], x=[rows[n] for n in order])


@requirement("PUT-21", leans_on=("GET-01",))
def test_objects_of_a_large_step_of_several_processes_come_back(
    step: PartitionUnderTest, actors: Actors, target: Target
) -> None:
    """Planes that move the oldest objects elsewhere must keep what JSON has not, such as keys."""
    views = views_of(step, actors)
    logs: list[Any] = [{n: f"turn {n % 5}", "score": n / 7} for n in range(ROWS)]
    for view, some in turns(views):
        if not put_or_leave_nothing(view, target, IDS[some], log=object_array(logs[some])):
            return
    for view, order in zip(views, ORDERS.values(), strict=True):
        got = view.get([IDS[n] for n in order], "log")
        expect_objects(got, "log", [logs[n] for n in order])


@requirement("PUT-13", leans_on=("GET-10",))
@each_pair
def test_a_large_put_that_is_made_again_replaces_what_another_process_put_since(
    new_partition: Callable[..., PartitionUnderTest], actors: Actors, pair: tuple[int, int]
) -> None:
    """A client that does not send the same values again keeps those of the other process."""
    part = new_partition(num_samples=OF_A_PUT)
    first, second = looker_and_changer(part, actors, pair)
    for _ in range(2):
        for version, writer in enumerate((first, second)):
            writer.put_labeled(IDS[:OF_A_PUT], version=version)
            for view in (first, second):
                view.expect_labeled(IDS[:OF_A_PUT], version=version)
