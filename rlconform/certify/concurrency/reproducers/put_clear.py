"""Race of puts and clears: rows are put and cleared by two clients while others read and claim."""

from __future__ import annotations

import random
import time

from rlconform.certify.concurrency.reproducers.race import Race, claim, put, values
from rlconform.contract import DataPlaneClient

EXPECTED = "reads of a row to give its own values, and claims of rows that are there"


def run(race: Race) -> None:
    """Put a different value for each id, so that a read of another row is recognised."""
    value_of = {f"c{k}": k for k in range(8)}

    def churn(client: DataPlaneClient) -> None:
        while race.running():
            ids = random.sample(sorted(value_of), 2)
            for sample_id in ids:
                put(client, [sample_id], value_of[sample_id])
            put(client, [f"kept{time.monotonic_ns()}"], -1)
            client.clear_samples(sample_ids=ids, partition_id="p")

    def read() -> None:
        while race.running():
            sample_id = random.choice(sorted(value_of))
            try:
                row = values(race.other, sample_id, "x")
            except LookupError:
                continue  # it was cleared
            if set(row) != {value_of[sample_id]}:
                race.report(f"row of {sample_id} read as {row}, not {value_of[sample_id]}")

    def consume() -> None:
        while race.running():
            ids: list[str | None] = [*claim(race.client).sample_ids]
            if None in ids:
                race.report(f"a claim named {ids}")

    race.run(lambda: churn(race.client), lambda: churn(race.other), read, consume)
