"""R3 across processes: the experts of each token, which training replays, reach every rank."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
import torch

from rlconform.certify.assertions.expect import expect_column, expect_equal, leaf_of
from rlconform.certify.plugin.markers import requirement
from rlconform.certify.scenarios.partition import PartitionUnderTest
from rlconform.certify.scenarios.routes import BYTES, SHORTS, route_rows
from rlconform.certify.threads import run_concurrently
from rlconform.contract import DataPlaneClient, KVBatchMeta
from rlconform.contract.fields import INPUT_IDS, ROUTED_EXPERTS
from rlconform.grpo.router_replay.route_format import RouteFormat
from rlconform.plane import read_columns
from rlconform.wire import stack_or_nest

Actors = Callable[[int], list[DataPlaneClient]]

#: Unequal rows, equal rows, and a row of one token.
LENGTHS = [(9, 4, 17, 2), (6, 6, 6, 6), (1, 12, 3, 1)]


@pytest.fixture
def part(new_partition: Callable[..., PartitionUnderTest]) -> PartitionUnderTest:
    """Return a partition with tokens and routes."""
    return new_partition(fields=[INPUT_IDS, ROUTED_EXPERTS])


def ids_in(part: PartitionUnderTest) -> list[str]:
    """Return the ids of four rows; no other check uses them, in any process."""
    return [f"{part.id}-u{n // 2}_g{n % 2}" for n in range(4)]


def expect_exact(
    part: PartitionUnderTest, actors: Actors, lengths: tuple[int, ...], routes: RouteFormat
) -> None:
    """Put rows from one process, and check what the others read."""
    writer, reader = (part.via(actor) for actor in actors(2))
    rows, all_ids = route_rows(lengths, routes), ids_in(part)
    writer.put(all_ids, **{ROUTED_EXPERTS: stack_or_nest(rows)})
    for via in (reader, part):
        for chosen in ([0, 1, 2, 3], [3, 1, 0, 2], [2], [1, 3]):
            ids, expected = [all_ids[n] for n in chosen], [rows[n] for n in chosen]
            expect_column(via.get(ids, ROUTED_EXPERTS), ROUTED_EXPERTS, expected)
            meta = KVBatchMeta(part.id, None, ids, fields=[ROUTED_EXPERTS])
            expect_column(via.get_data(meta), ROUTED_EXPERTS, expected)


@requirement("R3-01", leans_on=("PUT-07",))
@pytest.mark.parametrize("lengths", LENGTHS, ids=str)
def test_routes_of_one_byte_reach_other_processes(
    part: PartitionUnderTest, actors: Actors, lengths: tuple[int, ...]
) -> None:
    expect_exact(part, actors, lengths, BYTES)


@requirement("R3-02", leans_on=("PUT-07",))
@pytest.mark.parametrize("lengths", LENGTHS, ids=str)
def test_routes_of_two_bytes_reach_other_processes(
    part: PartitionUnderTest, actors: Actors, lengths: tuple[int, ...]
) -> None:
    expect_exact(part, actors, lengths, SHORTS)


@requirement("R3-03", leans_on=("R3-01", "WIRE-02"))
def test_routes_stay_beside_their_tokens(part: PartitionUnderTest, actors: Actors) -> None:
    lengths, width = (9, 4, 17, 2), 20
    writers, ranks, ids = actors(2), [0, 1], ids_in(part)
    rows = route_rows(lengths, BYTES)
    tokens = [torch.arange(n) + 100 * row for row, n in enumerate(lengths)]
    for writer, start in zip(writers, (0, 2), strict=True):  # two puts, from two processes
        span = slice(start, start + 2)
        part.via(writer).put(
            ids[span],
            **{
                INPUT_IDS: stack_or_nest(tokens[span]),
                ROUTED_EXPERTS: stack_or_nest(rows[span]),
            },
        )
    shards = [[2, 1], [3, 0]]  # each of rows of both puts, not in their order

    def read(rank: int) -> None:
        meta = KVBatchMeta(part.id, None, [ids[n] for n in shards[rank]])
        batch = read_columns(
            part.via(writers[rank]).client,
            meta,
            [INPUT_IDS, ROUTED_EXPERTS],
            pad_value_dict={ROUTED_EXPERTS: BYTES.missing},
            pad_to_seqlen=width,
        )
        wide = [torch.nn.functional.pad(tokens[n], (0, width - lengths[n])) for n in shards[rank]]
        expect_column(batch, INPUT_IDS, wide)
        expect_equal(
            tuple(leaf_of(batch, ROUTED_EXPERTS).shape), (2, width, 48, 8), "the shape of routes"
        )
        expected = BYTES.blank(2, width)
        for place, n in enumerate(shards[rank]):
            expected[place, : lengths[n]] = rows[n]
        expect_column(batch, ROUTED_EXPERTS, list(expected))

    run_concurrently([partial(read, rank) for rank in ranks], part.timeouts.check, "rank")
