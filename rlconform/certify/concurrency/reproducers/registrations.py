"""Race of registrations and claims: a partition without rows is registered repeatedly."""

from __future__ import annotations

from rlconform.certify.concurrency.reproducers.race import Race, claim

EXPECTED = "no row claimable where nothing was put"


def run(race: Race) -> None:
    """Claim from the partition, which must never return a row."""

    def register() -> None:
        while race.running():
            race.client.register_partition(
                partition_id="p", fields=["x", "y"], num_samples=64, consumer_tasks=["train"]
            )

    def consume() -> None:
        while race.running():
            if ids := claim(race.other).sample_ids:
                race.report(f"claimed {ids} in a partition in which nothing was put")

    race.run(register, consume)
