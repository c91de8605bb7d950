"""CLEAR across processes: clears of many rows between or beside those of another process."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from rlconform.certify.assertions.expect import expect, expect_equal, expect_objects
from rlconform.certify.plugin.markers import requirement
from rlconform.certify.scenarios.labeled_rows import jagged
from rlconform.certify.scenarios.normalize_metas import tags_by_id
from rlconform.certify.scenarios.partition import PartitionUnderTest
from rlconform.certify.scenarios.refusable_objects import put_or_leave_nothing
from rlconform.certify.scenarios.two_processes import PAIRS, Actors, each_pair, looker_and_changer
from rlconform.contract import Target
from rlconform.wire import object_array

pytestmark = pytest.mark.large

NewPartition = Callable[..., PartitionUnderTest]

#: Rows of a process that are cleared at once, as many as some planes drop as one range.
MANY = 320


#: Pairs, and how many rows the other process puts between two of the writer's: more than two pages
#: of a scan, and once so many that a page of 2,000 rows has none of the writer's.
BETWEEN = {name: (pair, 2100) for name, pair in PAIRS.items()}
BETWEEN["attached_looks_attached_changes"] = (PAIRS["attached_looks_attached_changes"], 4200)


@requirement("CLEAR-03", leans_on=("CLEAR-01",))
@pytest.mark.parametrize(("pair", "between"), BETWEEN.values(), ids=BETWEEN)
def test_none_drops_rows_behind_very_many_of_another_process(
    new_partition: NewPartition, actors: Actors, pair: tuple[int, int], between: int
) -> None:
    """Planes that scan for a process's rows must not stop at a page without any."""
    part = new_partition(num_samples=between + 2)
    other, writer = looker_and_changer(part, actors, pair)
    own, others = ["own0", "own1"], [f"other{n}" for n in range(between)]
    writer.put(own[:1], x=torch.zeros(1))
    other.put(others, x=torch.zeros(between))
    writer.put(own[1:], x=torch.zeros(1))
    writer.clear(None)
    part.expect_absent(own)
    claimed = other.claim("train", batch_size=len(others) + len(own)).sample_ids
    expect_equal(sorted(claimed), sorted(others), "rows of the other process, which stay")


@requirement("CLEAR-01")
@each_pair
def test_a_clear_of_many_own_rows_leaves_those_that_another_process_put_between(
    new_partition: NewPartition, actors: Actors, pair: tuple[int, int]
) -> None:
    part = new_partition(num_samples=MANY + 4)
    other, writer = looker_and_changer(part, actors, pair)
    ids = [f"own{n}" for n in range(MANY)]
    kept = [f"kept{n}" for n in range(4)]
    for start in range(0, MANY, MANY // 2):
        writer.put_labeled(ids[start : start + MANY // 2])
        other.put_labeled(kept[:2] if start == 0 else kept[2:])
    writer.clear(ids)
    for view in (other, writer):
        view.expect_labeled(kept)
    part.expect_absent(ids[:: MANY // 4])


@requirement("CLEAR-03", leans_on=("CLEAR-01",))
@each_pair
def test_none_drops_the_rows_that_another_process_left_of_a_large_put(
    new_partition: NewPartition, actors: Actors, pair: tuple[int, int]
) -> None:
    """Planes that move the rest of a put together may note who moved it as who put it."""
    part = new_partition(num_samples=MANY + 2)
    other, writer = looker_and_changer(part, actors, pair)
    ids, kept = [f"own{n}" for n in range(MANY)], ["kept0", "kept1"]
    other.put_labeled(kept)
    writer.put_labeled(ids)
    other.clear(ids[: 3 * MANY // 4])
    other.expect_labeled(ids[3 * MANY // 4 :])
    writer.clear(None)
    part.expect_absent(ids[:: MANY // 8])
    for view in (other, writer):
        view.expect_labeled(kept)


@requirement("CLEAR-01", leans_on=("CLEAR-04", "GET-10"))
@each_pair
def test_a_large_clear_that_is_made_again_drops_what_another_process_put_since(
    new_partition: NewPartition, actors: Actors, pair: tuple[int, int]
) -> None:
    """Planes that answer a request that comes again from memory must notice what others did."""
    part = new_partition(num_samples=MANY)
    cleaner, writer = looker_and_changer(part, actors, pair)
    ids = [f"r{n}" for n in range(MANY)]
    for version in range(3):
        writer.put_labeled(ids, version=version)
        cleaner.expect_labeled(ids, version=version)
        cleaner.clear(ids)
        for view in (writer, cleaner):
            view.expect_absent(ids[:: MANY // 4])
            expect_equal(view.claim("train", batch_size=MANY).sample_ids, [], "rows claimed")


#: Steps of a run.
STEPS = 3


@requirement("CLEAR-04", leans_on=("PUT-21", "GET-10", "CLEAR-02"))
@pytest.mark.parametrize("names", ["same_ids", "new_ids"])
@each_pair
def test_a_large_step_after_the_clear_of_the_one_before_is_read_as_it_was_put(
    new_partition: NewPartition,
    actors: Actors,
    target: Target,
    pair: tuple[int, int],
    names: str,
) -> None:
    """Planes that number values anew once a partition is empty must tell readers that know some."""
    part = new_partition(fields=["x", "y", "log"], num_samples=MANY)
    reader, writer = looker_and_changer(part, actors, pair)
    for step in range(STEPS):
        ids = [f"{step if names == 'new_ids' else 0}_{n}" for n in range(MANY)]
        tags = [{"step": step, "note": f"row {n}"} for n in range(MANY)]
        numbers = torch.arange(MANY) % 100 + 1000 * step
        tokens = [torch.arange(n % 5) + step for n in range(MANY)]
        logs = [{"content": f"answer {n} of step {step}", "n": n} for n in range(MANY)]
        writer.put(ids, tags, x=numbers, y=jagged(tokens))
        has_logs = put_or_leave_nothing(writer, target, ids, log=object_array(logs))
        for view in (reader, writer):
            view.expect_rows(ids, x=list(numbers), y=tokens)
            if has_logs:
                expect_objects(view.get(ids, "log"), "log", logs)
        got = tags_by_id(reader.claim("train", ["x", "y"], MANY))
        due = dict(zip(ids, tags, strict=True))
        expect(got == due, f"the tags of {MANY} rows of step {step}", f"{[*got.items()][:2]}")
        writer.clear(ids)
