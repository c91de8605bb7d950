"""Finds the process that a scenario names, among those of the run, and says whether it is at work.

Processes that write events are found by the log, Ray's other actors by the title that Ray gives
them (``ray::QueueActor``), servers and the driver by how they were started.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum

import psutil

from .run_state import RunState


class Role(StrEnum):
    """What a process does in a run."""

    DRIVER = "driver"
    GENERATION_SERVER = "generation server"
    ROLLOUT_ACTOR = "rollout actor"
    TRAIN_WORKER = "train worker"
    REWARD_WORKER = "reward worker"
    QUEUE = "trajectory queue"
    PLANE_CONTROLLER = "plane's controller"
    PLANE_STORAGE = "plane's storage"


#: Roles that write events, by their names in the log.
EVENT_ROLES = {
    Role.DRIVER: "driver",
    Role.ROLLOUT_ACTOR: "rollout",
    Role.TRAIN_WORKER: "policy",
    Role.REWARD_WORKER: "reward",
    Role.QUEUE: "queue",
}

#: Beginnings of the titles of processes, by role. The rows of ``ray_store`` are in the object
#: store, which is a part of the raylet.
_TITLES: dict[Role, tuple[str, ...]] = {
    Role.PLANE_CONTROLLER: ("ray::Controller", "ray::TransferQueueController"),
    Role.PLANE_STORAGE: ("ray::SimpleStorageUnit", "raylet"),
}


@dataclass(frozen=True)
class Victim:
    """A process, whether it is at work now, and its address."""

    process: psutil.Process
    busy: Callable[[], bool]
    url: str = ""  # of a server, which is no process of the run


def find_victim(
    role: Role, state: RunState, family: Iterable[psutil.Process], rank: int = 0
) -> Victim | None:
    """Return the process of this role, and of this rank if it writes events; None without one.

    ``family`` has the processes of the run. A driver and a train worker are at work in a step, a
    reward worker while it has a batch, the queue and the parts of the plane always.
    """
    if (event_role := EVENT_ROLES.get(role)) is not None:
        source = state.sources.get((event_role, rank))
        if source is None:
            return None
        return Victim(psutil.Process(source.pid), _busy(role, state, source.pid))
    found = (
        process
        for title in _TITLES[role]
        for process in family
        if _title(process).startswith(title)
    )
    if (process := next(found, None)) is None:
        return None
    return Victim(process, lambda: True)


def _busy(role: Role, state: RunState, pid: int) -> Callable[[], bool]:
    """Return whether a process that writes events is at work, as the log says it."""
    match role:
        case Role.ROLLOUT_ACTOR:
            return lambda: bool(state.open_rows.get(pid))
        case Role.REWARD_WORKER:
            return lambda: pid in state.scoring
        case Role.QUEUE:
            return lambda: True
        case _:
            return lambda: bool(state.selected)


def _title(process: psutil.Process) -> str:
    """Return the title of a process, without folders; "" if it has ended."""
    try:
        return next(iter(process.cmdline()), "").rpartition("/")[2]
    except psutil.Error:
        return ""
