"""``TimedClient``: one client of a plane, whose calls are timed.

    plane process ── run("put", partition, label) ──▶ TimedClient ── client.put_samples ──▶ plane
                  ◀── (True, seconds) | (False, "CapacityExceeded: ...") ──

It runs in the process that makes the calls, and times only them. It makes its batches itself, so
that only labels are sent to it and only figures come back. It checks what a consumer reads after
the timing.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Sequence
from threading import Event
from typing import Any, TypeVar

import torch
from tensordict import TensorDict

from rlconform.bench.batches import make_batch, make_tags, read_order, row_checksums, sample_ids
from rlconform.bench.plan import BatchShape
from rlconform.certify.recording.shorten import shorten
from rlconform.contract import DataPlaneClient, Tags

#: The consumer task of every partition.
TASK = "train"

#: The only field of numbered rows: (N,) int64, a row's number.
NUMBER = "number"

#: Whether a method returned, and its result or the error in one line.
Answer = tuple[bool, Any]

Result = TypeVar("Result")


class WrongData(Exception):
    """The plane returned data other than what was put."""


class TimedClient:
    """One client in its own process or thread; others call ``run`` with the name of a method."""

    def __init__(self, attach: Callable[[], DataPlaneClient]) -> None:
        # torch warns at the first use in a process that nested tensors are a prototype.
        warnings.filterwarnings("ignore", message=".*nested tensors.*")
        self._client = attach()
        self._shape: BatchShape
        self._batch: TensorDict | None = None
        self._tags: list[Tags] = []
        self._order: list[int] = []
        self._checksums: list[int] = []
        self._about_to_wait = Event()

    def run(self, method: str, *arguments: Any) -> Answer:
        """Return the method's result, or its error as text: an error may not unpickle elsewhere."""
        try:
            return True, getattr(self, method)(*arguments)
        except Exception as error:  # noqa: BLE001 - whatever the plane raises goes to the report
            return False, shorten(f"{type(error).__name__}: {error}", 300)

    # -- whole batches -------------------------------------------------------------------------

    def load(self, shape: BatchShape) -> None:
        """Make the batch that ``put`` puts."""
        self._shape, self._batch, self._tags = shape, make_batch(shape), make_tags(shape)

    def expect(self, shape: BatchShape) -> None:
        """Compute the checksums of the batch that ``get`` reads."""
        self._shape, self._order = shape, read_order(shape)
        self._checksums = row_checksums(make_batch(shape), list(shape.fields))

    def unload(self) -> None:
        """Free the batch and its checksums."""
        self._batch, self._tags, self._checksums = None, [], []

    def put(self, partition: str, label: str) -> float:
        """Put the whole batch with its tags; return the seconds of the call."""
        ids, tags = sample_ids(label, self._shape.rows), [dict(row) for row in self._tags]
        began, ended = self._put(partition, ids, self._batch, tags=tags)
        return ended - began

    def get(self, partition: str, label: str, shuffled: bool) -> float:
        """Get all rows and fields, shuffled or in put order; return the seconds of the call."""
        rows = self._order if shuffled else range(self._shape.rows)
        ids, fields = sample_ids(label, self._shape.rows), list(self._shape.fields)
        seconds, batch = self._get(partition, [ids[row] for row in rows], fields)
        found = row_checksums(batch, fields)
        wrong = [at for at, row in enumerate(rows) if found[at] != self._checksums[row]]
        if wrong:
            raise WrongData(f"{len(wrong)} of {len(ids)} rows read differ from what was put")
        return seconds

    def claim(self, partition: str, label: str) -> float:
        """Claim all rows without blocking; return the seconds of the call."""
        rows = self._shape.rows
        seconds, ids = self._claim(partition, list(self._shape.fields), rows)
        if sorted(ids) != sorted(sample_ids(label, rows)):
            raise WrongData(f"a claim of {rows} ready rows returned {len(ids)}, or others")
        return seconds

    # -- numbered rows -------------------------------------------------------------------------

    def register(self, partition: str, fields: Sequence[str], rows: int) -> None:
        """Register the partition with its only task."""
        self._client.register_partition(
            partition_id=partition, fields=list(fields), num_samples=rows, consumer_tasks=[TASK]
        )

    def put_rows(self, partition: str, first: int, count: int) -> tuple[float, float]:
        """Put ``count`` rows from ``first`` on with one small field; return start and end."""
        numbers = torch.arange(first, first + count)
        ids = [_row_id(number) for number in numbers.tolist()]
        return self._put(partition, ids, TensorDict({NUMBER: numbers}, batch_size=[count]))

    def claim_rows(self, partition: str, count: int) -> tuple[float, list[str]]:
        """Claim ``count`` ready rows without blocking; return the seconds and the row ids."""
        seconds, ids = self._claim(partition, [NUMBER], count)
        if len(set(ids)) != count:
            raise WrongData(f"a claim of {count} out of more ready rows returned {len(set(ids))}")
        return seconds, ids

    def get_rows(self, partition: str, ids: list[str]) -> float:
        """Get the rows; return the seconds of the call."""
        seconds, batch = self._get(partition, ids, [NUMBER])
        if [_row_id(number) for number in batch[NUMBER].tolist()] != ids:
            raise WrongData(f"a get of {len(ids)} rows returned others")
        return seconds

    def clear(self, partition: str, ids: list[str] | None) -> float:
        """Clear the rows (None: what this client has put); return the seconds of the call."""
        began, ended, _ = _timed(self._client.clear_samples, sample_ids=ids, partition_id=partition)
        return ended - began

    def drain(
        self, partition: str, rows: int, batch: int, start_at: float
    ) -> tuple[float, float, list[str]]:
        """Claim ``batch`` rows at a time until none of the ``rows`` ready rows is left.

        Begin at ``start_at`` on ``time.monotonic``, a clock that the processes of a host share, and
        stop early if the plane returns too many rows. Return when the first claim began, when
        the last claim with rows returned, and the rows.
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

    # -- a claim that waits --------------------------------------------------------------------

    def wait_for_row(self, partition: str, timeout_s: float) -> float:
        """Claim one row that has not been put yet; return the time at which the claim returned."""
        self._about_to_wait.set()
        _, ids = self._claim(partition, [NUMBER], 1, blocking=True, timeout_s=timeout_s)
        returned = time.monotonic()
        if len(ids) != 1:
            raise WrongData(f"a blocking claim of 1 row returned {len(ids)}")
        return returned

    def about_to_wait(self, timeout_s: float) -> None:
        """Return when ``wait_for_row``, which runs in another thread, is about to claim."""
        if not self._about_to_wait.wait(timeout_s):
            raise TimeoutError("the consumer did not begin its claim")
        self._about_to_wait.clear()

    # -- the client's calls --------------------------------------------------------------------

    def _put(self, partition: str, ids: list[str], batch: Any, **tags: Any) -> tuple[float, float]:
        put = self._client.put_samples
        return _timed(put, sample_ids=ids, partition_id=partition, fields=batch, **tags)[:2]

    def _get(self, partition: str, ids: list[str], fields: list[str]) -> tuple[float, TensorDict]:
        get = self._client.get_samples
        began, ended, batch = _timed(
            get, sample_ids=ids, partition_id=partition, select_fields=fields
        )
        return ended - began, batch

    def _claim(
        self, partition: str, fields: list[str], rows: int, blocking: bool = False, **more: Any
    ) -> tuple[float, list[str]]:
        began, ended, meta = _timed(
            self._client.claim_meta,
            partition_id=partition,
            task_name=TASK,
            required_fields=fields,
            batch_size=rows,
            blocking=blocking,
            **more,
        )
        return ended - began, list(meta.sample_ids)


def _timed(call: Callable[..., Result], **arguments: Any) -> tuple[float, float, Result]:
    """Make the call; return when it began, when it ended, and its result."""
    began = time.monotonic()
    result = call(**arguments)
    return began, time.monotonic(), result


def _row_id(number: int) -> str:
    return f"row{number}_g0"
