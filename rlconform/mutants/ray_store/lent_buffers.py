"""Results in buffers that the processes of a host share."""

from __future__ import annotations

import mmap
import os
import weakref
from typing import Any

import numpy as np
import torch
from tensordict import TensorDict

from rlconform.backends.ray_store.controller import Controller
from rlconform.backends.ray_store.engine import RayStoreEngine
from rlconform.mutants.call import State
from rlconform.mutants.memory.column_helpers import is_dense
from rlconform.mutants.ray_store.mutant import ControllerClient, ray_engine_mutant
from rlconform.mutants.types import Ids, Names

#: Buffers of a host, their bytes, and the bytes from which a column takes one.
BUFFERS, BUFFER, LEAST = 32, 1 << 20, 1 << 16


class _LendsBuffers(Controller):
    _path = State(str)
    _lent = State(int)

    async def buffers(self, path: str) -> str:
        """Return the path of the buffers; the first process that asks brings its own."""
        self._path = self._path or path
        return self._path

    async def lend(self) -> int:
        """Return the number of the next buffer."""
        self._lent += 1
        return self._lent % BUFFERS


class _Lent(ControllerClient):
    controller_class = _LendsBuffers


def _fits(leaf: torch.Tensor) -> bool:
    return is_dense(leaf) and leaf.dtype is torch.int64 and LEAST <= leaf.nbytes <= BUFFER


@ray_engine_mutant("GET-13", evidence="row 0 of 'x'", client=_Lent)
class ResultsInBuffersOfTheHost(RayStoreEngine):
    """Returns large columns in 32 buffers of the host, of which each process spares its own."""

    _memory = State(list[mmap.mmap])
    _own = State(dict[int, "weakref.ref[Any]"])

    def get(self, partition_id: str, sample_ids: Ids, names: Names) -> TensorDict:
        batch = super().get(partition_id, sample_ids, names)
        for name, leaf in list(batch.items()):
            if isinstance(leaf, torch.Tensor) and _fits(leaf):
                batch.set(name, self._in_buffer(leaf))
        return batch

    def _in_buffer(self, leaf: torch.Tensor) -> torch.Tensor:
        number = self._connection.call("lend")
        while number in self._own and self._own[number]() is not None:
            number = self._connection.call("lend")
        at = number * BUFFER
        array = np.frombuffer(self._mapped(), np.int64, leaf.numel(), at)
        self._own[number] = weakref.ref(array)
        result = torch.from_numpy(array).reshape(leaf.shape)
        return result.copy_(leaf)

    def _mapped(self) -> mmap.mmap:
        if not self._memory:
            own = os.memfd_create("buffers")
            os.ftruncate(own, BUFFERS * BUFFER)
            path = self._connection.call("buffers", f"/proc/{os.getpid()}/fd/{own}")
            with open(path, "r+b") as shared:
                self._memory.append(mmap.mmap(shared.fileno(), BUFFERS * BUFFER))
        return self._memory[0]
