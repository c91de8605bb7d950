"""Race of new fields: two clients put fields that were never put before, while another claims."""

from __future__ import annotations

from rlconform.certify.concurrency.reproducers.race import Race, claim, get, put
from rlconform.contract import DataPlaneClient

EXPECTED = "puts, reads and claims during puts of new fields to return"


def run(race: Race) -> None:
    """Report each call that raises."""

    def produce(client: DataPlaneClient, name: str) -> None:
        for n in race.rounds(500):
            fields = ["x", f"{name}{n}"]
            try:
                put(client, [f"{name}{n}"], n, fields=fields)
                get(client, [f"{name}{n}"], fields)
            except Exception as error:  # noqa: BLE001 - a plane may raise anything
                race.report(f"{type(error).__name__}: {error}")

    def consume() -> None:
        while race.running():
            try:
                claim(race.client)
            except Exception as error:  # noqa: BLE001 - a plane may raise anything
                race.report(f"{type(error).__name__}: {error}")

    race.run(lambda: produce(race.client, "a"), lambda: produce(race.other, "b"), consume)
