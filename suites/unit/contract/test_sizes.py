"""What small batches don't show: pages, chunks and caches of a plane end somewhere."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from rlconform.certify.assertions.values import (
    expect_column,
    expect_equal,
    expect_rows_but_first,
    overwrite_first,
)
from rlconform.certify.plugin.markers import requirement
from rlconform.certify.scenarios.consumers import expect_waiting
from rlconform.certify.scenarios.partition import PartitionUnderTest, expect_ids, expect_unreadable
from rlconform.certify.threads import BackgroundCall
from rlconform.contract import KVBatchMeta
from rlconform.wire import stack_or_nest

#: Rows of one step, as a run of 96 prompts with 16 answers each has them.
MANY = [f"u{n // 16}_g{n % 16}" for n in range(1536)]
#: Beyond what transports copy rather than map: 100 KiB and less.
LARGE = 3 << 16


@pytest.fixture
def step(new_partition: Callable[..., PartitionUnderTest]) -> PartitionUnderTest:
    """A partition with many rows of one number each."""
    part = new_partition(num_samples=len(MANY))
    part.put(MANY, x=torch.arange(len(MANY)))
    return part


@requirement("GET-01")
def test_the_rows_of_a_whole_step_come_in_the_order_asked(step: PartitionUnderTest) -> None:
    order = torch.randperm(len(MANY), generator=torch.Generator().manual_seed(0))
    asked = [MANY[i] for i in order]
    step.expect_rows(asked, x=list(order))
    step.expect_rows_by_meta(asked, x=list(order))


@requirement("CLAIM-04")
def test_a_whole_step_is_claimed_at_once(step: PartitionUnderTest) -> None:
    expect_ids(step.claim(batch_size=len(MANY)), MANY, f"{len(MANY)} rows ready, as many asked for")


@requirement("CLAIM-05")
def test_a_claim_waits_for_a_whole_step(new_partition: Callable[..., PartitionUnderTest]) -> None:
    part = new_partition(num_samples=len(MANY))
    part.put(MANY[:-1], x=torch.arange(len(MANY) - 1))
    waiting = BackgroundCall(
        lambda: part.claim(batch_size=len(MANY), blocking=True), "the blocked claim"
    )
    expect_waiting(waiting, part, "the last row", "an answer without it")
    part.put(MANY[-1:], x=torch.tensor([len(MANY) - 1]))
    came = waiting.result(part.timeouts.operation)
    expect_ids(came, MANY, f"{len(MANY)} rows of the woken claim")


@requirement("CLEAR-01")
def test_all_the_ids_given_are_dropped_however_many(step: PartitionUnderTest) -> None:
    step.clear(MANY[1:])
    for sample_id in (MANY[1], MANY[700], MANY[-1]):
        expect_unreadable(lambda i=sample_id: step.get([i], "x"), sample_id, "x")
    expect_equal(step.claim().sample_ids, MANY[:1], "rows left")
    step.expect_rows(MANY[:1], x=[torch.tensor(0)])


@requirement("CLEAR-03")
def test_none_drops_a_whole_step(step: PartitionUnderTest) -> None:
    step.clear(None)
    for sample_id in (MANY[0], MANY[700], MANY[-1]):
        expect_unreadable(lambda i=sample_id: step.get([i], "x"), sample_id, "x")
    step.register()  # a clear of everything may end the registration, or keep it
    expect_equal(step.claim().sample_ids, [], "rows left")


# -- large rows ----------------------------------------------------------------------------------

IDS = ["u0_g0", "u0_g1", "u1_g0"]
LAYOUTS = {"dense": (LARGE, LARGE, LARGE), "ragged": (LARGE, 1, LARGE + 1)}


def rows_of_length(lengths: tuple[int, ...]) -> list[torch.Tensor]:
    return [torch.full((n,), float(row)) for row, n in enumerate(lengths)]


@requirement("PUT-09")
@pytest.mark.parametrize("lengths", LAYOUTS.values(), ids=LAYOUTS)
def test_changing_the_callers_large_tensor_changes_nothing_stored(
    part: PartitionUnderTest, lengths: tuple[int, ...]
) -> None:
    rows, theirs = rows_of_length(lengths), torch.cat(rows_of_length(lengths))
    offsets = torch.tensor([0, *lengths]).cumsum(0)
    ragged = torch.nested.nested_tensor_from_jagged(theirs, offsets)
    part.put(IDS, x=theirs.reshape(3, -1) if len(set(lengths)) == 1 else ragged)
    theirs.fill_(9)
    part.expect_rows(IDS, x=rows)


@requirement("PUT-09")
@pytest.mark.parametrize("lengths", LAYOUTS.values(), ids=LAYOUTS)
@pytest.mark.parametrize("read", ["get_samples", "get_data"])
def test_changing_large_rows_that_were_read_changes_nothing_stored(
    part: PartitionUnderTest, lengths: tuple[int, ...], read: str
) -> None:
    rows = rows_of_length(lengths)
    part.put(IDS, x=stack_or_nest(rows))
    meta = KVBatchMeta(part.id, None, IDS, fields=["x"])
    batch = part.get_data(meta) if read == "get_data" else part.get(IDS, "x")
    expect_column(batch, "x", rows)
    overwrite_first(batch, "x")
    expect_rows_but_first(batch, "x", rows)
    part.expect_rows(IDS, x=rows)
    part.expect_rows_by_meta(IDS, x=rows)
