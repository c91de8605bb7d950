"""``PlaneProcess``: the process that owns one plane and runs the requests of the bench runner.

    runner ── (method, arguments) ──▶ plane process ── ClientPool ──▶ plane
           ◀── ("figures", {...}) | ("refused", why) | ("lost", why) ──

It opens the plane and its clients, and then waits for requests, one at a time. It ends when the
runner closes the pipe or ends.
"""

from __future__ import annotations

import faulthandler
import os
import sys
import time
from collections import Counter
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any

from rlconform.bench.client_pool import CallRefused, ClientLost, ClientPool, actor_pool, thread_pool
from rlconform.bench.plan import BatchShape
from rlconform.bench.timed_client import NUMBER, WrongData
from rlconform.certify.recording.shorten import shorten
from rlconform.certify.target import TargetError, open_client, resolve_target
from rlconform.contract import DataPlaneClient, Target

#: Figures of one turn, seconds or rows per second, by name.
Figures = dict[str, list[float]]

#: Seconds from the request to drain until all consumers begin: more than Ray needs to reach four.
_TOGETHER_S = 0.1

#: Seconds from just before a blocking claim until the plane has certainly received it.
_SETTLE_S = 0.05

#: A plane may poll for rows at intervals. Puts are spread evenly over this many seconds, so that
#: they do not all fall on the same moment of the interval.
_SPREAD_S = 0.05
_GOLDEN = (5**0.5 - 1) / 2

_WAKE_TIMEOUT_S = 30.0


class PlaneProcess:
    """One plane with its clients. Each method is one turn, or prepares or ends a measurement."""

    def __init__(self, pool: ClientPool) -> None:
        self._pool = pool
        self._producer = pool.producer
        self._consumer = pool.consumers[0]

    # -- whole batches -------------------------------------------------------------------------

    def load(self, shape: BatchShape) -> Figures:
        """Make the shape's batch and checksums, and register its partition."""
        made = self._producer.begin("load", shape)
        self._consumer.call("expect", shape)
        made()
        self._producer.call("register", shape.name, list(shape.fields), shape.rows)
        return {}

    def carry(self, partition: str, label: str) -> Figures:
        """Put the batch, read it twice, claim it and clear it, each once."""
        try:
            return {
                "put": [self._producer.call("put", partition, label)],
                "get": [self._consumer.call("get", partition, label, True)],
                "get_in_order": [self._consumer.call("get", partition, label, False)],
                "claim": [self._consumer.call("claim", partition, label)],
                "clear": [self._consumer.call("clear", partition, label)],
            }
        except CallRefused:
            self._sweep(partition)
            raise

    def unload(self) -> Figures:
        """Free the shape's batch."""
        self._producer.call("unload")
        self._consumer.call("unload")
        return {}

    # -- consumers at the same time ------------------------------------------------------------

    def drain(self, partition: str, consumers: int, rows: int, batch: int) -> Figures:
        """Rows per second at which the consumers claim ``rows`` ready rows."""
        try:
            self._producer.call("register", partition, [NUMBER], rows)
            self._producer.call("put_rows", partition, 0, rows)
            start_at = time.monotonic() + _TOGETHER_S
            drains = [
                claimer.begin("drain", partition, rows, batch, start_at)
                for claimer in self._pool.claimers[:consumers]
            ]
            begins, ends, claimed = zip(*(drained() for drained in drains), strict=True)
            times = Counter(row for of_claimer in claimed for row in of_claimer)
            if len(times) != rows or times.total() != rows:
                raise CallRefused(
                    f"{WrongData.__name__}: {rows} rows were ready, {len(times)} were claimed, "
                    f"{times.total() - len(times)} of them again"
                )
        finally:
            self._sweep(partition)
        return {"rate": [rows / (max(ends) - min(begins))]}

    # -- in a full partition -------------------------------------------------------------------

    def fill(self, partition: str, first: int, count: int, rows: int) -> Figures:
        """Put ``count`` of ``rows`` ready rows; the first of them registers the partition."""
        if first == 0:
            self._producer.call("register", partition, [NUMBER], rows)
        self._producer.call("put_rows", partition, first, count)
        return {}

    def slide(self, partition: str, first: int, batch: int) -> Figures:
        """Claim, read and clear ``batch`` rows; put as many new ones: the size stays the same."""
        claimed, ids = self._consumer.call("claim_rows", partition, batch)
        return {
            "claim": [claimed],
            "get": [self._consumer.call("get_rows", partition, ids)],
            "clear": [self._consumer.call("clear_rows", partition, ids)],
            "put": [self._producer.call("put_rows", partition, first, batch)],
        }

    def empty(self, partition: str) -> Figures:
        """Clear what the producer has put in the partition."""
        self._producer.call("sweep", partition)
        return {}

    # -- a claim that waits --------------------------------------------------------------------

    def wake(self, partition: str, number: int) -> Figures:
        """Seconds from a put's start, and from its return, to the return of the waiting claim."""
        if number == 0:
            self._producer.call("register", partition, [NUMBER], 1)
        returned_at = self._consumer.begin("wait_for_row", partition, _WAKE_TIMEOUT_S)
        self._consumer.call("about_to_wait", _WAKE_TIMEOUT_S)
        time.sleep(_SETTLE_S + number * _GOLDEN % 1 * _SPREAD_S)
        began, returned = self._producer.call("put_row_now", partition, number)
        woke = returned_at()
        self._sweep(partition)
        return {"from_start": [woke - began], "from_return": [woke - returned]}

    def _sweep(self, partition: str) -> None:
        """Leave no rows to the next turn; a plane that can't clear fails at its next clear."""
        with suppress(CallRefused):
            self._producer.call("sweep", partition)


def serve(pipe: Connection, spec: str, claimers: int, call_s: float) -> None:
    """Open the plane, then run requests until the runner closes the pipe."""
    try:
        target = resolve_target(spec)
    except TargetError as error:
        pipe.send(("unknown", str(error)))
        return
    about: dict[str, Any] = {
        "name": target.name,
        "vendor": target.vendor,
        "version": target.version,
    }
    about["processes"] = target.level != "unit"
    pipe.send(("target", (about, target.timeouts.start)))
    owner: DataPlaneClient | None = None
    try:
        owner = open_client(target, {}, True)
        pool = _pool(spec, target, owner, claimers, call_s)
    except Exception as error:  # noqa: BLE001 - a plane may fail to start in any way
        kind = "" if isinstance(error, ClientLost) else f"{type(error).__name__}: "
        pipe.send(("lost", shorten(f"it did not start: {kind}{error}", 400)))
    else:
        pipe.send(("figures", {}))
        _run_requests(pipe, PlaneProcess(pool))
    if owner is not None:
        owner.close()


def _pool(
    spec: str, target: Target, owner: DataPlaneClient, claimers: int, call_s: float
) -> ClientPool:
    if target.level == "unit":
        return thread_pool(owner, claimers, call_s)
    from rlconform.backends.ray_runtime import ensure_ray  # noqa: PLC0415 - needs Ray

    ensure_ray()  # after the plane, which may start Ray itself; ends with this process
    return actor_pool(spec, target.config, owner, claimers, target.timeouts.start, call_s)


def _run_requests(pipe: Connection, plane: PlaneProcess) -> None:
    while True:
        try:
            method, arguments = pipe.recv()
        except EOFError:  # the runner ended, or has no more requests
            return
        try:
            answer: tuple[str, Any] = ("figures", getattr(plane, method)(*arguments))
        except CallRefused as error:
            answer = ("refused", str(error))
        except ClientLost as error:
            pipe.send(("lost", str(error)))
            return
        pipe.send(answer)


if __name__ == "__main__":
    faulthandler.enable()
    descriptor = int(sys.argv[1])
    os.set_inheritable(descriptor, False)  # otherwise processes of the plane keep it open
    serve(Connection(descriptor), sys.argv[2], int(sys.argv[3]), float(sys.argv[4]))
