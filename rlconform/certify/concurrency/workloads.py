"""What the processes of a history do: short loops of client calls, each written down.

A role runs in one thread of some process and calls its client through a ``LoggingClient``. A
*leading* role ends by itself, after its seconds or rounds; any other goes on until the leading
ones are over, and then until nothing is left for it to do.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Protocol

import torch

from rlconform.certify.concurrency.logging_client import MOST_REFUSALS, LoggingClient

#: Rounds after which a leading role ends on a plane that is too fast for its seconds.
MOST_ROUNDS = 1500
#: Calls after which one that goes on until stopped waits for that, on a plane that is too fast.
MOST_LOOKS = 6000
#: Fields after which one that brings a new one each time ends.
MOST_FIELDS = 100
#: Seconds between two questions for the status, which a plane may answer from memory.
APART_S = 0.0005
#: Rows of one read, where many are read.
READ_AT_ONCE = 16


class Workload(Protocol):
    """One process's part.

    Attributes:
        needs: Kinds of calls that it can't do without.
    """

    needs: ClassVar[tuple[str, ...]]

    @property
    def leads(self) -> bool:
        """Whether it ends by itself."""

    def play(self, act: LoggingClient) -> None:
        """Make the calls."""


@dataclass(frozen=True)
class SinglePut:
    """Puts these rows, in one put."""

    ids: tuple[str, ...]
    fields: tuple[str, ...] = ("x",)
    leads: bool = field(default=True, init=False)
    needs: ClassVar[tuple[str, ...]] = ("put_samples",)

    def play(self, act: LoggingClient) -> None:
        """Put once."""
        act.put(act.prepared(self.ids, self.fields))


@dataclass(frozen=True)
class Producer:
    """Puts new rows, each once.

    With ``fresh_fields`` every put brings a field that nobody knew; with ``appends`` another put of
    these fields follows it at once; ``reads_back`` times it reads what it put, and changes nothing
    meanwhile.
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

    def play(self, act: LoggingClient) -> None:
        """Put until the time is over."""
        for turn in act.turns(self.seconds, MOST_ROUNDS):
            ids = [f"{act.who}_{turn}_{row}" for row in range(self.rows)]
            fields = (*self.fields, *((f"{act.who}_f{turn}",) if self.fresh_fields else ()))
            tags = [{"weight_version": act.number, "turn": turn}] * self.rows
            appended = act.prepared(ids, self.appends) if self.appends else None
            act.put(act.prepared(ids, fields, tags if self.tagged else None))
            if appended:
                act.put(appended)
            for _ in range(self.reads_back):
                act.get(ids, fields)


@dataclass(frozen=True)
class Claimer:
    """Claims for its tasks in turn, reads what it claimed, and ends when nothing is left.

    A ``late`` one begins when the leading roles are over. One with ``idle_s`` waits so long after a
    claim that came empty: in a thread beside others, one that asks without a pause can hold a lock
    of their client so often that they starve.
    """

    tasks: tuple[str, ...] = ("train",)
    fields: tuple[str, ...] = ("x",)
    batch: int = 5
    reads: tuple[str, ...] = ()
    late: bool = False
    idle_s: float = 0.0
    leads: bool = field(default=False, init=False)
    needs: ClassVar[tuple[str, ...]] = ("claim_meta, not blocking",)

    def play(self, act: LoggingClient) -> None:
        """Claim until nothing is left."""
        if self.late:
            act.wait_for_stop()
        over, batch = False, self.batch
        while not over:
            stopping = act.stopping  # asked before the claims: an empty one after it is the last
            came = [i for task in self.tasks for i in self._claim(act, task, batch)]
            ended = stopping and not came
            over = (ended and batch == 1) or act.refusals > MOST_REFUSALS
            if ended:
                batch = 1  # whether a claim serves less than a batch is for CLAIM-04 to judge
            if self.idle_s and not came:
                act.pause(self.idle_s)

    def _claim(self, act: LoggingClient, task: str, batch: int) -> list[object]:
        ids = act.claim(task, self.fields, batch)
        if self.reads:
            for sample_id in ids:
                act.get([sample_id], self.reads)
        return ids


@dataclass(frozen=True)
class PutClearLoop:
    """Puts rows whose ids others put and clear too, so that slots are freed and taken.

    Each put brings ``puts`` of the shared ids, known or not by then, and ``keeps`` rows of its own
    that nobody clears, which it reads in the end. Then it clears ``clears`` of the shared ids.
    """

    seconds: float
    ids: tuple[str, ...]
    fields: tuple[str, ...] = ("x",)
    puts: int = 12
    keeps: int = 4
    clears: int = 0
    leads: bool = field(default=True, init=False)
    needs: ClassVar[tuple[str, ...]] = ("put_samples", "clear_samples", "get_samples")

    def play(self, act: LoggingClient) -> None:
        """Put and clear until the time is over."""
        kept: list[str] = []
        for turn in act.turns(self.seconds, MOST_ROUNDS):
            new = [f"{act.who}_{turn}_{n}" for n in range(self.keeps)]
            # prepared before the clear, so that the slots it frees are taken at once
            put = act.prepared([*act.rng.sample(self.ids, self.puts), *new], self.fields)
            if self.clears and turn:
                act.clear(act.rng.sample(self.ids, self.clears))
            act.put(put)
            kept += new
        for start in range(0, len(kept), READ_AT_ONCE):
            act.get(kept[start : start + READ_AT_ONCE], self.fields)


@dataclass(frozen=True)
class Clearer:
    """Clears some of the rows at random, known or not; waits up to ``apart_s`` in between.

    What it clears as fast as it can is seldom there to be read.
    """

    ids: tuple[str, ...]
    at_once: int = 8
    apart_s: float = 0.0
    leads: bool = field(default=False, init=False)
    needs: ClassVar[tuple[str, ...]] = ("clear_samples",)

    def play(self, act: LoggingClient) -> None:
        """Clear until stopped."""
        for _ in act.until_stopped(MOST_LOOKS):
            act.clear(act.rng.sample(self.ids, self.at_once))
            act.pause(self.apart_s * act.rng.random())


@dataclass(frozen=True)
class Overwriter:
    """Makes all rows, then overwrites them again and again; ``ragged`` with other widths."""

    seconds: float
    ids: tuple[str, ...]
    fields: tuple[str, ...] = ("x",)
    ragged: bool = False
    dtypes: Mapping[str, torch.dtype] = field(default_factory=dict)
    leads: bool = field(default=True, init=False)
    needs: ClassVar[tuple[str, ...]] = ("put_samples",)

    def play(self, act: LoggingClient) -> None:
        """Put until the time is over."""
        for _ in act.turns(self.seconds, MOST_ROUNDS):
            act.put(act.prepared(self.ids, self.fields, ragged=self.ragged, dtypes=self.dtypes))
            if self.dtypes:
                act.get(self.ids, self.fields, dtypes=self.dtypes)


@dataclass(frozen=True)
class Appender:
    """Puts one new field after another on the same rows, and reads all of them in the end."""

    seconds: float
    ids: tuple[str, ...]
    leads: bool = field(default=True, init=False)
    needs: ClassVar[tuple[str, ...]] = ("put_samples", "get_samples")

    def play(self, act: LoggingClient) -> None:
        """Put until the time is over."""
        fields: list[str] = []
        for turn in act.turns(self.seconds, MOST_FIELDS):
            fields.append(f"{act.who}_f{turn}")
            act.put(act.prepared(self.ids, fields[-1:]))
        for name in fields:
            act.get(self.ids, [name])


@dataclass(frozen=True)
class Reader:
    """Reads ``at_once`` of the rows at random, all of the fields."""

    ids: tuple[str, ...]
    fields: tuple[str, ...] = ("x",)
    at_once: int = 1
    leads: bool = field(default=False, init=False)
    needs: ClassVar[tuple[str, ...]] = ("get_samples",)

    def play(self, act: LoggingClient) -> None:
        """Read until stopped."""
        for _ in act.until_stopped(MOST_LOOKS):
            act.get(act.rng.sample(self.ids, self.at_once), self.fields)


@dataclass(frozen=True)
class TagWriter:
    """Puts tags alone on one row after another, each time under another key of its own."""

    seconds: float
    ids: tuple[str, ...]
    prefix: str
    leads: bool = field(default=True, init=False)
    needs: ClassVar[tuple[str, ...]] = ("put_samples",)

    def play(self, act: LoggingClient) -> None:
        """Stamp until the time is over."""
        for turn in act.turns(self.seconds, MOST_ROUNDS):
            act.put(
                act.prepared([self.ids[turn % len(self.ids)]], (), [{f"{self.prefix}{turn}": turn}])
            )


@dataclass(frozen=True)
class Registrar:
    """Registers the partition again and again."""

    seconds: float
    fields: tuple[str, ...]
    tasks: tuple[str, ...]
    leads: bool = field(default=True, init=False)
    needs: ClassVar[tuple[str, ...]] = ("register_partition",)

    def play(self, act: LoggingClient) -> None:
        """Register until the time is over."""
        for _ in act.turns(self.seconds, MOST_ROUNDS):
            act.register(self.fields, self.tasks)


@dataclass(frozen=True)
class StatusPoller:
    """Asks for the status of its tasks in turn, a last time when all others are over."""

    tasks: tuple[str, ...] = ("train",)
    leads: bool = field(default=False, init=False)
    needs: ClassVar[tuple[str, ...]] = ("check_consumption_status",)

    def play(self, act: LoggingClient) -> None:
        """Ask until stopped."""
        for _ in act.until_stopped(MOST_LOOKS, APART_S):
            self._ask(act)
        self._ask(act)

    def _ask(self, act: LoggingClient) -> None:
        for task in self.tasks:
            act.status(task)
