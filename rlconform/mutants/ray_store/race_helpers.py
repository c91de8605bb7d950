"""Shared parts of the mutants: a delay between two steps, and a client that alters columns."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

import ray
from torch import Tensor

from rlconform.backends.ray_store.client import RayStoreClient
from rlconform.contract import KVBatchMeta
from rlconform.mutants.call import MethodCall, State, applied
from rlconform.mutants.memory.column_helpers import mapped
from rlconform.mutants.ray_store.mutant import ray_call_mutant
from rlconform.mutants.types import Ids


class KnowsOwnRows(RayStoreClient):
    """A client without a defect that records the ids of its puts."""

    own = State(set[str])

    def put_samples(self, sample_ids: Ids, *args: Any, **kwargs: Any) -> KVBatchMeta:
        receipt = super().put_samples(sample_ids, *args, **kwargs)
        self.own.update(sample_ids)
        return receipt


def _foreign_altered(read: MethodCall, altered: Callable[[Tensor], Tensor]) -> Any:
    own = read.plane.own.issuperset(read.sample_ids)
    return read() if own else mapped(read(), altered)


#: Decorator of a function that alters columns in a read, unless this client has put all the rows.
foreign_column_mutant = applied(
    partial(ray_call_mutant, RayStoreClient.get_samples), _foreign_altered, plane=KnowsOwnRows
)


#: Minimum delay before the second step, in seconds.
GAP_S = 0.002


async def second_message(seconds: float = GAP_S) -> None:
    """Wait for ``seconds``, then for a message to this actor, which is late on a busy machine."""
    await asyncio.sleep(seconds)
    await ray.get_runtime_context().current_actor.ready.remote()
