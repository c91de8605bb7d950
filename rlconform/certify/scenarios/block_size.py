"""``BlockSize``: how many rows a block has on a plane, see ``BlockClient``."""

from __future__ import annotations

import math
import time
import uuid

import torch
from tensordict import TensorDict

from rlconform.certify.scenarios.block_client import NoBlocks
from rlconform.certify.threads import BackgroundCall
from rlconform.contract import DataPlaneClient

#: Rows of a block, the most that a plane puts and reads in ``BLOCK_S`` seconds. The first are more
#: than a small page, word or batch; four of them are more than 1,024.
SIZES, BLOCK_S = (260, 64), 0.15


class BlockSize:
    """Measures once how large blocks can be on a plane."""

    def __init__(self) -> None:
        self._size: int | None = None

    def of(self, client: DataPlaneClient, operation_s: float) -> int:
        """Return the number of rows of a block; ``operation_s`` is the longest time of a call.

        Raises:
            NoBlocks: The plane is too slow, or can't do it.
        """
        if self._size is None:
            measuring = BackgroundCall(lambda: _seconds_of(client, SIZES[0]), "a block of rows")
            try:
                took: float = measuring.result(operation_s)
            except Exception:  # noqa: BLE001 - a plane may raise anything; the checks judge it
                took = math.inf
            fitting = (size for size in SIZES if took * size / SIZES[0] <= BLOCK_S)
            self._size = next(fitting, 0)
        if not self._size:
            raise NoBlocks(f"the plane is too slow for blocks of {SIZES[-1]} rows")
        return self._size


def _seconds_of(client: DataPlaneClient, rows: int) -> float:
    """Return how long a put and a read of these many rows take."""
    partition, ids = f"block-{uuid.uuid4().hex[:8]}", [f"r{n}" for n in range(rows)]
    batch = TensorDict({"x": torch.arange(rows).reshape(-1, 1)}, batch_size=[rows])
    client.register_partition(partition, ["x"], rows, ["train"])
    start = time.monotonic()
    client.put_samples(ids, partition, batch)
    client.get_samples(ids, partition, ["x"])
    took = time.monotonic() - start
    client.clear_samples(ids, partition)
    return took
