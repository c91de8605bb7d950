"""TAG across processes: stamps from several sides."""

from __future__ import annotations

from collections.abc import Callable

from rlconform.certify.evidence.expect import (
    expect,
)
from rlconform.certify.evidence.together import together
from rlconform.certify.marks import requirement
from rlconform.certify.scenes.partition import Partition, tags_by_id
from rlconform.contract import DataPlaneClient

Actors = Callable[[int], list[DataPlaneClient]]


@requirement("TAG-07")
def test_two_processes_stamp_the_same_rows(part: Partition, actors: Actors) -> None:
    ids = [f"r{i}" for i in range(30)]
    part.put_payload(ids)
    keys = ["std", "reward"]

    def stamp(stamping: Partition, key: str) -> None:
        for n, sample_id in enumerate(ids):
            stamping.put([sample_id], [{key: n}])

    calls = [
        lambda a=actor, k=key: stamp(part.via(a), k)
        for actor, key in zip(actors(2), keys, strict=True)
    ]
    together(calls, part.timeouts.check, "stamper")
    came = tags_by_id(part.claim("train"))
    lost = [i for n, i in enumerate(ids) if came.get(i) != {"std": n, "reward": n}]
    expect(not lost, "both stamps on every row", f"{len(lost)} of {len(ids)} lost one: {lost[:4]}")
