"""Workloads: short loops of client calls that run at the same time on one partition.

A workload runs in one thread of some process and calls a ``LoggingClient``. A *leading* workload
ends by itself, after its seconds or rounds. Any other runs until the leading ones have ended,
and then until nothing is left for it to do.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Protocol

import torch

from rlconform.certify.concurrency.logging_client import MOST_REFUSALS, LoggingClient

#: Most rounds of a leading workload, as a fast plane could do very many in its time.
MOST_ROUNDS = 1500
#: Most rounds of a workload that runs until stopped; after them it only waits.
MOST_FOLLOWER_ROUNDS = 6000
#: Most fields of a workload that adds a new one in each round.
MOST_FIELDS = 100
#: Seconds between two status calls, which a plane may answer very fast.
STATUS_PAUSE_S = 0.0005
#: Rows per read, where many are read.
READ_AT_ONCE = 16


class Workload(Protocol):
    """A loop of client calls.

    Attributes:
        needs: Kinds of calls that it can't do without.
    """

    needs: ClassVar[tuple[str, ...]]

    @property
    def leads(self) -> bool:
        """Whether it ends by itself."""

    def run(self, client: LoggingClient) -> None:
        """Make the calls."""


@dataclass(frozen=True)
class SinglePut:
    """Puts these rows in one put."""

    ids: tuple[str, ...]
    fields: tuple[str, ...] = ("x",)
    leads: bool = field(default=True, init=False)
    needs: ClassVar[tuple[str, ...]] = ("put_samples",)

    def run(self, client: LoggingClient) -> None:
        """Put once."""
        client.put(client.prepare_put(self.ids, self.fields))


@dataclass(frozen=True)
class Producer:
    """Puts new rows, each once.

    With ``fresh_fields`` every put adds a field that was never put before. With ``appends`` another
    put of these fields follows immediately. After each put the rows are read ``reads_back`` times.
    """

    seconds: float
    rows: int = 4
    fields: tuple[str, ...] = ("x",)
    tagged: bool = False
    fresh_fields: bool = False
    appends: tuple[str, ...] = ()
    reads_back: int = 0
    leads: bool = field(default=True, init=False)
    needs: ClassVar[tuple[str, ...]] = ("put_samples",)

    def run(self, client: LoggingClient) -> None:
        """Put until the time is over."""
        for number in client.rounds(self.seconds, MOST_ROUNDS):
            ids = [f"{client.who}_{number}_{row}" for row in range(self.rows)]
            fields = (*self.fields, *((f"{client.who}_f{number}",) if self.fresh_fields else ()))
            tags = [{"weight_version": client.number, "turn": number}] * self.rows
            appended = client.prepare_put(ids, self.appends) if self.appends else None
            client.put(client.prepare_put(ids, fields, tags if self.tagged else None))
            if appended:
                client.put(appended)
            for _ in range(self.reads_back):
                client.get(ids, fields)


@dataclass(frozen=True)
class Claimer:
    """Claims for each of its tasks, reads what it claimed, and ends when nothing is left.

    A ``late`` one begins when the leading workloads have ended. After an empty claim it waits
    ``idle_s``: a thread that claims without a pause can starve the others of their client's lock.
    """

    tasks: tuple[str, ...] = ("train",)
    fields: tuple[str, ...] = ("x",)
    batch: int = 5
    reads: tuple[str, ...] = ()
    late: bool = False
    idle_s: float = 0.0
    leads: bool = field(default=False, init=False)
    needs: ClassVar[tuple[str, ...]] = ("claim_meta, not blocking",)

    def run(self, client: LoggingClient) -> None:
        """Claim until nothing is left."""
        if self.late:
            client.wait_for_stop()
        ended, batch = False, self.batch
        while not ended:
            stopping = client.stopping  # read before the claims: once set, an empty claim is last
            claimed = [i for task in self.tasks for i in self._claim(client, task, batch)]
            drained = stopping and not claimed
            ended = (drained and batch == 1) or client.refusals > MOST_REFUSALS
            if drained:
                batch = 1  # CLAIM-04 alone judges whether a claim returns less than a batch
            if self.idle_s and not claimed:
                client.pause(self.idle_s)

    def _claim(self, client: LoggingClient, task: str, batch: int) -> list[object]:
        ids = client.claim(task, self.fields, batch)
        if self.reads:
            for sample_id in ids:
                client.get([sample_id], self.reads)
        return ids


@dataclass(frozen=True)
class PutClearLoop:
    """Puts and clears rows with ids that other workloads use, so that the plane reuses slots.

    Each put writes ``puts`` of the shared ids and ``keeps`` rows that only it uses. No workload
    clears those, and it reads them at the end. Before the next put it clears ``clears`` shared ids.
    """

    seconds: float
    ids: tuple[str, ...]
    fields: tuple[str, ...] = ("x",)
    puts: int = 12
    keeps: int = 4
    clears: int = 0
    leads: bool = field(default=True, init=False)
    needs: ClassVar[tuple[str, ...]] = ("put_samples", "clear_samples", "get_samples")

    def run(self, client: LoggingClient) -> None:
        """Put and clear until the time is over."""
        kept: list[str] = []
        for number in client.rounds(self.seconds, MOST_ROUNDS):
            new = [f"{client.who}_{number}_{n}" for n in range(self.keeps)]
            # prepared before the clear, so that the slots that it frees are reused immediately
            put = client.prepare_put([*client.rng.sample(self.ids, self.puts), *new], self.fields)
            if self.clears and number:
                client.clear(client.rng.sample(self.ids, self.clears))
            client.put(put)
            kept += new
        for start in range(0, len(kept), READ_AT_ONCE):
            client.get(kept[start : start + READ_AT_ONCE], self.fields)


@dataclass(frozen=True)
class Clearer:
    """Clears random rows, existing or not, and waits up to ``pause_s`` in between.

    Without a pause the rows would seldom exist long enough to be read.
    """

    ids: tuple[str, ...]
    at_once: int = 8
    pause_s: float = 0.0
    leads: bool = field(default=False, init=False)
    needs: ClassVar[tuple[str, ...]] = ("clear_samples",)

    def run(self, client: LoggingClient) -> None:
        """Clear until stopped."""
        for _ in client.rounds_until_stopped(MOST_FOLLOWER_ROUNDS):
            client.clear(client.rng.sample(self.ids, self.at_once))
            client.pause(self.pause_s * client.rng.random())


@dataclass(frozen=True)
class Overwriter:
    """Puts all rows repeatedly; with ``ragged`` their widths change each time."""

    seconds: float
    ids: tuple[str, ...]
    fields: tuple[str, ...] = ("x",)
    ragged: bool = False
    dtypes: Mapping[str, torch.dtype] = field(default_factory=dict)
    leads: bool = field(default=True, init=False)
    needs: ClassVar[tuple[str, ...]] = ("put_samples",)

    def run(self, client: LoggingClient) -> None:
        """Put until the time is over."""
        for _ in client.rounds(self.seconds, MOST_ROUNDS):
            client.put(
                client.prepare_put(self.ids, self.fields, ragged=self.ragged, dtypes=self.dtypes)
            )
            if self.dtypes:
                client.get(self.ids, self.fields, dtypes=self.dtypes)


@dataclass(frozen=True)
class Appender:
    """Puts one new field after another on the same rows, and reads all of them at the end."""

    seconds: float
    ids: tuple[str, ...]
    leads: bool = field(default=True, init=False)
    needs: ClassVar[tuple[str, ...]] = ("put_samples", "get_samples")

    def run(self, client: LoggingClient) -> None:
        """Put until the time is over."""
        fields: list[str] = []
        for number in client.rounds(self.seconds, MOST_FIELDS):
            fields.append(f"{client.who}_f{number}")
            client.put(client.prepare_put(self.ids, fields[-1:]))
        for name in fields:
            client.get(self.ids, [name])


@dataclass(frozen=True)
class Reader:
    """Reads the fields of ``at_once`` random rows per call."""

    ids: tuple[str, ...]
    fields: tuple[str, ...] = ("x",)
    at_once: int = 1
    leads: bool = field(default=False, init=False)
    needs: ClassVar[tuple[str, ...]] = ("get_samples",)

    def run(self, client: LoggingClient) -> None:
        """Read until stopped."""
        for _ in client.rounds_until_stopped(MOST_FOLLOWER_ROUNDS):
            client.get(client.rng.sample(self.ids, self.at_once), self.fields)


@dataclass(frozen=True)
class TagWriter:
    """Puts tags without fields on one row after another, each time under a new key."""

    seconds: float
    ids: tuple[str, ...]
    prefix: str
    leads: bool = field(default=True, init=False)
    needs: ClassVar[tuple[str, ...]] = ("put_samples",)

    def run(self, client: LoggingClient) -> None:
        """Put tags until the time is over."""
        for number in client.rounds(self.seconds, MOST_ROUNDS):
            client.put(
                client.prepare_put(
                    [self.ids[number % len(self.ids)]], (), [{f"{self.prefix}{number}": number}]
                )
            )


@dataclass(frozen=True)
class Registrar:
    """Registers the partition repeatedly."""

    seconds: float
    fields: tuple[str, ...]
    tasks: tuple[str, ...]
    leads: bool = field(default=True, init=False)
    needs: ClassVar[tuple[str, ...]] = ("register_partition",)

    def run(self, client: LoggingClient) -> None:
        """Register until the time is over."""
        for _ in client.rounds(self.seconds, MOST_ROUNDS):
            client.register(self.fields, self.tasks)


@dataclass(frozen=True)
class StatusPoller:
    """Asks for the status of its tasks, a last time when the leading workloads have ended."""

    tasks: tuple[str, ...] = ("train",)
    leads: bool = field(default=False, init=False)
    needs: ClassVar[tuple[str, ...]] = ("check_consumption_status",)

    def run(self, client: LoggingClient) -> None:
        """Ask until stopped."""
        for _ in client.rounds_until_stopped(MOST_FOLLOWER_ROUNDS, STATUS_PAUSE_S):
            self._ask(client)
        self._ask(client)

    def _ask(self, client: LoggingClient) -> None:
        for task in self.tasks:
            client.status(task)
