"""``ControllerCalls``: requests to TransferQueue's controller, and the errors that they raise.

call(partition, name, ...) ──fetch request──▶ RowTableSampler in the controller ──▶ RowTable
run(coroutine of the package) ──▶ its result, or an error of the contract
"""

from __future__ import annotations

from collections.abc import Coroutine, Sequence
from typing import Any, TypeVar

import zmq

from rlconform.backends.columns import codec
from rlconform.backends.transfer_queue.connection import TransferQueueConnection
from rlconform.backends.transfer_queue.sampler import REPLY
from rlconform.backends.transfer_queue.storage_batches import NO_FIELD, stored_name
from rlconform.contract import (
    CapacityExceeded,
    DataPlaneError,
    PlaneUnavailable,
    UnknownField,
    UnknownPartition,
    UnknownSample,
    UnknownTask,
)

Result = TypeVar("Result")

#: What the package raises when a request fails.
PACKAGE_ERRORS = (RuntimeError, LookupError, ValueError, TypeError, zmq.ZMQError)
#: By name, the errors with which the row table refuses a call; any other is a ``ValueError``.
_REFUSALS: dict[str, type[Exception]] = {
    error.__name__: error
    for error in (
        CapacityExceeded,
        PlaneUnavailable,
        UnknownField,
        UnknownSample,
        UnknownTask,
    )
}


class ControllerCalls:
    """Sends requests to the controller, which has ``answer_s`` seconds to answer each of them."""

    def __init__(self, connection: TransferQueueConnection, answer_s: float) -> None:
        self._connection = connection
        self._answer_s = answer_s

    def call(
        self,
        partition_id: str,
        name: str,
        *,
        cursor: str = "-",
        ready: Sequence[str] = (),
        **arguments: Any,
    ) -> Any:
        """Call a method of the partition's row table, in the controller.

        For a claim, ``cursor`` names the claiming task and ``ready`` the fields that rows need.
        Raises ``UnknownPartition``, or the error with which the row table refused the call.
        """
        meta = self.run(
            self._connection.client.async_get_meta(
                data_fields=list(map(stored_name, ready)) or [NO_FIELD],
                batch_size=0,  # any number of ready rows: the row table selects
                partition_id=partition_id,
                task_name=cursor,
                sampling_config={"call": codec.pack([name, arguments])},
            )
        )
        if meta.size == 0:
            raise UnknownPartition(f"partition {partition_id!r} was never registered nor written")
        status, value = codec.unpack(meta.custom_meta[0][REPLY])
        if status != "ok":
            raise _REFUSALS.get(status, ValueError)(value)
        return value

    def create_partition(self, partition_id: str) -> None:
        """Create the partition if it doesn't exist, by an insert of no rows."""
        self.run(
            self._connection.client.async_get_meta(
                data_fields=[], batch_size=0, partition_id=partition_id, mode="insert"
            )
        )

    def run(self, call: Coroutine[Any, Any, Result], seconds: float | None = None) -> Result:
        """Run the call; convert an error of the package to an error of the contract."""
        try:
            return self._connection.run(call, self._answer_s if seconds is None else seconds)
        except DataPlaneError:
            raise
        except PACKAGE_ERRORS as error:
            self._connection.check_alive()
            raise DataPlaneError(f"TransferQueue: {error}") from error
