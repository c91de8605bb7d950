"""GET across processes: large values, fields that only some rows have, and rearranged metas."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from rlconform.certify.assertions.expect import expect_column, expect_lookup_error
from rlconform.certify.plugin.markers import requirement
from rlconform.certify.scenarios.labeled_rows import labeled_rows
from rlconform.certify.scenarios.partition import PartitionUnderTest
from rlconform.certify.scenarios.two_processes import Actors, each_pair, looker_and_changer
from rlconform.contract import KVBatchMeta
from rlconform.wire import stack_or_nest

IDS = ["u0_g0", "u0_g1", "u1_g0", "u1_g1"]

#: Elements of a row of 1.2 MiB, which clients map or keep where they would copy a small one.
WIDE = 300_000


@pytest.mark.large
@requirement("GET-10", leans_on=("PUT-13", "CLEAR-04"))
@each_pair
def test_a_process_that_has_read_megabytes_reads_what_another_puts_in_their_place(
    part: PartitionUnderTest, actors: Actors, pair: tuple[int, int]
) -> None:
    looker, changer = looker_and_changer(part, actors, pair)
    for version in range(3):
        wide = torch.zeros(2, WIDE)
        wide[:, WIDE // 2] = version
        if version == 2:
            changer.clear(IDS[:2])
        changer.put(IDS[:2], x=wide)
        looker.expect_rows(IDS[:2], x=list(wide))
        looker.expect_rows(IDS[1:2], x=list(wide[1:]))


@requirement("GET-05")
def test_a_field_that_another_process_appended_to_other_rows_is_not_produced(
    part: PartitionUnderTest, actors: Actors
) -> None:
    """Planes that find columns by what most rows have may find another of the same width."""
    policy, reference = (part.via(actor) for actor in actors(2))
    part.put_labeled(IDS)
    half = len(IDS) // 2
    policy.put(IDS[:half], y=torch.full((half, 4), -1.0))
    reference.put(IDS[half:], z=torch.full((half, 4), -2.0))
    for view in (part, policy, reference):
        view.expect_rows(IDS[:half], y=list(torch.full((half, 4), -1.0)))
        for ids in (IDS, IDS[half:], IDS[half : half + 1]):
            read = f"a read of y of {ids}, of which {IDS[half:]} have only z"
            expect_lookup_error(lambda: view.get(ids, "y"), read)  # noqa: B023 - called at once


@requirement("GET-10", leans_on=("PUT-13",))
@each_pair
@pytest.mark.parametrize(
    "elements", [1, pytest.param(20_000, marks=pytest.mark.large)], ids=["short_rows", "long_rows"]
)
@pytest.mark.parametrize("place", [0, 2, 4], ids=["first", "between", "last"])
def test_a_process_that_has_looked_sees_rows_overwritten_beside_a_new_one(
    part: PartitionUnderTest, actors: Actors, pair: tuple[int, int], elements: int, place: int
) -> None:
    """Planes that tell readers of overwritten rows must find them wherever they are in a put."""
    looker, changer = looker_and_changer(part, actors, pair)
    ids = [f"r{n}" for n in range(4)]
    for version in range(3):
        put = [*ids]
        if version:
            put.insert(place, f"new{version}")
        rows = [torch.full((elements,), 10 * version + n) for n in range(len(put))]
        changer.put(put, x=stack_or_nest(rows))
        held = dict(zip(put, rows, strict=True))
        looker.expect_rows(ids, x=[held[i] for i in ids])
        looker.expect_rows(ids[::-1], x=[held[i] for i in ids[::-1]])


@requirement("GET-01", leans_on=("GET-11",))
@pytest.mark.parametrize("change", ["swapped", "replaced"])
@each_pair
def test_a_meta_whose_inner_rows_were_rearranged_is_read_in_its_own_order(
    part: PartitionUnderTest, actors: Actors, pair: tuple[int, int], change: str
) -> None:
    """Planes that send the places of a claim's rows along must see that its ids have changed."""
    reader, claimer = looker_and_changer(part, actors, pair)
    claimer.put_labeled([f"r{n}" for n in range(5)], "x", "y")
    meta = KVBatchMeta.of(claimer.claim("train", ["x", "y"], 4))
    (other,) = claimer.claim("train", ["x", "y"], 1).sample_ids
    ids = list(meta.sample_ids)
    ids[1:3] = [ids[2], ids[1]] if change == "swapped" else [ids[1], other]
    batch = reader.get_data(replace(meta, sample_ids=ids))
    for field in ("x", "y"):
        expect_column(batch, field, labeled_rows(part.id, ids, field))


#: Rounds of a writer, and elements of the rows of a round: 16 MiB each, and 160 MiB in all.
ROUNDS, ROUND_SHAPE = 10, (4, 1 << 20)


@pytest.mark.large
@requirement("GET-10")
@each_pair
def test_a_process_that_only_reads_sees_rows_behind_much_that_another_has_put(
    part: PartitionUnderTest, actors: Actors, pair: tuple[int, int]
) -> None:
    """Readers that map a file or a segment must map it anew once others have made it longer."""
    reader, writer = looker_and_changer(part, actors, pair)
    writer.put(["first"], x=torch.ones(1, ROUND_SHAPE[1]))
    reader.expect_rows(["first"], x=[torch.ones(ROUND_SHAPE[1])])
    for n in part.rounds(ROUNDS):
        ids = [f"r{n}_{row}" for row in range(ROUND_SHAPE[0])]
        writer.put(ids, x=torch.full(ROUND_SHAPE, float(n + 2)))
    reader.expect_rows(ids[-1:], x=[torch.full(ROUND_SHAPE[1:], float(n + 2))])
