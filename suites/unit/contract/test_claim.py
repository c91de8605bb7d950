"""CLAIM: which rows a claim returns to which task, and that a claim changes nothing else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from rlconform.certify.assertions.expect import (
    ContractViolation,
    expect,
    expect_column,
    expect_equal,
    expect_lookup_error,
    is_rejected,
)
from rlconform.certify.plugin.markers import requirement
from rlconform.certify.scenarios.labeled_rows import labeled_rows
from rlconform.certify.scenarios.partition import TASKS, UNDECLARED, PartitionUnderTest, expect_ids
from rlconform.certify.threads import BackgroundCall
from rlconform.wire import stack_or_nest

IDS = [f"u{i // 2}_g{i % 2}" for i in range(6)]
#: More tasks than a word has bits.
MANY_TASKS = 70


@requirement("CLAIM-01")
def test_only_ready_rows_are_claimed(part: PartitionUnderTest) -> None:
    part.put_labeled(IDS, "x")
    part.put_labeled(IDS[:3], "y")
    expect_ids(part.claim("train", ["x", "y"]), IDS[:3], "rows with both fields")
    expect_equal(part.claim_all("prev_lp", ["z"]), [], "rows with a field nobody wrote")


@requirement("CLAIM-01", leans_on=("REG-02",))
def test_an_undeclared_field_is_required_too(part: PartitionUnderTest) -> None:
    part.put_labeled(IDS, "x")
    part.put_labeled(IDS[:2], UNDECLARED)
    expect_ids(part.claim("train", ["x", UNDECLARED]), IDS[:2], "rows with both fields")


@requirement("CLAIM-01")
def test_a_claim_takes_no_more_than_asked(part: PartitionUnderTest) -> None:
    part.put_labeled(IDS)
    first, second = part.claim(batch_size=4), part.claim(batch_size=1)
    expect_equal((len(first.sample_ids), len(second.sample_ids)), (4, 1), "rows claimed")


@requirement("CLAIM-01")
def test_a_claim_of_no_rows_takes_none(part: PartitionUnderTest) -> None:
    part.put_labeled(IDS)
    try:
        got = part.client.claim_meta(
            partition_id=part.id,
            task_name="train",
            required_fields=["x"],
            batch_size=0,
            blocking=False,
        )
    except ContractViolation:
        raise
    except Exception:  # noqa: BLE001 - a plane may refuse such a claim
        pass
    else:
        expect_equal(list(got.sample_ids), [], "rows of a claim of none")
    expect_ids(part.claim("train"), IDS, "rows still claimable after it")


@requirement("CLAIM-03")
def test_tasks_have_their_own_cursors(part: PartitionUnderTest) -> None:
    part.put_labeled(IDS)
    expect_ids(part.claim("train"), IDS, "rows of one task")
    expect_ids(part.claim("prev_lp"), IDS, "rows of the other task")


@requirement("CLAIM-03")
def test_very_many_tasks_share_no_claims(
    new_partition: Callable[..., PartitionUnderTest],
) -> None:
    """Planes that keep claims as bits of a word, or of a byte, have only so many tasks."""
    tasks = [f"eval_{n}" for n in range(MANY_TASKS)]
    part = new_partition(tasks=tasks, num_samples=len(IDS))
    part.put_labeled(IDS)
    for task in tasks:
        expect_ids(part.claim(task, batch_size=len(IDS)), IDS, f"rows of the task {task}")
    late = [f"late_{n}" for n in range(2)]
    part.register(tasks=[*tasks, *late])
    if is_rejected(lambda: part.expect_labeled(IDS)):
        return  # the registration dropped the rows, which REG-08 judges
    for task in late:
        expect_ids(part.claim(task, batch_size=len(IDS)), IDS, f"rows of the task {task}")


@requirement("CLAIM-03")
@pytest.mark.parametrize("separator", [":", "/", "_", "|", "."])
def test_partition_and_task_names_that_join_alike_share_no_cursor(
    new_partition: Callable[..., PartitionUnderTest], separator: str
) -> None:
    short = new_partition(tasks=[f"q{separator}train"])
    try:
        long = new_partition(exact=f"{short.id}{separator}q", tasks=["train"])
    except (ValueError, TypeError):
        return  # a plane that refuses such a name cannot confuse partitions
    for part in (short, long):
        part.put_labeled(IDS)
    expect_ids(short.claim(f"q{separator}train"), IDS, "rows of the task with the long name")
    expect_ids(long.claim("train"), IDS, "rows of the task whose partition has the long name")


@requirement("CLAIM-07")
@pytest.mark.parametrize("order", ["xy", "yx"], ids=["in_order", "reversed"])
def test_the_last_field_makes_a_row_claimable_once(part: PartitionUnderTest, order: str) -> None:
    first, last = order
    part.put_labeled(IDS[:2], first)
    expect_equal(part.claim("train", ["x", "y"], 1).sample_ids, [], "rows before their last field")
    part.put_labeled(IDS[:1], last)
    expect_ids(part.claim("train", ["x", "y"], 1), IDS[:1], "rows after it")
    expect_equal(part.claim("train", ["x", "y"], 1).sample_ids, [], "rows claimed again")


#: Empty or zero values: a field with such a value still counts as produced.
EMPTY_VALUES: dict[str, Any] = {
    "nan": torch.tensor([float("nan"), 0.0, float("nan")]),
    "all_bits_set": torch.full((3,), -1, dtype=torch.int64),
    "rows_of_no_tokens": stack_or_nest([torch.arange(n) for n in (2, 0, 1)]),
    "only_rows_of_no_tokens": torch.nested.nested_tensor(
        [torch.arange(0)] * 3, layout=torch.jagged
    ),
    "rows_without_elements": torch.zeros(3, 0),
    "zeros": torch.zeros(3, dtype=torch.int64),
    "false": torch.zeros(3, dtype=torch.bool),
}


@requirement("CLAIM-07")
@pytest.mark.parametrize("column", EMPTY_VALUES.values(), ids=EMPTY_VALUES)
def test_a_field_with_empty_or_zero_values_counts_as_produced(
    part: PartitionUnderTest, column: torch.Tensor
) -> None:
    ids = IDS[:3]
    part.put_labeled(ids, "x")
    part.put(ids, y=column)
    expect_ids(part.claim("train", ["x", "y"]), ids, "rows with both fields (an aborted rollout's)")
    expect(part.consumed("train"), "every row consumed", "a row counted that no claim returned")


@requirement("CLAIM-09")
def test_claimed_rows_stay_readable(part: PartitionUnderTest) -> None:
    part.put_labeled(IDS)
    meta = part.claim("train")
    expect_column(part.get_data(meta), "x", labeled_rows(part.id, meta.sample_ids, "x"))
    part.expect_labeled(meta.sample_ids)


@requirement("CLAIM-09")
def test_rows_that_every_task_claimed_stay_readable(part: PartitionUnderTest) -> None:
    part.put_labeled(IDS)
    for task in TASKS:
        expect_ids(part.claim(task), IDS, f"rows claimed by {task}")
    part.expect_labeled(IDS)


@requirement("CLAIM-10")
def test_rows_cleared_after_a_claim_are_not_in_the_next(part: PartitionUnderTest) -> None:
    part.put_labeled(IDS)
    (first,) = part.claim(batch_size=1).sample_ids
    rest = [i for i in IDS if i != first]
    part.clear(rest[:3])
    expect_equal(sorted(part.claim_all()), sorted(rest[3:]), "rows that were not cleared")


@requirement("CLAIM-10")
def test_cleared_rows_are_never_claimed(part: PartitionUnderTest) -> None:
    part.put_labeled(IDS)
    part.clear(IDS[:3])
    expect_equal(sorted(part.claim_all()), sorted(IDS[3:]), "rows that were not cleared")


@requirement("CLAIM-10", race=True)
def test_claims_that_race_clears_return_no_cleared_row(part: PartitionUnderTest) -> None:
    rounds = 60
    cleared: set[str] = set()

    def put_and_clear() -> None:
        for n in range(rounds):
            ids = [f"r{n}_{k}" for k in range(3)]
            part.put_labeled(ids)
            part.clear(ids)
            cleared.update(ids)

    writer = BackgroundCall(put_and_clear, "the writer")
    while not writer.finished.is_set():
        gone = set(cleared)  # cleared before this claim began
        got = part.claim("train", ["x"], 1).sample_ids
        wrong = gone & set(got)
        expect(not wrong, "no row that was cleared before the claim", sorted(wrong))
        if not got:
            writer.wait_briefly()
    writer.result(part.timeouts.operation)
    expect_equal(part.claim_all(), [], "rows claimable once all are cleared")


@requirement("CLAIM-11")
@pytest.mark.parametrize("blocking", [False, True], ids=["at_once", "blocking"])
def test_an_unknown_task_is_rejected(part: PartitionUnderTest, blocking: bool) -> None:
    part.put_labeled(IDS)
    expect_refused(part, "trian", blocking, "a task that was not registered")


def expect_refused(part: PartitionUnderTest, task: str, blocking: bool, what: str) -> None:
    """Expect the plane to refuse the claim: a mistyped name must not make a claim wait."""

    def claim() -> object:
        try:
            return part.claim(task, blocking=blocking, timeout_s=part.timeouts.settle)
        except TimeoutError as error:
            raise ContractViolation(f"{what} to be refused", f"TimeoutError: {error}") from error

    expect_lookup_error(claim, what)


@requirement("CLAIM-11")
@pytest.mark.parametrize("blocking", [False, True], ids=["at_once", "blocking"])
def test_an_unknown_partition_is_rejected(part: PartitionUnderTest, blocking: bool) -> None:
    unknown = part.via(part.client)
    unknown.id = f"{part.id}-never-registered"
    expect_refused(unknown, "train", blocking, "a partition that was not registered")


@requirement("CLAIM-17")
def test_the_lengths_of_a_claim_are_a_list_of_ints(part: PartitionUnderTest) -> None:
    part.put_labeled(IDS, tags=[{"input_lengths": 10 + n} for n, _ in enumerate(IDS)])
    meta = part.client.claim_meta(
        partition_id=part.id,
        task_name="train",
        required_fields=["x"],
        batch_size=len(IDS),
        blocking=False,
    )
    lengths = meta.sequence_lengths
    if lengths is not None:
        types = {type(length).__name__ for length in lengths}
        got = f"a {type(lengths).__name__} of {', '.join(sorted(types))}"
        expect_equal(got, "a list of int", "type of sequence_lengths:")


@requirement("CLAIM-07")
@pytest.mark.parametrize("order", ["xy", "yx"], ids=["overwritten_first", "added_first"])
def test_a_put_that_overwrites_and_adds_the_last_field_makes_a_row_claimable(
    part: PartitionUnderTest, order: str
) -> None:
    """Planes that take such a put for an overwrite alone make no row ready with it."""
    ids = IDS[:2]
    part.put_labeled(ids, "x")
    expect_equal(part.claim("train", ["x", "y"], 1).sample_ids, [], "rows that lack a field")
    part.put_labeled(ids, *order, version=1)
    expect_ids(part.claim("train", ["x", "y"], 2), ids, "rows with an overwritten and a new field")
    expect_equal(part.claim("train", ["x", "y"], 1).sample_ids, [], "rows claimed again")
    part.expect_labeled(ids, "x", "y", version=1)


@requirement("CLAIM-03")
@pytest.mark.parametrize("separator", ["|", ":", "/", "_", ".", "#", ",", " "])
def test_task_names_and_ids_that_join_alike_share_no_claim(
    new_partition: Callable[..., PartitionUnderTest], separator: str
) -> None:
    tasks = [f"train{separator}u0", "train"]  # joined with an id: train<sep>u0<sep>g0, twice
    try:
        part = new_partition(tasks=tasks)
    except (ValueError, TypeError):
        return  # only ids are opaque: a plane may refuse such a task name
    ids = ["g0", f"u0{separator}g0", "g1", f"u0{separator}g1"]
    part.put_labeled(ids)
    expect_ids(part.claim(tasks[0], batch_size=4), ids, f"rows of the task {tasks[0]!r}")
    expect_ids(part.claim(tasks[1], batch_size=4), ids, f"rows of the task {tasks[1]!r}")
