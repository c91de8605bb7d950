"""Producers, claimers and readers of a soak run.

    parent ──granted ids──▶ producer ──put──▶ plane ◀──claim, get, clear── claimer
    parent ◀──calls that have ended── all of them                             reader ──get──▶ plane

A producer puts only ids that the parent has granted: at first new ones, and then again those whose
clear has returned. So the rows in the plane are bounded, and ids and slots are reused all the time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from rlconform.certify.concurrency.logging_client import LoggingClient
from rlconform.certify.concurrency.workloads import Workload

#: Columns of a rollout and their dtypes; all but the last are jagged.
DTYPES = {
    "input_ids": torch.int64,
    "logprobs": torch.float32,
    "loss_mask": torch.uint8,
    "reward": torch.float32,
}
FIELDS = tuple(DTYPES)
TASK = "train"
#: Seconds that a caller waits when it has nothing to do.
IDLE_S = 0.005
#: Rows per put and per claim, as groups of a GRPO step; rows per read.
GROUP, READ_AT_ONCE = 8, 2


@dataclass(frozen=True)
class SoakProducer(Workload):
    """Puts groups of granted ids, with tags, until stopped."""

    width: int = 512  # bytes of a value, before it varies
    leads = False
    role: ClassVar[str] = "producer"

    def run(self, client: LoggingClient) -> None:
        ready: list[str] = []
        while not client.stopping:
            ready += client.take_granted()
            if len(ready) < GROUP:
                client.pause(IDLE_S)
                continue
            ids, ready = ready[:GROUP], ready[GROUP:]
            tags = [{"weight_version": client.number, "place": n} for n in range(GROUP)]
            put = client.prepare_put(
                ids, FIELDS, list(tags), ragged=True, dtypes=DTYPES, width=self.width
            )
            client.put(put)


@dataclass(frozen=True)
class SoakClaimer(Workload):
    """Claims, reads every byte of what it claimed, and clears it; ends when nothing is left."""

    leads = False
    role: ClassVar[str] = "claimer"

    def run(self, client: LoggingClient) -> None:
        batch = GROUP * 2
        while True:
            stopping = client.stopping  # read before the claim: once set, an empty claim is last
            ids = client.claim(TASK, FIELDS, batch)
            if ids:
                client.get(ids, FIELDS, dtypes=DTYPES)
                client.clear(ids)
            elif stopping and batch == 1:
                return
            elif stopping:
                batch = 1  # CLAIM-04 alone judges whether a claim returns less than a batch
            else:
                client.pause(IDLE_S)


@dataclass(frozen=True)
class SoakReader(Workload):
    """Reads random rows, which may be cleared meanwhile, until stopped."""

    ids: tuple[str, ...]
    leads = False
    role: ClassVar[str] = "reader"

    def run(self, client: LoggingClient) -> None:
        while not client.stopping:
            for sample_id in client.rng.sample(self.ids, READ_AT_ONCE):
                client.get([sample_id], FIELDS, dtypes=DTYPES)
            client.pause(IDLE_S)
