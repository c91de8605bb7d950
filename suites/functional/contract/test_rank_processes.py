"""RANK across processes: one writer per replica, ordered write-backs, one leader that reads."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
from tensordict import TensorDictBase

from rlconform.certify.assertions.expect import expect_column
from rlconform.certify.plugin.markers import requirement
from rlconform.certify.scenarios.labeled_rows import labeled_rows
from rlconform.certify.scenarios.partition import PartitionUnderTest
from rlconform.certify.scenarios.routes import BYTES, route_rows
from rlconform.certify.threads import run_concurrently
from rlconform.contract import DataPlaneClient, KVBatchMeta
from rlconform.plane import write_columns
from rlconform.wire import stack_or_nest

Actors = Callable[[int], list[DataPlaneClient]]

RANKS = 3
ROWS = 12


def ids_in(part: PartitionUnderTest) -> list[str]:
    """Return the ids of a rollout's rows; no other check uses them, in any process."""
    return [f"{part.id}-u{n // 3}_g{n % 3}" for n in range(ROWS)]


def write(part: PartitionUnderTest, client: DataPlaneClient, ids: list[str], version: int) -> None:
    """Write the column y of a shard, as a rank writes its logprobs."""
    part.note_ids(ids)
    rows = labeled_rows(part.id, ids, "y", version)
    write_columns(client, KVBatchMeta(part.id, None, ids), {"y": stack_or_nest(rows)})


@requirement("RANK-01", leans_on=("PUT-08",))
def test_writers_leave_each_others_rows_alone(part: PartitionUnderTest, actors: Actors) -> None:
    ranks = actors(RANKS)
    ids = ids_in(part)
    part.via(ranks[0]).put_labeled(ids, "x")
    # Rows of each rank's shard, in an order that is not the one of the put.
    shards = [ids[rank::RANKS][::-1] for rank in range(RANKS)]
    for version in part.rounds(5):
        calls = [
            partial(write, part, client, shard, version)
            for client, shard in zip(ranks, shards, strict=True)
        ]
        run_concurrently(calls, part.timeouts.check, "rank")
        for via in (part, *map(part.via, ranks)):
            expect_column(via.get(ids, "y"), "y", labeled_rows(part.id, ids, "y", version))
            expect_column(via.get(ids, "x"), "x", labeled_rows(part.id, ids, "x"))


@requirement("RANK-02", leans_on=("PUT-08",))
@pytest.mark.parametrize("order", ["reversed", "by length", "rotated"])
def test_a_write_back_lands_at_its_rows(
    part: PartitionUnderTest, actors: Actors, order: str
) -> None:
    rollout, rank, reader = actors(3)
    ids = ids_in(part)
    part.via(rollout).put_labeled(ids, "x")
    ordered = {
        "reversed": ids[::-1],
        "by length": sorted(ids, key=lambda sample_id: (sample_id[-1], sample_id)),
        "rotated": [*ids[5:], *ids[:5]],
    }[order]
    write(part, rank, ordered, 0)
    for via in map(part.via, (rank, reader, rollout)):
        for asked in (ids, ordered, ordered[3:7]):
            batch = via.get(asked, "x", "y")
            expect_column(batch, "y", labeled_rows(part.id, asked, "y"))
            expect_column(batch, "x", labeled_rows(part.id, asked, "x"))


@requirement("RANK-03", leans_on=("R3-01",))
def test_a_leader_reads_what_every_rank_would_read(
    part: PartitionUnderTest, actors: Actors
) -> None:
    ranks, all_ids = actors(RANKS), ids_in(part)
    lengths = [3 + place % 5 for place in range(ROWS)]
    routes = dict(zip(all_ids, route_rows(lengths, BYTES), strict=True))
    for writer, start in zip(ranks, range(0, ROWS, 4), strict=True):
        ids = all_ids[start : start + 4]
        part.via(writer).put(ids, x=stack_or_nest([routes[one] for one in ids]))
    shard = [all_ids[place] for place in (7, 0, 10, 3, 5)]
    got: dict[int, TensorDictBase] = {}

    def read(rank: int) -> None:
        got[rank] = part.via(ranks[rank]).get(shard, "x")

    run_concurrently([partial(read, rank) for rank in range(RANKS)], part.timeouts.check, "rank")
    for rank in range(RANKS):
        expect_column(got[rank], "x", [routes[one] for one in shard])
