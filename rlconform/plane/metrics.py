"""``MetricsClient``: wraps a client and reports the size and duration of every operation.

    client = MetricsClient(client, log.append)
    client.put_samples(...)  # the same call, and one MetricEvent in the log

Bytes are counted from shapes (elements times element size); object columns count as zero, because
only the plane knows how many bytes their encoding takes.
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence, Sized
from dataclasses import dataclass
from functools import wraps
from inspect import signature
from typing import Any, Literal, TypeVar, cast

from tensordict import TensorDictBase
from torch import Tensor, jagged, strided

from rlconform.contract import DataPlaneClient
from rlconform.wire import rows_of

Status = Literal["ok", "error", "timeout"]
Method = TypeVar("Method", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class MetricEvent:
    """One call of the method ``op`` of a client, in ``partition`` (None for ``close``).

    Attributes:
        n_keys: Rows that the call wrote, read, claimed or cleared; if it raised, requested rows.
        n_bytes: Bytes that the call wrote, read or cleared.
        wall_ms: Milliseconds until the client returned or raised.
        status: ``timeout`` for a ``TimeoutError``, ``error`` for any other exception.
    """

    op: str
    partition: str | None
    n_keys: int
    n_bytes: int
    wall_ms: float
    status: Status


def measured(method: Method) -> Method:
    """Make a ``MetricsClient`` method that calls the inner client's method and reports the call."""
    op, parameters = method.__name__, signature(method)

    @wraps(method)
    def call(self: MetricsClient, *args: Any, **kwargs: Any) -> Any:
        _, *given = parameters.bind(self, *args, **kwargs).arguments.items()
        named = dict(given)
        result, status = None, "error"
        started = time.perf_counter()
        try:
            result = getattr(self._client, op)(**named)
            status = "ok"
        except TimeoutError:
            status = "timeout"
            raise
        finally:
            wall_ms = (time.perf_counter() - started) * 1e3
            self._report(op, named, result, wall_ms, cast(Status, status))
        return result

    return cast(Method, call)


class MetricsClient:
    """A client that wraps another client, with the same results and exceptions.

    A clear reports the bytes of rows that this client put: rows of other clients count 0 bytes, and
    ``clear_samples(None)`` reports only this client's rows. Closing this client closes ``client``.
    ``callback`` is called with each ``MetricEvent`` after the operation, in the thread of the call,
    possibly in several threads at once. Its exceptions reach the caller, although the operation
    took effect: a run whose metrics are broken should stop.
    """

    def __init__(self, client: DataPlaneClient, callback: Callable[[MetricEvent], object]) -> None:
        self._client = client
        self._callback = callback
        self._lock = threading.Lock()
        #: Bytes by partition, row and field of what this client put and didn't clear.
        self._held: dict[str, dict[str, dict[str, int]]] = defaultdict(lambda: defaultdict(dict))

    register_partition = measured(DataPlaneClient.register_partition)
    put_samples = measured(DataPlaneClient.put_samples)
    get_samples = measured(DataPlaneClient.get_samples)
    claim_meta = measured(DataPlaneClient.claim_meta)
    get_data = measured(DataPlaneClient.get_data)
    check_consumption_status = measured(DataPlaneClient.check_consumption_status)
    clear_samples = measured(DataPlaneClient.clear_samples)
    close = measured(DataPlaneClient.close)

    def _report(
        self, op: str, named: Mapping[str, Any], result: Any, wall_ms: float, status: Status
    ) -> None:
        """Report a call with the arguments ``named``; ``result`` is None if the call raised."""
        meta, ok = named.get("meta"), status == "ok"
        partition = named.get("partition_id", getattr(meta, "partition_id", None))
        rows = named.get("sample_ids", getattr(meta, "sample_ids", None))
        sizes = _sizes_by_field(named.get("fields", result))
        n_bytes = sum(map(sum, sizes.values()))
        if op == "claim_meta":
            size = named["batch_size"]
            rows = result.sample_ids if ok else range(size if isinstance(size, int) else 0)
        elif op == "put_samples" and ok:
            self._put(named["partition_id"], rows, sizes)
        elif op == "clear_samples" and ok:
            rows, n_bytes = self._clear(named["partition_id"], rows)
        n_keys = len(rows) if isinstance(rows, Sized) else 0
        self._callback(MetricEvent(op, partition, n_keys, n_bytes, wall_ms, status))

    def _put(
        self, partition: str, sample_ids: Sequence[str], sizes: Mapping[str, Sequence[int]]
    ) -> None:
        with self._lock:
            for index, sample_id in enumerate(sample_ids):
                of_row = {name: of_rows[index] for name, of_rows in sizes.items()}
                self._held[partition][sample_id].update(of_row)

    def _clear(self, partition: str, sample_ids: Sequence[str] | None) -> tuple[Sequence[str], int]:
        """Forget the cleared rows; return their ids and the sum of their bytes."""
        with self._lock:
            held = self._held[partition]
            cleared = list(held) if sample_ids is None else sample_ids
            return cleared, sum(sum(held.pop(one, {}).values()) for one in cleared)


def _sizes_by_field(fields: object) -> dict[str, list[int]]:
    """Return the bytes of each row, by field; {} if ``fields`` is not a batch."""
    if not isinstance(fields, TensorDictBase) or len(fields.batch_size) != 1:
        return {}
    n_rows = fields.batch_size[0]
    return {name: _row_sizes(fields.get(name), n_rows) for name in map(str, fields.keys())}


def _row_sizes(leaf: object, n_rows: int) -> list[int]:
    """Return the bytes of each row of a leaf; zeros if it isn't a dense or jagged tensor."""
    if not isinstance(leaf, Tensor) or leaf.layout not in {strided, jagged}:
        return [0] * n_rows
    if leaf.is_nested:
        return [row.numel() * row.element_size() for row in rows_of(leaf)]
    return [leaf.numel() * leaf.element_size() // n_rows] * n_rows if n_rows else []
