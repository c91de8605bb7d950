"""CLEAR-01 to 03, 05, 06: a clear removes its rows, keeps all others, and releases memory."""

from __future__ import annotations

import itertools
import math
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial

import pytest
import torch

from rlconform.certify.assertions.expect import (
    ContractViolation,
    expect,
    expect_equal,
    expect_lookup_error,
)
from rlconform.certify.memory_usage import few_objects_to_collect, plane_bytes, settled_growth
from rlconform.certify.plugin.markers import requirement
from rlconform.certify.scenarios.large_step import STEP_IDS, put_large_step
from rlconform.certify.scenarios.normalize_metas import tags_by_id
from rlconform.certify.scenarios.partition import PartitionUnderTest, expect_ids, expect_unreadable
from rlconform.certify.threads import run_concurrently
from rlconform.contract import Target
from rlconform.wire import stack_or_nest

IDS = ["u0_g0", "u0_g1", "u1_g0", "u1_g1"]


@requirement("CLEAR-01")
def test_exactly_the_ids_given_are_dropped(part: PartitionUnderTest) -> None:
    part.put_labeled(IDS)
    part.clear(IDS[1:3])
    part.expect_absent(IDS[1:3])
    part.expect_labeled([IDS[0], IDS[3]])
    expect_equal(sorted(part.claim_all()), [IDS[0], IDS[3]], "rows left")


NEIGHBOURS = ["u_g0", "u_g1", "u_g10", "u_g2", "u_g3"]


@requirement("CLEAR-01")
@pytest.mark.parametrize("given", [["u_g1"], ["u_g0", "u_g3"]], ids=["prefix", "ends"])
def test_ids_similar_to_those_given_are_kept(part: PartitionUnderTest, given: list[str]) -> None:
    part.put_labeled(NEIGHBOURS)
    part.clear(given)
    part.expect_absent(given)
    part.expect_labeled([i for i in NEIGHBOURS if i not in given])


@requirement("CLEAR-01")
def test_an_id_given_twice_clears_no_other_row(part: PartitionUnderTest) -> None:
    part.put_labeled(NEIGHBOURS)
    try:
        part.clear(["u_g1", "u_g1"])
    except ContractViolation:
        raise
    except Exception:  # noqa: BLE001 - a plane may refuse it
        part.expect_labeled(NEIGHBOURS)
    else:
        part.expect_absent(["u_g1"])
        part.expect_labeled([i for i in NEIGHBOURS if i != "u_g1"])
        # Rows that are put next may get the freed places, each its own.
        new = [f"v_g{n}" for n in range(4)]
        for sample_id in new:
            part.put_labeled([sample_id], "x", "y")
        part.expect_labeled([*new, *(i for i in NEIGHBOURS if i != "u_g1")])


@requirement("CLEAR-01")
def test_all_ids_of_a_large_step_are_dropped(
    new_partition: Callable[..., PartitionUnderTest],
) -> None:
    step = put_large_step(new_partition)
    step.clear(STEP_IDS[1:])
    for sample_id in (STEP_IDS[1], STEP_IDS[700], STEP_IDS[-1]):
        expect_unreadable(lambda i=sample_id: step.get([i], "x"), sample_id, "x")
    expect_equal(step.claim().sample_ids, STEP_IDS[:1], "rows left")
    step.expect_rows(STEP_IDS[:1], x=[torch.tensor(0)])


@requirement("CLEAR-01")
def test_runs_of_adjacent_rows_are_dropped_without_their_neighbours(
    new_partition: Callable[..., PartitionUnderTest],
) -> None:
    ids = [f"u{n}_g0" for n in range(1000)]
    part = new_partition(num_samples=len(ids))
    part.put(ids, x=torch.arange(len(ids)))
    kept = set(ids)
    for first, length in ((10, 33), (50, 130), (200, 257), (470, 513)):  # past usual batch sizes
        run = ids[first : first + length]
        part.clear(run)
        kept -= set(run)
    left = [sample_id for sample_id in ids if sample_id in kept]
    expect_equal(sorted(part.claim(batch_size=len(left)).sample_ids), sorted(left), "rows left")
    part.expect_rows(
        left, x=[torch.tensor(n) for n, sample_id in enumerate(ids) if sample_id in kept]
    )


#: Rows of a put that stay when the others are cleared, by their numbers.
STAY = {"every_third": range(0, 16, 3), "last": range(8, 16), "around_ten": (2, 9, 10, 11)}


@requirement("CLEAR-01")
@pytest.mark.parametrize("elements", [4, 4096], ids=["small", "large"])
@pytest.mark.parametrize("stay", STAY.values(), ids=STAY)
def test_rows_of_a_put_that_stay_keep_their_own_values(
    part: PartitionUnderTest, stay: Sequence[int], elements: int
) -> None:
    """Planes that compact what is left may order rows by id, in which s10 comes before s9."""
    ids = [f"s{n}" for n in range(16)]
    dense = torch.arange(16 * elements).reshape(16, elements)
    ragged = [dense[n, : elements - n % 3] + 1 for n in range(16)]
    part.put(ids, x=dense, y=stack_or_nest(ragged))
    part.clear([ids[n] for n in range(16) if n not in stay])
    left = [ids[n] for n in stay]
    part.expect_rows(left, x=[dense[n] for n in stay], y=[ragged[n] for n in stay])
    for n in stay:
        part.expect_rows([ids[n]], x=[dense[n]], y=[ragged[n]])


@requirement("CLEAR-02")
@pytest.mark.parametrize(
    "again",
    [[], ["ghost"], IDS[:2], ["ghost", IDS[0], IDS[2]], [IDS[2], "ghost"]],
    ids=["empty", "unknown", "cleared", "existing_last", "existing_first"],
)
def test_clearing_missing_rows_is_no_error(part: PartitionUnderTest, again: list[str]) -> None:
    part.put_labeled(IDS)
    part.clear(IDS[:2])
    part.clear(again)
    gone = sorted({*IDS[:2], *again})
    part.expect_absent(gone)  # a clear drops the existing rows even if other ids do not exist
    part.expect_labeled([i for i in IDS if i not in gone])


@requirement("CLEAR-03")
def test_none_drops_all_that_this_process_put(part: PartitionUnderTest) -> None:
    part.put_labeled(IDS[:2], "x")
    part.put_labeled(IDS[2:], "x", "y")
    part.put(["tags_only"], [{"std": 0.0}])
    part.claim("train", batch_size=2)
    part.clear(None)
    part.expect_absent(IDS)
    part.register()  # clearing everything may end the registration
    again = [IDS[0], "tags_only"]
    part.put_labeled(again, version=1)
    part.expect_labeled(again, version=1)
    left = [tags for tags in part.claim("train").tags or [] if tags]
    expect(not left, "no tag of what was cleared", left)


@requirement("CLEAR-03")
@pytest.mark.parametrize("threads", [1, 40], ids=["one", "many"])
def test_none_drops_what_other_threads_of_this_process_put(
    part: PartitionUnderTest, threads: int
) -> None:
    """A server has a thread for each request; a plane may know so many threads, and no more."""
    ids = [f"t{n}" for n in range(threads)]
    all_have_put = threading.Barrier(threads)

    def put(sample_id: str) -> None:
        try:
            part.put_labeled([sample_id])
        finally:
            with suppress(threading.BrokenBarrierError):  # the put of another thread hangs
                all_have_put.wait(part.timeouts.operation)

    run_concurrently([partial(put, each) for each in ids], 2 * part.timeouts.operation, "put")
    part.clear(None)
    for each in ids:
        part.expect_absent([each])


@requirement("CLEAR-03")
def test_none_drops_a_large_step(new_partition: Callable[..., PartitionUnderTest]) -> None:
    step = put_large_step(new_partition)
    step.clear(None)
    for sample_id in (STEP_IDS[0], STEP_IDS[700], STEP_IDS[-1]):
        expect_unreadable(lambda i=sample_id: step.get([i], "x"), sample_id, "x")
    step.register()  # clearing everything may end the registration
    expect_equal(step.claim().sample_ids, [], "rows left")


@requirement("CLEAR-03")
@pytest.mark.parametrize("known", [True, False], ids=["empty", "unknown"])
def test_none_on_an_empty_partition_is_no_error(
    new_partition: Callable[..., PartitionUnderTest], known: bool
) -> None:
    part = new_partition(register=known)
    part.clear(None)
    part.register()
    part.put_labeled(IDS)
    part.expect_labeled(IDS)


@requirement("CLEAR-05")
def test_rows_with_different_fields_are_cleared_in_one_call(part: PartitionUnderTest) -> None:
    part.put_labeled(IDS[:2], "x")
    part.put_labeled(IDS[1:3], "y", "z")
    part.put(IDS[3:], [{"std": 0.0}])
    part.claim("train", ["x"])  # the two tasks have claimed different rows
    part.claim("prev_lp", ["y", "z"])
    part.clear(IDS)
    for field in ("x", "y", "z"):
        part.expect_absent(IDS, field)
    part.put_labeled(IDS, "z", version=1)
    part.expect_labeled(IDS, "z", version=1)
    for task in ("train", "prev_lp"):
        meta = part.claim(task, ["z"])
        expect_ids(meta, IDS, f"rows put again, claimable by {task}")
        expect(not any(meta.tags or []), "no tag of the first put", meta.tags)


@requirement("CLEAR-05")
def test_rows_with_tags_only_are_cleared(part: PartitionUnderTest) -> None:
    part.put(IDS[:2], [{"std": 0.0}, {"std": 1.0}])
    part.clear(IDS[:1])
    part.put_labeled(IDS[:2])
    got = tags_by_id(part.claim("train"))
    expect_equal(got, {IDS[0]: {}, IDS[1]: {"std": 1.0}}, "tags after one of two rows was cleared")


@requirement("CLEAR-06", patience=90, scattered=False)
def test_memory_is_released(
    new_partition: Callable[..., PartitionUnderTest], target: Target
) -> None:
    part = new_partition(fields=["x", "y", "z", "log"])
    size = 16 << 20
    everywhere = torch.ones(16, size // 64, dtype=torch.uint8)
    somewhere = torch.ones(8, size // 16, dtype=torch.uint8)
    tokens = stack_or_nest([torch.ones(size // 64 + n % 2, dtype=torch.uint8) for n in range(16)])
    cycles = itertools.count()

    def run(count: int, limit: float) -> int:
        """Run cycles and return the growth in bytes, once it is below the limit or settled."""
        before = plane_bytes()
        for step in itertools.islice(cycles, count):
            ids = [f"s{step}_g{i}" for i in range(16)]  # new ids, so that a leak is not overwritten
            part.put(ids, x=everywhere)
            part.put(ids[::2], y=somewhere)
            part.put(ids, z=tokens)
            if target.declares("objects"):
                part.put(ids, log=["o" * (size // 64)] * 16)
            meta = part.claim("train", batch_size=16)
            expect_ids(meta, ids, "rows of the cycle")
            part.get_data(meta, ["x", "z"])
            part.clear(ids)
            part.forget_results()
        return settled_growth(before, limit, part.timeouts.settle)

    expect_bounded(run, size, 25)


def expect_bounded(run: Callable[[int, float], int], size: int, cycles: int) -> None:
    """Expect the plane to grow by less than twice ``size`` over many cycles of puts and clears.

    Args:
        run: Function that runs a number of cycles and returns the growth in bytes, for which it
            waits while that is above a limit: a plane may release memory late.
        size: Bytes that a cycle writes, the most that are stored at a time.
        cycles: Number of cycles; together they write far more bytes than the limit.
    """
    grown: list[int] = []
    with few_objects_to_collect():
        for _ in range(6):  # buffers that a plane allocates once and keeps do not count as growth
            if run(4, math.inf) < size // 8:
                break
        # A leak grows each time. A new idle Ray worker or a larger heap may add memory once.
        while len(grown) < 3 and (not grown or grown[-1] >= 2 * size):
            grown.append(run(cycles, 2 * size))
    expect(
        grown[-1] < 2 * size,
        f"{cycles} cycles of {size >> 20} MiB to grow the plane by less than {2 * size >> 20} MiB",
        " MiB, and again ".join(f"{each / (1 << 20):.0f}" for each in grown) + " MiB",
    )


@requirement("CLEAR-06", patience=90, scattered=False)
@pytest.mark.parametrize(
    "way", ["one_row_stays", "rows_go_in_parts", "rows_are_overwritten", "reads_fail"]
)
def test_memory_is_released_while_rows_live(part: PartitionUnderTest, way: str) -> None:
    size, ids = 8 << 20, [f"r{n}" for n in range(16)]
    rows = torch.ones(16, size // 16, dtype=torch.uint8)
    steps = itertools.count()
    part.put(["stays"], x=rows[:1])

    def run(count: int, limit: float) -> int:
        before = plane_bytes()
        for step in itertools.islice(steps, count):
            names = ids if way == "rows_are_overwritten" else [f"s{step}_{i}" for i in ids]
            part.put(names, x=rows)
            if way == "reads_fail":  # a poll for a column that is not produced yet
                expect_lookup_error(lambda ids=names: part.get(ids, "x", "y"), "a read too early")
                part.forget_results()
            if way in {"one_row_stays", "reads_fail"}:
                part.clear(names)
            elif way == "rows_go_in_parts":
                part.clear(names[::2])
                part.clear(names[1::2])
        return settled_growth(before, limit, part.timeouts.settle)

    expect_bounded(run, size, 20)
    part.expect_rows(["stays"], x=[rows[0]])


@requirement("CLEAR-03")
@pytest.mark.parametrize("first", [0, 1, 2])
def test_none_drops_the_rest_of_a_put_that_was_cleared_in_part(
    part: PartitionUnderTest, first: int
) -> None:
    part.put_labeled(IDS)
    part.clear([IDS[first]])
    part.clear(None)
    part.expect_absent(IDS)
