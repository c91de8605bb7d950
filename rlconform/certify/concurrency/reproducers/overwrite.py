"""Race of overwrites and reads: one client overwrites a row while another reads it."""

from __future__ import annotations

from rlconform.certify.concurrency.reproducers.race import Race, get, put

EXPECTED = "what one put wrote to be read together, once it is acknowledged"


def run(race: Race) -> None:
    """Put equal values into x and y, so that a torn or outdated read is recognised."""
    put(race.client, ["r"], 0)
    written = [0]

    def write() -> None:
        for n in race.rounds():
            put(race.client, ["r"], n + 1)
            written[0] = n + 1

    def read() -> None:
        while race.running():
            least = written[0]
            batch = get(race.other, ["r"], ["x", "y"])
            x, y = (set(batch[field].flatten().tolist()) for field in ("x", "y"))
            if x != y or len(x) > 1:
                race.report(f"one put wrote x and y alike, read were {x} and {y}")
            if min(x) < least:
                race.report(f"read {min(x)} after {least} was acknowledged")

    race.run(write, read)
