"""GET-01, 04, 05, 06, 13: rows that were read before are read again, or were read too early.

Planes remember where the rows of a read are, by something shorter than its list of ids.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from rlconform.certify.assertions.expect import (
    expect,
    expect_column,
    expect_equal,
    expect_lookup_error,
    is_rejected,
    leaf_of,
    overwrite,
    overwrite_first,
    tensors_equal,
)
from rlconform.certify.memory_usage import few_objects_to_collect
from rlconform.certify.plugin.markers import requirement
from rlconform.certify.scenarios.labeled_rows import labeled_rows
from rlconform.certify.scenarios.partition import PartitionUnderTest, expect_ids
from rlconform.certify.scenarios.read_ways import Way, either_way
from rlconform.certify.threads import BackgroundCall
from rlconform.contract import KVBatchMeta
from rlconform.wire import stack_or_nest
from rlconform.wire.jagged import as_read
from rlconform.wire.leaves import is_jagged

sizes = pytest.mark.parametrize("count", [4, 64, 600])


def put(
    new_partition: Callable[..., PartitionUnderTest], count: int
) -> tuple[PartitionUnderTest, list[str]]:
    """Put rows of an integer each, their number; return the partition and their ids."""
    part, ids = new_partition(num_samples=count), [f"r{n}" for n in range(count)]
    part.put(ids, x=torch.arange(count))
    return part, ids


@requirement("GET-01")
@either_way
@sizes
def test_rows_that_were_read_before_are_returned_in_another_order(
    new_partition: Callable[..., PartitionUnderTest], count: int, read: Way
) -> None:
    part, _ = put(new_partition, count)
    rows, middle = list(range(count)), count // 2
    orders = {
        "as put": rows,
        "reversed": rows[::-1],
        "inner rows reversed": [rows[0], *rows[-2:0:-1], rows[-1]],
        "two swapped": [*rows[: middle - 1], middle, middle - 1, *rows[middle + 1 :]],
        "without one": [*rows[:middle], *rows[middle + 1 :]],
        "without another": [*rows[: middle - 1], *rows[middle:]],
    }
    for order in [*orders.values(), rows]:
        batch = read(part, [f"r{row}" for row in order])
        expect_column(batch, "x", list(torch.tensor(order)))


@requirement("GET-06")
@either_way
@sizes
@pytest.mark.parametrize("gone", ["first", "middle", "last"])
def test_rows_that_were_read_before_raise_after_some_are_cleared(
    new_partition: Callable[..., PartitionUnderTest], count: int, gone: str, read: Way
) -> None:
    part, ids = put(new_partition, count)
    for _ in range(2):
        expect_column(read(part, ids), "x", list(torch.arange(count)))
    lost = {"first": 0, "middle": count // 2, "last": count - 1}[gone]
    part.clear([ids[lost]])
    expect_lookup_error(lambda: read(part, ids), f"a read whose {gone} row was cleared")
    left = [row for row in range(count) if row != lost]
    expect_column(read(part, [ids[row] for row in left]), "x", list(torch.tensor(left)))


@requirement("GET-13", changes_results=True)
@either_way
@pytest.mark.parametrize("count", [1, 4, 64])
@pytest.mark.parametrize("lengths", [[3], [1, 2, 3]], ids=["dense", "jagged"])
def test_each_of_several_reads_is_its_callers_own(
    new_partition: Callable[..., PartitionUnderTest], count: int, lengths: list[int], read: Way
) -> None:
    """Planes that keep what is read often return to one of the readers what they keep."""
    part, ids = new_partition(num_samples=count), [f"r{n}" for n in range(count)]
    rows = [torch.full((lengths[n % len(lengths)],), n) for n in range(count)]
    part.put(ids, x=stack_or_nest(rows))
    for _ in range(5):
        batch = read(part, ids)
        expect_column(batch, "x", rows)
        overwrite_first(batch, "x")


@requirement("GET-13", changes_results=True)
@either_way
def test_the_row_lengths_of_each_read_are_its_callers_own(
    part: PartitionUnderTest, read: Way
) -> None:
    """Planes often keep one tensor of offsets for all columns whose rows have these lengths."""
    ids = ["u0_g0", "u0_g1", "u1_g0"]
    rows = [torch.arange(n) for n in (1, 3, 2)]
    part.put(ids, x=stack_or_nest(rows))
    before, changed = read(part, ids), read(part, ids)
    column = leaf_of(changed, "x")
    if is_jagged(column):  # a column of another layout has no lengths that its reader could change
        overwrite(column.offsets(), "x")
    for batch in (before, read(part, ids)):
        expect_column(batch, "x", rows)


#: Parts of a column that a caller keeps after it has dropped the batch.
KEPT: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "detached": lambda column: column.detach(),
    "flat": lambda column: column.reshape(-1),
    "rows": lambda column: column[1:],
    "numpy": lambda column: torch.from_numpy(column.cpu().numpy()),
}


@requirement("GET-13")
@either_way
@pytest.mark.parametrize("keep", KEPT.values(), ids=KEPT)
@pytest.mark.parametrize("width", [1, 1 << 14], ids=["small", "large"])
def test_a_part_of_a_result_outlives_its_batch(
    new_partition: Callable[..., PartitionUnderTest],
    keep: Callable[[torch.Tensor], torch.Tensor],
    width: int,
    read: Way,
) -> None:
    """Planes that lend buffers take one back when the tensor is gone that they have returned."""
    part, ids = new_partition(), [f"r{n}" for n in range(4)]

    def part_of_a_read() -> torch.Tensor:
        column = leaf_of(read(part, ids), "x")
        return keep(column.values() if is_jagged(column) else as_read(column))

    part.put(ids, x=torch.arange(4.0 * width).view(4, width))
    with few_objects_to_collect():
        kept = part_of_a_read()
        before = kept.clone()
        part.forget_results()
        gc.collect()
    part.put(ids, x=torch.full((4, width), -1.0))
    for _ in range(4):
        read(part, ids)
    same = tensors_equal(kept, before)
    expect(same, "what a caller keeps of a read unchanged by later reads", "other values")


@requirement("GET-03", leans_on=("GET-11",), scattered=False)
def test_a_list_of_fields_that_the_caller_changes_is_read_anew(part: PartitionUnderTest) -> None:
    """Planes that remember a read by the list that it was asked with must look into the list."""
    ids = ["r0", "r1"]
    part.put_labeled(ids, "x", "y", "z")
    asked, fields = list(ids), ["x", "y"]
    meta = KVBatchMeta(part.id, None, asked)
    for change in (lambda: None, fields.pop, lambda: fields.append("z"), asked.reverse, asked.pop):
        change()
        by_ids = part.client.get_samples(
            sample_ids=asked, partition_id=part.id, select_fields=fields
        )
        by_meta = part.client.get_data(meta, select_fields=fields)
        for batch in (by_ids, by_meta):
            expect_equal(sorted(map(str, batch.keys())), sorted(fields), "fields of a read")
            for name in fields:
                expect_column(batch, name, labeled_rows(part.id, asked, name))


#: Threads that each read once, more than a plane keeps buffers of.
READERS = 20


@requirement("GET-13")
@pytest.mark.parametrize("width", [1, 1 << 12], ids=["small", "large"])
def test_results_outlive_the_threads_that_read_them(
    new_partition: Callable[..., PartitionUnderTest], width: int
) -> None:
    """Planes that give each thread a buffer must not give it on while its rows are in use."""
    part, ids = new_partition(), [f"r{n}" for n in range(READERS)]
    rows = torch.arange(float(READERS * width)).view(READERS, width)
    part.put(ids, x=rows)
    kept = []
    for one in part.rounds(READERS):
        reader = BackgroundCall(lambda n=one: part.get([ids[n], ids[-1 - n]], "x"), "a reader")
        kept.append((one, reader.result(part.call_s)))
    for one, batch in kept:
        expect_column(batch, "x", [rows[one], rows[-1 - one]])


def check_failed_reads(part: PartitionUnderTest, read: Way, ids: list[str], lacking: str) -> None:
    """Read rows without ``x`` until a plane may remember that it fails, then put the column."""
    numbers = torch.arange(len(ids))
    for _ in range(5):
        expect_lookup_error(lambda: read(part, ids), f"a read of rows {lacking}")
    part.put(ids[:2], x=numbers[:2])
    expect_lookup_error(lambda: read(part, ids), f"a read of rows, the last of which is {lacking}")
    part.put(ids[2:], x=numbers[2:])
    expect_column(read(part, ids), "x", list(numbers))


@requirement("GET-04")
@either_way
def test_rows_that_were_read_too_early_are_read_once_they_are_put(
    part: PartitionUnderTest, read: Way
) -> None:
    """Planes that remember for some time which reads fail must notice each kind of put."""
    check_failed_reads(part, read, ["r0", "r1", "r2"], "never put")


@requirement("GET-05")
@either_way
def test_a_field_that_was_read_too_early_is_read_once_it_is_put(
    part: PartitionUnderTest, read: Way
) -> None:
    ids = ["r0", "r1", "r2"]
    part.put(ids, y=torch.arange(3))
    check_failed_reads(part, read, ids, "without the field")


@requirement("GET-06")
@either_way
def test_cleared_rows_that_were_read_are_read_once_they_are_put_again(
    part: PartitionUnderTest, read: Way
) -> None:
    ids = ["r0", "r1", "r2"]
    part.put(ids, x=torch.arange(3) + 7)
    part.clear(ids)
    check_failed_reads(part, read, ids, "cleared")


@requirement("GET-04", leans_on=("CLAIM-02",))
@either_way
def test_a_partition_that_was_read_too_early_is_read_once_it_is_registered(
    new_partition: Callable[..., PartitionUnderTest], read: Way
) -> None:
    """Planes that remember which partitions are unknown must notice a registration."""
    part, ids = new_partition(register=False), ["r0", "r1", "r2"]
    for _ in range(5):
        expect_lookup_error(lambda: read(part, ids), "a read of a partition before it was known")
        is_rejected(lambda: part.claim("train", batch_size=1))  # CLAIM-11: whether it must be
    part.register()
    part.put(ids, x=torch.arange(3))
    expect_column(read(part, ids), "x", list(torch.arange(3)))
    expect_ids(part.claim("train"), ids, "rows of a partition that was claimed from too early")


@requirement("GET-06", leans_on=("PUT-13",))
@either_way
def test_a_thread_that_reads_again_sees_what_another_has_done(
    part: PartitionUnderTest, read: Way
) -> None:
    """Planes that keep a thread's last answer in the thread miss the changes of others."""
    part.put(["a", "b"], x=torch.tensor([1, 2]))
    with ThreadPoolExecutor(1) as thread:

        def read_there(ids: list[str], due: list[int]) -> None:
            batch = thread.submit(read, part, ids).result(part.timeouts.operation)
            expect_column(batch, "x", list(torch.tensor(due)))

        for _ in range(2):
            read_there(["a", "b"], [1, 2])
        part.put(["b"], x=torch.tensor([3]))
        read_there(["a", "b"], [1, 3])
        part.clear(["a"])
        gone = thread.submit(read, part, ["a", "b"])
        expect_lookup_error(lambda: gone.result(part.timeouts.operation), "a read of a cleared row")
        read_there(["b"], [3])
