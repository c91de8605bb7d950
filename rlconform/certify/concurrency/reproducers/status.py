"""Race of status calls: one client asks for the status all the time, another after each change."""

from __future__ import annotations

from rlconform.certify.concurrency.reproducers.race import Race, claim, put
from rlconform.contract import DataPlaneClient

EXPECTED = "a status that fits the puts and claims that have returned"


def run(race: Race) -> None:
    """Ask after each put, when a row is unclaimed, and after all rows were claimed."""
    put(race.client, ["first"], 0)

    def consumed(client: DataPlaneClient) -> bool:
        return client.check_consumption_status(partition_id="p", task_names=["train"])

    def produce() -> None:
        for n in race.rounds():
            put(race.client, [f"r{n}"], n)
            if done := consumed(race.other):
                race.report(f"r{n} was put, nobody has claimed it, and the status is {done}")
            while not claim(race.client).sample_ids:
                pass
            while claim(race.client).sample_ids:
                pass
            if not (done := consumed(race.other)):
                race.report(f"everything up to r{n} was claimed, and the status is {done}")

    def ask() -> None:
        while race.running():
            consumed(race.client)

    race.run(produce, ask)
