"""Workloads for runs with faults: they run until stopped, and go on when calls fail."""

from __future__ import annotations

from dataclasses import dataclass

from rlconform.certify.concurrency.logging_client import LoggingClient
from rlconform.certify.concurrency.workloads import Claimer, Workload

#: Seconds between two rounds: a plane that refuses at once is not asked thousands of times.
PAUSE_S = 0.02
#: Times its batch that a slow consumer claims at once when it drains what is left.
DRAINED_AT_ONCE = 10


@dataclass(frozen=True)
class EndlessProducer(Workload):
    """Puts new rows until stopped. Wide rows make a put long enough to be interrupted."""

    rows: int = 4
    fields: tuple[str, ...] = ("x",)
    width: int = 0
    pause_s: float = PAUSE_S
    leads = False

    def run(self, client: LoggingClient) -> None:
        for number in client.rounds_until_stopped(self.pause_s):
            ids = [f"{client.who}_{number}_{row}" for row in range(self.rows)]
            client.put(client.prepare_put(ids, self.fields, width=self.width))


@dataclass(frozen=True)
class SlowConsumer(Workload):
    """Claims and reads fewer rows than a producer puts, and drains the rest when stopped.

    Rows are ready at any time, so that a claim that meets a fault has rows to lose.
    """

    batch: int = 2
    fields: tuple[str, ...] = ("x",)
    leads = False
    needs = ("claim_meta, not blocking", "get_samples")

    def run(self, client: LoggingClient) -> None:
        for _ in client.rounds_until_stopped(PAUSE_S):
            for sample_id in client.claim("train", self.fields, self.batch):
                client.get([sample_id], self.fields)
        at_once = DRAINED_AT_ONCE * self.batch
        Claimer(fields=self.fields, batch=at_once, reads=self.fields).run(client)


@dataclass(frozen=True)
class AllCalls(Workload):
    """Makes every kind of call in turn, on rows of its own, whatever the answers are.

    Of the rows that it puts, it clears every other one.
    """

    fields: tuple[str, ...] = ("x", "y")
    leads = False
    needs = ("put_samples", "get_samples", "claim_meta, not blocking", "clear_samples")

    def run(self, client: LoggingClient) -> None:
        for number in client.rounds_until_stopped(PAUSE_S):
            row = f"{client.who}_{number}"
            client.put(client.prepare_put([row], self.fields))
            client.get([row], self.fields)
            client.claim("train", self.fields, 2)
            client.status("train")
            if number % 2:
                client.clear([f"{client.who}_{number - 1}"])


@dataclass(frozen=True)
class WaitingClaims(Workload):
    """Makes claims that wait, for a task for which nothing is ever ready."""

    wait_s: float = 2.0
    leads = False
    needs = ("claim_meta, blocking",)

    def run(self, client: LoggingClient) -> None:
        for _ in client.rounds_until_stopped(PAUSE_S):
            client.claim("train", ("never",), 1, self.wait_s)


@dataclass(frozen=True)
class ReadEach(Workload):
    """Reads each row whole, and then each of its fields alone: a partial row shows."""

    ids: tuple[str, ...]
    fields: tuple[str, ...]
    needs = ("get_samples",)

    def run(self, client: LoggingClient) -> None:
        for sample_id in self.ids:
            client.get([sample_id], self.fields)
            for field in self.fields:
                client.get([sample_id], [field])


@dataclass(frozen=True)
class PutAgain(Workload):
    """Puts the rows once more, each in a call of its own, and reads it."""

    ids: tuple[str, ...]
    fields: tuple[str, ...]
    needs = ("put_samples", "get_samples")

    def run(self, client: LoggingClient) -> None:
        for sample_id in self.ids:
            client.put(client.prepare_put([sample_id], self.fields))
            client.get([sample_id], self.fields)
