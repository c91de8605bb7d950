"""``RefusedCalls``: calls that a plane refuses, made by a process between the calls of a check.

A call that fails may leave something behind in its process: an open transaction, a connection in
an unknown state, half of a batch. The next call of that process is then answered wrongly.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Sequence
from typing import Any, cast

import torch
from tensordict import TensorDict

from rlconform.certify.assertions.expect import is_rejected
from rlconform.certify.scenarios.earlier_steps import FIELDS, IMAGE, IMAGE_ROWS, PARTITION
from rlconform.contract import DataPlaneClient
from rlconform.wire import object_array

#: Seconds of a claim that times out.
WAITS_S = 0.01


def _read(*names: str, ids: Sequence[str] = ("row0",), partition: str = PARTITION) -> Any:
    return lambda client: client.get_samples(list(ids), partition, list(names))


def _claim(task: str, *names: str, blocking: bool) -> Any:
    return lambda client: client.claim_meta(
        PARTITION, task, list(names), 1, blocking=blocking, timeout_s=WAITS_S
    )


def _put(rows: int, leaf: Any) -> Any:
    batch = TensorDict({FIELDS[0]: leaf}, batch_size=[len(leaf)])
    return lambda client: client.put_samples([f"refused{n}" for n in range(rows)], PARTITION, batch)


#: Calls that a plane refuses, each for another reason. They change nothing, and use the partition
#: of the earlier steps; on a plane without it, they are refused because it is unknown.
REFUSED: Sequence[Callable[[DataPlaneClient], object]] = (
    _read(FIELDS[0], ids=["no such row"]),
    _read("no such field"),
    _read(FIELDS[0], partition="no such partition"),
    _read(IMAGE, ids=IMAGE_ROWS),  # rows of unlike shapes
    _claim("no such task", FIELDS[0], blocking=False),
    _claim("task", *FIELDS[:2], blocking=True),  # no row has both fields
    _put(2, torch.zeros(1, 1)),
    _put(1, object_array([threading.Lock])),
    lambda client: client.clear_samples(cast("Any", "row"), PARTITION),  # no list of ids
)


class RefusedCalls:
    """Makes a refused call in the process of a client, the same each time; the seed decides which.

    What one kind of call leaves behind, another may clear away.
    """

    def __init__(self, clients: Sequence[DataPlaneClient], seed: str) -> None:
        self._clients, self._call = clients, random.Random(seed).choice(REFUSED)

    def make(self, place: int) -> None:
        """Make a refused call in the process of this number."""
        is_rejected(lambda: self._call(self._clients[place]))
