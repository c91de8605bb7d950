"""Race of tags: two clients put a tag each on the same rows."""

from __future__ import annotations

from rlconform.certify.concurrency.reproducers.race import Race, claim, put
from rlconform.contract import DataPlaneClient

EXPECTED = "the tags of both clients to stay"


def run(race: Race) -> None:
    """Put the tags, then claim the rows and look at their tags."""
    all_ids = [f"r{n}" for n in range(200)]
    put(race.client, all_ids, 0)

    def tag(client: DataPlaneClient, key: str) -> None:
        for n, sample_id in enumerate(all_ids):
            put(client, [sample_id], n, [{key: n}], fields=())

    race.run(lambda: tag(race.client, "std"), lambda: tag(race.other, "reward"))
    while (meta := claim(race.client)).sample_ids:
        for sample_id, tags in zip(meta.sample_ids, meta.tags or [], strict=False):
            n = int(sample_id[1:])
            if tags != {"std": n, "reward": n}:
                race.report(f"{sample_id} got the tags std={n} and reward={n}, and has {tags}")
