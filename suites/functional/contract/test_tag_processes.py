"""TAG across processes: two processes put tags on the same rows."""

from __future__ import annotations

from collections.abc import Callable

from rlconform.certify.assertions.expect import expect
from rlconform.certify.plugin.markers import requirement
from rlconform.certify.scenarios.normalize_metas import tags_by_id
from rlconform.certify.scenarios.partition import PartitionUnderTest
from rlconform.certify.threads import run_concurrently
from rlconform.contract import DataPlaneClient

Actors = Callable[[int], list[DataPlaneClient]]


@requirement("TAG-07")
def test_two_processes_put_tags_on_the_same_rows(part: PartitionUnderTest, actors: Actors) -> None:
    ids = [f"r{i}" for i in range(30)]
    part.put_labeled(ids)
    keys = ["std", "reward"]

    def put_tags(view: PartitionUnderTest, key: str) -> None:
        for n, sample_id in enumerate(ids):
            view.put([sample_id], [{key: n}])

    calls = [
        lambda a=actor, k=key: put_tags(part.via(a), k)
        for actor, key in zip(actors(2), keys, strict=True)
    ]
    run_concurrently(calls, part.timeouts.check, "writer")
    got = tags_by_id(part.claim("train"))
    lost = [i for n, i in enumerate(ids) if got.get(i) != {"std": n, "reward": n}]
    expect(
        not lost,
        "the tags of both processes on every row",
        f"{len(lost)} of {len(ids)} lost one: {lost[:4]}",
    )
