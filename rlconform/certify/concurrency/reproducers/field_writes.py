"""Race of writes: two clients write a field each and one tags, while a consumer claims the rows."""

from __future__ import annotations

from collections import Counter

from rlconform.certify.concurrency.reproducers.race import Race, claim, get, put
from rlconform.contract import DataPlaneClient

EXPECTED = "each write, tag and claim to keep what the others did"


def run(race: Race) -> None:
    """Compare claims, fields and tags with what all threads wrote."""
    all_ids = [f"r{n}" for n in range(400)]
    race.client.register_partition(
        partition_id="p", fields=["x", "y", "z"], num_samples=400, consumer_tasks=["train", "late"]
    )
    put(race.client, all_ids, 0, [{"weight_version": 1}] * len(all_ids), fields=["x"])
    claimed: list[str] = []

    def write(client: DataPlaneClient, field: str) -> None:
        for sample_id in all_ids:
            put(client, [sample_id], 0, fields=[field])

    def tag() -> None:
        for sample_id in all_ids:
            put(race.client, [sample_id], 0, [{"std": 0.5}], fields=())

    def consume() -> None:
        while len(set(claimed)) < len(all_ids) and race.running():
            claimed.extend(claim(race.client).sample_ids)

    race.run(lambda: write(race.client, "y"), lambda: write(race.other, "z"), tag, consume)
    while ids := claim(race.client).sample_ids:
        claimed.extend(ids)
    if twice := sorted(i for i, times in Counter(claimed).items() if times > 1):
        race.report(f"claimed twice: {twice}")
    for sample_id in all_ids:
        try:
            get(race.client, [sample_id], ["x", "y", "z"])
        except LookupError as error:
            race.report(f"x, y and z of {sample_id} were put, but can't be read: {error}")
    meta = claim(race.client, "late", 400)
    for sample_id, tags in zip(meta.sample_ids, meta.tags or [], strict=False):
        if tags != {"weight_version": 1, "std": 0.5}:
            race.report(f"{sample_id} got the tag std=0.5, and has {tags}")
