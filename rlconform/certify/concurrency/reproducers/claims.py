"""Race of claims: two consumers claim while a producer puts rows with tags."""

from __future__ import annotations

from collections import Counter

from rlconform.certify.concurrency.reproducers.race import Race, claim, put
from rlconform.contract import DataPlaneClient

EXPECTED = "each row claimed once, with its tags"


def run(race: Race) -> None:
    """Claim until no row is left, and compare the claimed ids with those put."""
    claimed: list[str] = []
    produced: list[str] = []

    def produce() -> None:
        for n in race.rounds(2000):
            ids = [f"r{n}_{k}" for k in range(4)]
            put(race.client, ids, n, [{"n": n}] * 4)
            produced.extend(ids)

    def consume(client: DataPlaneClient) -> None:
        while race.running():
            meta = claim(client)
            claimed.extend(meta.sample_ids)
            all_tags = meta.tags or [{} for _ in meta.sample_ids]
            for sample_id, tags in zip(meta.sample_ids, all_tags, strict=False):
                if tags != {"n": int(sample_id[1:].split("_")[0])}:
                    race.report(f"{sample_id} was claimed with tags {tags}")

    race.run(produce, lambda: consume(race.client), lambda: consume(race.other))
    while ids := claim(race.client).sample_ids:
        claimed.extend(ids)
    if twice := sorted(i for i, times in Counter(claimed).items() if times > 1):
        race.report(f"claimed twice: {twice}")
    if lost := sorted(set(produced) - set(claimed)):
        race.report(f"never claimed: {lost}")
