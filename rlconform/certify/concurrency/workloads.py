"""Workloads: short loops of client calls that run at the same time on one partition.

A workload runs in one thread of some process and calls a ``LoggingClient``. A *leading* workload
ends by itself, after its seconds or rounds. Any other workload runs until the leading workloads
have ended, and then does what is left to do.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

import torch

from rlconform.certify.concurrency.logging_client import MOST_REFUSALS, LoggingClient

#: Most fields of a workload that adds a new one in each round.
MOST_FIELDS = 100
#: Seconds between two status calls, which a plane may answer very fast.
STATUS_PAUSE_S = 0.0005
#: Rows per read, where many are read.
READ_AT_ONCE = 16
#: Rows of a large put, and of a large claim or read. A backend may divide it into several
#: statements, messages or locks, and then calls of other processes come between them.
LARGE_PUT, LARGE_TAKE = 1400, 1200
#: Time of the workloads that make large puts, in seconds.
LARGE_S = 0.4


class Workload(ABC):
    """A loop of client calls."""

    leads: ClassVar[bool] = True  # it ends by itself
    needs: ClassVar[tuple[str, ...]] = ("put_samples",)  # kinds of calls that it can't do without

    @abstractmethod
    def run(self, client: LoggingClient) -> None:
        """Make the calls."""


@dataclass(frozen=True)
class SinglePut(Workload):
    """Puts all its rows in one call."""

    ids: tuple[str, ...]

    def run(self, client: LoggingClient) -> None:
        client.put(client.prepare_put(self.ids, ["x"]))


@dataclass(frozen=True)
class Producer(Workload):
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

    def run(self, client: LoggingClient) -> None:
        for number in client.rounds(self.seconds):
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
class Claimer(Workload):
    """Claims for each of its tasks, reads what it claimed, and ends when no row is left.

    With ``late`` it begins when the leading workloads have ended. After an empty claim it waits
    ``idle_s``: a thread that claims without a pause can keep others from their client's lock.
    """

    tasks: tuple[str, ...] = ("train",)
    fields: tuple[str, ...] = ("x",)
    batch: int = 5
    reads: tuple[str, ...] = ()
    late: bool = False
    idle_s: float = 0.0
    leads = False
    needs = ("claim_meta, not blocking",)

    def run(self, client: LoggingClient) -> None:
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
class PutClearLoop(Workload):
    """Puts and clears rows with ids that other workloads use, so that the plane reuses slots.

    Each put writes ``shared`` of these ids and a third as many new ids that no other workload uses.
    The new rows are never cleared, and are read at the end. Before the next put it clears
    ``clears`` shared ids.
    """

    seconds: float
    ids: tuple[str, ...]
    clears: int = 0
    shared: int = 12
    needs = ("put_samples", "clear_samples", "get_samples")

    def run(self, client: LoggingClient) -> None:
        kept: list[str] = []
        for number in client.rounds(self.seconds):
            new = [f"{client.who}_{number}_{n}" for n in range(self.shared // 3)]
            # prepared before the clear, so that the slots that it frees are reused immediately
            put = client.prepare_put([*client.rng.sample(self.ids, self.shared), *new], ["x"])
            if self.clears and number:
                client.clear(client.rng.sample(self.ids, self.clears))
            client.put(put)
            kept += new
        at_once = max(READ_AT_ONCE, self.shared)
        for start in range(0, len(kept), at_once):
            client.get(kept[start : start + at_once], ["x"])


@dataclass(frozen=True)
class Clearer(Workload):
    """Clears eight random ids per call, and pauses up to ``pause_s`` so that rows exist a while."""

    ids: tuple[str, ...]
    pause_s: float = 0.0
    leads = False
    needs = ("clear_samples",)

    def run(self, client: LoggingClient) -> None:
        for _ in client.rounds_until_stopped():
            client.clear(client.rng.sample(self.ids, 8))
            client.pause(self.pause_s * client.rng.random())


@dataclass(frozen=True)
class Overwriter(Workload):
    """Puts all rows repeatedly; with ``ragged`` their widths change each time."""

    seconds: float
    ids: tuple[str, ...]
    fields: tuple[str, ...] = ("x",)
    ragged: bool = False
    dtypes: Mapping[str, torch.dtype] = field(default_factory=dict)

    def run(self, client: LoggingClient) -> None:
        for _ in client.rounds(self.seconds):
            client.put(
                client.prepare_put(self.ids, self.fields, ragged=self.ragged, dtypes=self.dtypes)
            )
            if self.dtypes:
                client.get(self.ids, self.fields, dtypes=self.dtypes)


@dataclass(frozen=True)
class Appender(Workload):
    """Puts one new field after another on the same rows, and reads all of them at the end."""

    seconds: float
    ids: tuple[str, ...]
    needs = ("put_samples", "get_samples")

    def run(self, client: LoggingClient) -> None:
        fields: list[str] = []
        for number in client.rounds(self.seconds, MOST_FIELDS):
            fields.append(f"{client.who}_f{number}")
            client.put(client.prepare_put(self.ids, fields[-1:]))
        for name in fields:
            client.get(self.ids, [name])


@dataclass(frozen=True)
class Reader(Workload):
    """Reads the fields of ``at_once`` random rows per call."""

    ids: tuple[str, ...]
    fields: tuple[str, ...] = ("x",)
    at_once: int = 1
    leads = False
    needs = ("get_samples",)

    def run(self, client: LoggingClient) -> None:
        for _ in client.rounds_until_stopped():
            client.get(client.rng.sample(self.ids, self.at_once), self.fields)


@dataclass(frozen=True)
class TagWriter(Workload):
    """Puts tags without fields on ``rows`` rows after the others, each time under a new key."""

    seconds: float
    ids: tuple[str, ...]
    prefix: str
    rows: int = 1

    def run(self, client: LoggingClient) -> None:
        for number in client.rounds(self.seconds):
            tags = {f"{self.prefix}{number}": number}
            first = number * self.rows % len(self.ids)
            ids = self.ids[first : first + self.rows]
            client.put(client.prepare_put(ids, (), [tags] * len(ids)))


@dataclass(frozen=True)
class Registrar(Workload):
    """Registers the partition repeatedly."""

    seconds: float
    fields: tuple[str, ...]
    tasks: tuple[str, ...]
    needs = ("register_partition",)

    def run(self, client: LoggingClient) -> None:
        for _ in client.rounds(self.seconds):
            client.register(self.fields, self.tasks)


@dataclass(frozen=True)
class StatusPoller(Workload):
    """Reads the status of a task repeatedly, and again when the leading workloads have ended."""

    leads = False
    needs = ("check_consumption_status",)

    def run(self, client: LoggingClient) -> None:
        for _ in client.rounds_until_stopped(STATUS_PAUSE_S):
            client.status("train")
        client.status("train")
