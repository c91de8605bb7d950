"""``TimedClient``: one client, and the calls that are timed on it.

    station ── run("put", partition, label) ──▶ desk ── client.put_samples ──▶ plane
            ◀── (True, seconds) | (False, "CapacityExceeded: ...") ──

A desk stands in the process that makes the calls and times nothing but them. It makes its batches
by itself, so that only labels go in and only figures come out. What a consumer reads is checked
after the clock has stopped.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Mapping, Sequence
from threading import Event
from typing import Any

import torch
from tensordict import TensorDict

from rlconform.bench.batches import make_batch, make_tags, read_order, row_checksums, sample_ids
from rlconform.bench.plan import BatchShape
from rlconform.certify.recording.text import shorten
from rlconform.certify.target import open_target
from rlconform.contract import DataPlaneClient, Tags

#: The consumer task of every partition.
TASK = "train"

#: The one field of rows that only count: (N,) int64, a row's number.
NUMBER = "number"

#: Whether a call came back, and what with: its result, or what it raised in one line.
Answer = tuple[bool, Any]


class WrongData(Exception):
    """The plane answered, but not with what was put."""


class TimedClient:
    """One client; station and Ray call ``run``, which names another method.

    >>> desk = Desk(client)
    >>> desk.run("load", shape)
    (True, None)
    >>> desk.run("put", "bench", "r0")
    (True, 0.0123)
    """

    def __init__(self, client: DataPlaneClient) -> None:
        # torch announces at every first use that nested tensors are a prototype.
        warnings.filterwarnings("ignore", message=".*nested tensors.*")
        self._client = client
        self._shape: BatchShape | None = None
        self._batch: TensorDict | None = None
        self._tags: list[Tags] = []
        self._order: list[int] = []
        self._checksums: list[int] = []
        self._about_to_wait = Event()

    def run(self, method: str, *arguments: Any) -> Answer:
        """The method's result, or what it raised: a plane's errors may not unpickle elsewhere."""
        try:
            return True, getattr(self, method)(*arguments)
        except Exception as error:  # noqa: BLE001 - whatever the plane raises goes to the report
            return False, shorten(f"{type(error).__name__}: {error}", 300)

    # -- whole batches -------------------------------------------------------------------------

    def load(self, shape: BatchShape) -> None:
        """Make the batch to put."""
        self._shape, self._batch, self._tags = shape, make_batch(shape), make_tags(shape)

    def expect(self, shape: BatchShape) -> None:
        """Learn what the batch to read looks like."""
        self._shape, self._order = shape, read_order(shape)
        self._checksums = row_checksums(make_batch(shape), list(shape.fields))

    def unload(self) -> None:
        """Let go of the batch."""
        self._shape, self._batch, self._tags, self._checksums = None, None, [], []

    def put(self, partition: str, label: str) -> float:
        """Seconds of a put of the whole batch with its tags."""
        batch = self._batch
        assert batch is not None
        ids, tags = sample_ids(label, len(batch)), [dict(row) for row in self._tags]
        start = time.perf_counter()
        self._client.put_samples(sample_ids=ids, partition_id=partition, fields=batch, tags=tags)
        return time.perf_counter() - start

    def get(self, partition: str, label: str, shuffled: bool) -> float:
        """Seconds of a get of all rows and fields, in the order of the put or in another."""
        assert self._shape is not None
        rows = self._order if shuffled else range(self._shape.rows)
        ids, fields = sample_ids(label, self._shape.rows), list(self._shape.fields)
        ids = [ids[row] for row in rows]
        start = time.perf_counter()
        came = self._client.get_samples(
            sample_ids=ids, partition_id=partition, select_fields=fields
        )
        seconds = time.perf_counter() - start
        found = row_checksums(came, fields)
        wrong = [at for at, row in enumerate(rows) if found[at] != self._checksums[row]]
        if wrong:
            raise WrongData(f"{len(wrong)} of {len(ids)} rows read differ from what was put")
        return seconds

    def claim(self, partition: str, label: str) -> float:
        """Seconds of one non-blocking claim of all rows."""
        assert self._shape is not None
        rows, fields = self._shape.rows, list(self._shape.fields)
        seconds, came = self._claim(partition, fields, rows)
        if sorted(came) != sorted(sample_ids(label, rows)):
            raise WrongData(f"a claim of {rows} ready rows brought {len(came)}, or others")
        return seconds

    def clear(self, partition: str, label: str) -> float:
        """Seconds of a clear of all rows, by id."""
        assert self._shape is not None
        return self.clear_rows(partition, sample_ids(label, self._shape.rows))

    # -- rows that only count ------------------------------------------------------------------

    def register(self, partition: str, fields: Sequence[str], rows: int) -> None:
        """Register the partition with its one task."""
        self._client.register_partition(
            partition_id=partition,
            fields=list(fields),
            num_samples=rows,
            consumer_tasks=[TASK],
        )

    def put_rows(self, partition: str, first: int, count: int) -> float:
        """Seconds of a put of rows ``first`` to ``first + count`` with one small field."""
        numbers = torch.arange(first, first + count)
        batch = TensorDict({NUMBER: numbers}, batch_size=[count])
        ids = [_row_id(number) for number in numbers.tolist()]
        start = time.perf_counter()
        self._client.put_samples(sample_ids=ids, partition_id=partition, fields=batch)
        return time.perf_counter() - start

    def claim_rows(self, partition: str, count: int) -> tuple[float, list[str]]:
        """Seconds of a non-blocking claim of ``count`` ready rows, and the rows that came."""
        seconds, ids = self._claim(partition, [NUMBER], count)
        if len(set(ids)) != count:
            raise WrongData(f"a claim of {count} out of more ready rows brought {len(set(ids))}")
        return seconds, ids

    def get_rows(self, partition: str, ids: list[str]) -> float:
        """Seconds of a get of the rows."""
        start = time.perf_counter()
        came = self._client.get_samples(
            sample_ids=ids, partition_id=partition, select_fields=[NUMBER]
        )
        seconds = time.perf_counter() - start
        if [_row_id(number) for number in came[NUMBER].tolist()] != ids:
            raise WrongData(f"a get of {len(ids)} rows brought others")
        return seconds

    def clear_rows(self, partition: str, ids: list[str]) -> float:
        """Seconds of a clear of the rows."""
        start = time.perf_counter()
        self._client.clear_samples(sample_ids=ids, partition_id=partition)
        return time.perf_counter() - start

    def sweep(self, partition: str) -> None:
        """Clear what this desk has put in the partition."""
        self._client.clear_samples(sample_ids=None, partition_id=partition)

    def drain(
        self, partition: str, rows: int, batch: int, start_at: float
    ) -> tuple[float, float, list[str]]:
        """Claim ``batch`` rows at a time until none is left, from a moment that all desks share.

        Args:
            partition: Holds nothing but ready rows.
            rows: How many; a plane that hands out more than them has no end.
            batch: Rows per claim.
            start_at: Of ``time.monotonic``, which the processes of a host share.

        Returns:
            When the first claim began, when the last one that brought rows returned, and the rows.
        """
        time.sleep(max(0.0, start_at - time.monotonic()))
        begin = end = time.monotonic()
        claimed: list[str] = []
        while len(claimed) <= rows:
            _, ids = self._claim(partition, [NUMBER], batch)
            if not ids:
                break
            end = time.monotonic()
            claimed += ids
        return begin, end, claimed

    def _claim(self, partition: str, fields: list[str], rows: int) -> tuple[float, list[str]]:
        start = time.perf_counter()
        meta = self._client.claim_meta(
            partition_id=partition,
            task_name=TASK,
            required_fields=fields,
            batch_size=rows,
            blocking=False,
        )
        return time.perf_counter() - start, list(meta.sample_ids)

    # -- a claim that waits --------------------------------------------------------------------

    def wait_for_row(self, partition: str, timeout_s: float) -> float:
        """Claim one row, which is still to come; when the claim returned."""
        self._about_to_wait.set()
        meta = self._client.claim_meta(
            partition_id=partition,
            task_name=TASK,
            required_fields=[NUMBER],
            batch_size=1,
            blocking=True,
            timeout_s=timeout_s,
        )
        returned = time.monotonic()
        if len(meta.sample_ids) != 1:
            raise WrongData(f"a blocking claim of 1 row brought {len(meta.sample_ids)}")
        return returned

    def about_to_wait(self, timeout_s: float) -> None:
        """Come back once ``wait_for_row``, which runs in another thread, is about to claim."""
        if not self._about_to_wait.wait(timeout_s):
            raise TimeoutError("the consumer did not come to wait")
        self._about_to_wait.clear()

    def put_row_at_once(self, partition: str, number: int) -> tuple[float, float]:
        """Put one row; when the put began and when it returned."""
        batch = TensorDict({NUMBER: torch.tensor([number])}, batch_size=[1])
        ids = [_row_id(number)]
        start = time.monotonic()
        self._client.put_samples(sample_ids=ids, partition_id=partition, fields=batch)
        return start, time.monotonic()


class AttachedTimedClient(TimedClient):
    """A desk in a Ray actor, which resolves the target and attaches as a training worker would."""

    def __init__(self, spec: str, config: Mapping[str, Any]) -> None:
        super().__init__(open_target(spec, config, bootstrap=False))

    def ready(self) -> bool:
        """True once the client is attached."""
        return True


def _row_id(number: int) -> str:
    return f"row{number}_g0"
