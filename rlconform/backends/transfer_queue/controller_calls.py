"""``ControllerCalls``: requests to the controller, and what their failures mean.

call(partition, name, ...) ──fetch request──▶ LedgerSampler in the controller ──▶ Ledger
run(coroutine of the package) ──▶ its result, or an error of the contract
"""

from __future__ import annotations

from collections.abc import Coroutine, Sequence
from typing import Any, NoReturn, TypeVar

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
_CONTROL_S = 30.0


class ControllerCalls:
    """Requests over one session; the controller has ``answer_s`` seconds to answer each."""

    def __init__(self, session: TransferQueueConnection, answer_s: float | None = None) -> None:
        self._session = session
        self._answer_s = _CONTROL_S if answer_s is None else answer_s

    def call(
        self,
        partition_id: str,
        name: str,
        *,
        cursor: str = "-",
        ready: Sequence[str] = (),
        **arguments: Any,
    ) -> Any:
        """Make one call on the partition's ledger, in the controller.

        Args:
            partition_id: The partition.
            name: The call.
            cursor: Task whose cursor a claim moves.
            ready: Fields that a claim's rows must have.
            arguments: The call's own.

        Raises:
            UnknownPartition: There is no such partition.
            LookupError, ValueError, DataPlaneError: The ledger refused.
        """
        meta = self.run(
            self._session.client.async_get_meta(
                data_fields=list(map(stored_name, ready)) or [NO_FIELD],
                batch_size=0,  # any number of ready rows will do: the ledger's sampler decides
                partition_id=partition_id,
                task_name=cursor,
                sampling_config={"call": codec.pack([name, arguments])},
            )
        )
        if meta.size == 0:
            raise UnknownPartition(f"partition {partition_id!r} was never registered nor written")
        status, value = codec.unpack(meta.custom_meta[0][REPLY])
        if status != "ok":
            _refuse(partition_id, status, value)
        return value

    def create_partition(self, partition_id: str) -> None:
        """Make the partition if it isn't there; an insert of no rows, so nothing shows."""
        self.run(
            self._session.client.async_get_meta(
                data_fields=[], batch_size=0, partition_id=partition_id, mode="insert"
            )
        )

    def run(self, call: Coroutine[Any, Any, Result], seconds: float | None = None) -> Result:
        """The call's result; what the package raises becomes an error of the contract."""
        try:
            return self._session.run(call, self._answer_s if seconds is None else seconds)
        except DataPlaneError:
            raise
        except PACKAGE_ERRORS as error:
            self._session.check_alive()
            raise DataPlaneError(f"TransferQueue: {error}") from error


def _refuse(partition_id: str, status: str, value: list[str]) -> NoReturn:
    """Raise what the ledger's refusal means."""
    if status == "Conflict":
        raise ValueError(f"{value[0]}: only a put that replaces them all may bring another dtype")
    if status == "Revoked":
        raise PlaneUnavailable("the put took longer than its lease and was given up")
    what, detail = value
    if what == "sample":
        raise UnknownSample(f"no sample {detail!r} in {partition_id!r}: never put, or cleared")
    if what == "field":
        raise UnknownField(f"field {detail!r} is not produced for every sample asked for")
    if what == "task":
        raise UnknownTask(f"task {detail!r} is not registered for partition {partition_id!r}")
    if what == "room":
        raise CapacityExceeded(f"the plane has no room for {detail}")
    if what == "notice":
        raise PlaneUnavailable("TransferQueue's controller never heard of the data")
    raise ValueError(f"{what} must fit the groups of {detail} in partition {partition_id!r}")
