"""A station: the process that owns one plane, and does with it what the run asks, turn by turn.

    run ── (method, arguments) ──▶ station ── desks ──▶ plane
        ◀── ("figures", what it measured) | ("refused", why) | ("lost", why) ──

It opens the plane, starts desks beside it, and then waits for its turns. It ends when asked to, and
when the run is gone.
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

from rlconform.bench.client_pool import ClientLost, ClientPool, Refused, actor_pool, thread_pool
from rlconform.bench.plan import BatchShape
from rlconform.bench.timed_client import NUMBER, WrongData
from rlconform.certify.recording.text import shorten
from rlconform.certify.target import TargetError, open_client, resolve_target
from rlconform.contract import DataPlaneClient, Target

#: Figures of one turn, seconds or rows per second, by measurement.
Figures = dict[str, list[float]]

#: From the moment all consumers are told to drain until they begin: above Ray's time to tell four.
_TOGETHER_S = 0.1

#: No client tells that it waits. From the moment just before its claim to the claim being parked
#: goes one round trip to the plane; this is many of them.
_SETTLE_S = 0.05

#: A plane may look for rows at intervals: puts fall evenly over this long, so that none of them
#: always meets the same moment of it.
_SPREAD_S = 0.05
_GOLDEN = (5**0.5 - 1) / 2

_WAKE_TIMEOUT_S = 30.0


class PlaneProcess:
    """One plane with its desks. Each method is one turn, or readies one."""

    def __init__(self, crew: ClientPool) -> None:
        self._crew = crew
        self._reader = crew.consumers[0]

    # -- whole batches -------------------------------------------------------------------------

    def load(self, shape: BatchShape) -> Figures:
        """Ready the desks for a shape."""
        made = self._crew.producer.begin("load", shape)
        self._reader.call("expect", shape)
        made.result()
        self._crew.producer.call("register", shape.name, list(shape.fields), shape.rows)
        return {}

    def carry(self, partition: str, label: str) -> Figures:
        """Put the batch, read it twice, claim it and clear it, each once."""
        try:
            return {
                "put": [self._crew.producer.call("put", partition, label)],
                "get": [self._reader.call("get", partition, label, True)],
                "get_in_order": [self._reader.call("get", partition, label, False)],
                "claim": [self._reader.call("claim", partition, label)],
                "clear": [self._reader.call("clear", partition, label)],
            }
        except Refused:
            self._sweep(partition)
            raise

    def unload(self) -> Figures:
        """Let the desks forget the shape."""
        self._crew.producer.call("unload")
        self._reader.call("unload")
        return {}

    # -- consumers at the same time ------------------------------------------------------------

    def drain(self, partition: str, consumers: int, rows: int, batch: int) -> Figures:
        """Rows per second at which the consumers claim ``rows`` ready rows."""
        try:
            self._crew.producer.call("register", partition, [NUMBER], rows)
            self._crew.producer.call("put_rows", partition, 0, rows)
            start_at = time.monotonic() + _TOGETHER_S
            drains = [
                hand.begin("drain", partition, rows, batch, start_at)
                for hand in self._crew.claimers[:consumers]
            ]
            begins, ends, claimed = zip(*(drain.result() for drain in drains), strict=True)
            times = Counter(row for of_desk in claimed for row in of_desk)
            if len(times) != rows or times.total() != rows:
                raise Refused(
                    f"{WrongData.__name__}: {rows} rows were ready, {len(times)} were claimed, "
                    f"{times.total() - len(times)} of them again"
                )
        finally:
            self._sweep(partition)
        return {"rate": [rows / (max(ends) - min(begins))]}

    # -- beside a full partition ---------------------------------------------------------------

    def fill(self, partition: str, first: int, count: int, rows: int) -> Figures:
        """Put ``count`` of ``rows`` ready rows; the first of them registers the partition."""
        if first == 0:
            self._crew.producer.call("register", partition, [NUMBER], rows)
        self._crew.producer.call("put_rows", partition, first, count)
        return {}

    def slide(self, partition: str, first: int, batch: int) -> Figures:
        """Claim, read and clear ``batch`` rows and put as many new ones: it stays as full."""
        claimed, ids = self._reader.call("claim_rows", partition, batch)
        return {
            "claim": [claimed],
            "get": [self._reader.call("get_rows", partition, ids)],
            "clear": [self._reader.call("clear_rows", partition, ids)],
            "put": [self._crew.producer.call("put_rows", partition, first, batch)],
        }

    def empty(self, partition: str) -> Figures:
        """Clear what the producer has put in the partition."""
        self._crew.producer.call("sweep", partition)
        return {}

    # -- a claim that waits --------------------------------------------------------------------

    def wake(self, partition: str, number: int) -> Figures:
        """Seconds from a put, begun and returned, to the return of the claim that waits for it."""
        if number == 0:
            self._crew.producer.call("register", partition, [NUMBER], 1)
        waiting = self._reader.begin("wait_for_row", partition, _WAKE_TIMEOUT_S)
        self._reader.call("about_to_wait", _WAKE_TIMEOUT_S)
        time.sleep(_SETTLE_S + number * _GOLDEN % 1 * _SPREAD_S)
        began, returned = self._crew.producer.call("put_row_at_once", partition, number)
        woke = waiting.result()
        self._sweep(partition)
        return {"from_start": [woke - began], "from_return": [woke - returned]}

    def _sweep(self, partition: str) -> None:
        """Leave no rows to the next turn; a plane that can't clear says so at its next clear."""
        with suppress(Refused):
            self._crew.producer.call("sweep", partition)


def serve(link: Connection, spec: str, claimers: int, call_s: float) -> None:
    """Open the plane, then do what the run asks until it asks no more."""
    try:
        target = resolve_target(spec)
    except TargetError as error:
        link.send(("unknown", str(error)))
        return
    processes = target.level != "unit"
    about = {"name": target.name, "vendor": target.vendor, "version": target.version}
    link.send(("target", about | {"processes": processes, "start_s": target.timeouts.start}))
    owner: DataPlaneClient | None = None
    try:
        owner = open_client(target, {}, True)
        crew = _crew(spec, target, owner, claimers, call_s)
    except ClientLost as error:
        link.send(("lost", f"it did not start: {error}"))
    except Exception as error:  # noqa: BLE001 - a plane may fail to start in any way
        link.send(("lost", shorten(f"it did not start: {type(error).__name__}: {error}", 400)))
    else:
        link.send(("figures", {}))
        _take_turns(link, PlaneProcess(crew))
    if owner is not None:
        owner.close()


def _crew(
    spec: str, target: Target, owner: DataPlaneClient, claimers: int, call_s: float
) -> ClientPool:
    if target.level == "unit":
        return thread_pool(owner, claimers, call_s)
    from rlconform.backends.ray_runtime import ensure_ray  # noqa: PLC0415 - needs Ray

    ensure_ray()  # after the plane, which may want a Ray of its own making; ends with this process
    return actor_pool(spec, target.config, owner, claimers, target.timeouts.start, call_s)


def _take_turns(link: Connection, station: PlaneProcess) -> None:
    while True:
        try:
            method, arguments = link.recv()
        except EOFError:  # the run is gone, or has nothing more to ask
            return
        try:
            answer: tuple[str, Any] = ("figures", getattr(station, method)(*arguments))
        except Refused as error:
            answer = ("refused", str(error))
        except ClientLost as error:
            link.send(("lost", str(error)))
            return
        link.send(answer)


if __name__ == "__main__":
    faulthandler.enable()
    descriptor = int(sys.argv[1])
    os.set_inheritable(descriptor, False)  # or what the plane starts would keep it open
    serve(Connection(descriptor), sys.argv[2], int(sys.argv[3]), float(sys.argv[4]))
