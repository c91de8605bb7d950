"""Race of puts and reads of claimed rows: what one client puts, another claims and reads."""

from __future__ import annotations

from rlconform.certify.concurrency.reproducers.race import Race, claim, get, put

EXPECTED = "what is claimed to be readable"


def run(race: Race) -> None:
    """Read each row as soon as it is claimed."""

    def write() -> None:
        for n in race.rounds():
            put(race.client, [f"r{n}"], n)

    def read() -> None:
        while race.running():
            for sample_id in claim(race.other).sample_ids:
                try:
                    get(race.other, [sample_id], ["x", "y"])
                except LookupError as error:
                    race.report(f"{sample_id} was claimed, but can't be read: {error}")

    race.run(write, read)
