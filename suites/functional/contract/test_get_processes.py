"""GET across processes: each process reads what another process put."""

from __future__ import annotations

from collections.abc import Callable

import torch

from rlconform.certify.assertions.expect import expect_column
from rlconform.certify.plugin.markers import requirement
from rlconform.certify.scenarios.labeled_rows import labeled_rows
from rlconform.certify.scenarios.partition import PartitionUnderTest, expect_unreadable
from rlconform.contract import DataPlaneClient

Actors = Callable[[int], list[DataPlaneClient]]
IDS = ["u0_g0", "u0_g1", "u1_g0"]


@requirement("GET-10")
def test_a_finished_put_is_seen_in_every_process(part: PartitionUnderTest, actors: Actors) -> None:
    writer, reader = (part.via(actor) for actor in actors(2))
    for n in range(20):
        ids = [f"r{n}_{k}" for k in range(2)]
        for version in (0, 1):
            writer.put_labeled(ids, version=version)
            reader.expect_labeled(ids, version=version)
            part.expect_labeled(ids, version=version)
    writer.clear(ids)
    expect_unreadable(lambda: reader.get(ids[:1], "x"), ids[0], "x")


@requirement("GET-10")
def test_rows_of_megabytes_pass_between_processes(part: PartitionUnderTest, actors: Actors) -> None:
    width = 2 << 20
    rows = labeled_rows(part.id, IDS[:2], "x", 0, width)
    first, second = (part.via(actor) for actor in actors(2))
    first.put(IDS[:2], x=torch.stack(rows))
    second.expect_rows(IDS[:2], x=rows)
    second.put(IDS[:1], x=rows[1].reshape(1, width))
    first.expect_rows(IDS[:2], x=[rows[1], rows[1]])


@requirement("GET-11")
def test_claimed_rows_are_read_by_another_process(part: PartitionUnderTest, actors: Actors) -> None:
    (actor,) = actors(1)
    part.put_labeled(IDS, "x", "y")
    meta = part.claim("train", ["x", "y"])
    batch = part.via(actor).get_data(meta)
    for field in ("x", "y"):
        expect_column(batch, field, labeled_rows(part.id, meta.sample_ids, field))
