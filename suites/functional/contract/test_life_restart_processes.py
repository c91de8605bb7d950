"""LIFE-04 across processes: a plane that starts again while processes of the old one live on."""

from __future__ import annotations

from functools import partial

import torch

from rlconform.certify.plugin.markers import requirement
from rlconform.certify.plugin.plane_session import PlaneSession
from rlconform.certify.scenarios.partition import FIELDS, PartitionUnderTest, expect_ids

IDS = ["u0_g0", "u0_g1", "u1_g0", "u1_g1"]
#: Elements of a row that makes a column large enough to be kept by those who read it.
WIDE = 15_000


@requirement("LIFE-04", ends_plane=True, leans_on=("LIFE-06",))
def test_a_process_of_the_old_plane_attaches_to_the_new_one(
    plane: PlaneSession, part: PartitionUnderTest
) -> None:
    """Planes that look up once in each process where the plane is go to the old one.

    Those that keep what a process has read, by a number that begins anew, read the old rows. Those
    that keep the numbers of fields read one field as another, as the new plane has another order.
    A large column is put in two halves, first and last: each has a number of the other plane's.
    """

    def wide(version: int) -> torch.Tensor:
        return torch.full((len(IDS), WIDE), version)

    def on_a_new_plane(version: int) -> PartitionUnderTest:
        """Put the rows on a plane where nothing was put before, so that it counts as the other."""
        plane.renew()
        new = PartitionUnderTest(plane.recorded(part.client.recording), part.id, part.timeouts)
        fields = [*FIELDS, "wide"]
        new.register(fields=fields[::-1] if version else fields)
        puts = [
            partial(new.put, IDS[:2], wide=wide(version)[:2]),
            partial(new.put_labeled, IDS, version=version),
            partial(new.put, IDS[2:], wide=wide(version)[2:]),
        ]
        for put in puts[::-1] if version else puts:
            put()
        return new

    def expect_rows_of(view: PartitionUnderTest, version: int) -> None:
        view.expect_labeled(IDS, version=version)
        view.expect_rows(IDS, wide=list(wide(version)))

    old = on_a_new_plane(0)
    (worker,) = plane.actors().start(1)
    try:
        expect_rows_of(old.via(worker), 0)
        worker.close()
        new = on_a_new_plane(1)
        plane.actors().attach_again(worker)
        view = new.via(worker)
        expect_rows_of(view, 1)
        view.put_labeled(["late"])
        new.expect_labeled(["late"])
        expect_ids(view.claim("train"), [*IDS, "late"], "rows of the new plane")
    finally:
        worker.end()
