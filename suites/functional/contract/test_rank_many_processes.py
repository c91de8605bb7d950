"""RANK-02 with more processes than a plane asks, lists or locks at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from random import Random

import torch

from rlconform.certify.assertions.expect import expect_column, expect_equal
from rlconform.certify.plugin.markers import requirement
from rlconform.certify.scenarios.labeled_rows import jagged, labeled_rows
from rlconform.certify.scenarios.normalize_metas import tags_by_id
from rlconform.certify.scenarios.partition import PartitionUnderTest
from rlconform.certify.threads import run_concurrently
from rlconform.contract import DataPlaneClient
from rlconform.wire import stack_or_nest

#: Attached processes; the owner writes too.
ATTACHED = 7
#: Rows of each process.
ROWS = 4


def tokens_of(sample_id: str) -> torch.Tensor:
    """Return the jagged row of an id, whose length and values differ from those of others."""
    number = int(sample_id.rpartition("r")[2])
    return torch.arange(number, 3 * number % 11 + number)


def put_rows(part: PartitionUnderTest, ids: Sequence[str]) -> None:
    """Put rows with a dense and a jagged column and a tag."""
    columns = {
        "x": stack_or_nest(labeled_rows(part.id, ids, "x")),
        "tokens": jagged([tokens_of(each) for each in ids]),
    }
    part.put(ids, [{"note": each} for each in ids], **columns)


@requirement("RANK-02", leans_on=("GET-01", "PUT-05", "CLAIM-02", "STAT-01", "CLEAR-01"))
def test_the_rows_of_many_writers_are_read_claimed_and_cleared(
    part: PartitionUnderTest, actors: Callable[[int], list[DataPlaneClient]]
) -> None:
    writers = [part, *map(part.via, actors(ATTACHED))]
    ids = [f"{part.id}-r{n}" for n in range(ROWS * len(writers))]
    own = [ids[n :: len(writers)] for n in range(len(writers))]
    calls = [partial(put_rows, via, some) for via, some in zip(writers, own, strict=True)]
    run_concurrently(calls, part.timeouts.check, "writer")
    order = Random(0)
    for reader in (part, *writers[1::3]):
        asked = order.sample(ids, len(ids))
        batch = reader.get(asked, "x", "tokens")
        expect_column(batch, "x", labeled_rows(part.id, asked, "x"))
        expect_column(batch, "tokens", [tokens_of(each) for each in asked])
    for writer, some in zip(writers, [*own[1:], own[0]], strict=True):
        writer.put(some[::-1], y=stack_or_nest(labeled_rows(part.id, some[::-1], "y")))
    for reader in writers[::3]:
        asked = order.sample(ids, len(ids))
        expect_column(reader.get(asked, "y"), "y", labeled_rows(part.id, asked, "y"))
    claimed = [each.claim("train", ["x", "y"], ROWS + n % 2) for n, each in enumerate(writers)]
    claimed.append(writers[-1].claim("train", ["x", "y"], len(ids)))
    got = [each for meta in claimed for each in meta.sample_ids]
    expect_equal(sorted(got), sorted(ids), "rows that the processes claim one after the other")
    notes = [tags_by_id(meta) for meta in claimed if meta.sample_ids]
    due = {each: {"note": each} for each in ids}
    expect_equal({i: t for tags in notes for i, t in tags.items()}, due, "the rows' tags")
    for each in writers:
        expect_equal(each.consumed("train"), True, "status once all rows are claimed")
    writers[-1].clear(ids[: len(ids) // 2])
    for reader in writers[::3]:
        reader.expect_absent(ids[:2], "x")
        kept = order.sample(ids[len(ids) // 2 :], ROWS)
        expect_column(reader.get(kept, "x"), "x", labeled_rows(part.id, kept, "x"))
