"""The process that owns one plane and runs the requests of the bench runner.

    runner ── (measurement, method, number) ──▶ plane process ── ClientPool ──▶ plane
           ◀── figures, or CallRefused, or PlaneLost ──

It opens the plane and its clients, and then waits for requests, one at a time. It ends when the
runner closes the pipe or ends.
"""

from __future__ import annotations

import faulthandler
import os
import sys
from multiprocessing.connection import Connection

from rlconform.bench.client_pool import CallRefused, ClientPool, PlaneLost, actor_pool, thread_pool
from rlconform.bench.measurements import Figures
from rlconform.certify.recording.shorten import shorten
from rlconform.certify.target import TargetError, open_client, resolve_target
from rlconform.contract import DataPlaneClient


def serve(pipe: Connection, spec: str, claimers: int, call_s: float) -> None:
    """Open the plane, then run requests until the runner closes the pipe."""
    try:
        target = resolve_target(spec)
    except TargetError as error:
        pipe.send(error)
        return
    about = {"name": target.name, "vendor": target.vendor, "version": target.version}
    pipe.send((about | {"processes": target.level != "unit"}, target.timeouts.start))
    owner: DataPlaneClient | None = None
    try:
        owner = open_client(target, {}, True)
        if target.level == "unit":
            pool = thread_pool(owner, claimers, call_s)
        else:
            pool = actor_pool(spec, target, owner, claimers, call_s)
    except Exception as error:  # noqa: BLE001 - a plane may fail to start in any way
        kind = "" if isinstance(error, PlaneLost) else f"{type(error).__name__}: "
        pipe.send(PlaneLost(shorten(f"it did not start: {kind}{error}", 400)))
    else:
        pipe.send({})
        _run_requests(pipe, pool)
    if owner is not None:
        owner.close()


def _run_requests(pipe: Connection, clients: ClientPool) -> None:
    while True:
        try:
            measurement, method, number = pipe.recv()
        except EOFError:  # the runner ended, or has no more requests
            return
        answer: Figures | Exception
        try:
            answer = getattr(measurement, method)(clients, number) or {}
        except (CallRefused, PlaneLost) as error:
            answer = error
        pipe.send(answer)


if __name__ == "__main__":
    faulthandler.enable()
    descriptor = int(sys.argv[1])
    os.set_inheritable(descriptor, False)  # otherwise processes of the plane keep it open
    serve(Connection(descriptor), sys.argv[2], int(sys.argv[3]), float(sys.argv[4]))
