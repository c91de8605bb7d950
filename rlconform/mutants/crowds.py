"""Planes of several processes that are right in one: ``ray_store`` with a client that isn't."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import replace
from functools import partial
from typing import Any

from tensordict import TensorDict

from rlconform.backends.ray_store import TARGET as RIGHT
from rlconform.backends.ray_store.client import RayStoreClient
from rlconform.contract import KVBatchMeta, Tags
from rlconform.mutants import broken
from rlconform.wire import is_object_column, object_column

breaks = partial(broken, RIGHT)

#: Tag that says when a row was put.
_PUT_AT = "put_at"


@breaks("STAT-02", says="status", may_fail=("FLOW-03", "STAT-01", "LOAD-01", "CLAIM-02"))
class CountsItsOwnCalls(RayStoreClient):
    """Compares the rows that this process put with those that it claimed."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._claimed: Counter[tuple[str, str]] = Counter()
        self._put: dict[str, set[str]] = {}

    def put_samples(self, sample_ids: list[str], partition_id: str, *a: Any, **k: Any) -> Any:
        """Put, and count the rows."""
        meta = super().put_samples(sample_ids, partition_id, *a, **k)
        if meta.fields:
            self._put.setdefault(partition_id, set()).update(sample_ids)
        return meta

    def claim_meta(self, *args: Any, **kwargs: Any) -> KVBatchMeta:
        """Claim, and count the rows."""
        meta = super().claim_meta(*args, **kwargs)
        self._claimed[meta.partition_id, str(meta.task_name)] += meta.size
        return meta

    def check_consumption_status(self, partition_id: str, task_names: list[str]) -> bool:
        """Whether all is claimed, as far as this process knows."""
        answer = super().check_consumption_status(partition_id, task_names)
        put = len(self._put.get(partition_id, ()))
        return answer and any(self._claimed[partition_id, task] >= put for task in task_names)


class _Signs:
    """A session whose puts and clears are signed by the host."""

    def __init__(self, session: Any) -> None:
        self._connection = session

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    def call(self, method: str, *args: Any) -> Any:
        """The controller's answer."""
        if method == "commit":
            args = (replace(args[0], writer="host"), *args[1:])
        if method == "clear":
            args = (*args[:2], "host")
        return self._connection.call(method, *args)


@breaks("CLEAR-08", says="UnknownSample")
class SignsForTheHost(RayStoreClient):
    """Notes the host that put a row, not the process: one's clear of all takes them all (NR-30)."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._engine._connection = _Signs(self._connection)  # type: ignore[attr-defined]


@breaks("LIFE-02", says="PlaneUnavailable", may_fail=("LIFE-03", "LIFE-06"))
class TurnsOffTheLight(RayStoreClient):
    """Every client's close ends the plane, as that of the only one would."""

    def close(self) -> None:
        """End the plane."""
        super().close()
        if not self._owner:
            self._connection._stop()


@breaks("LIFE-06", says="rows claimable by a late client", may_fail=("TAG-07", "CLAIM-02"))
class StartsFromNow(RayStoreClient):
    """A client that attaches is handed what is put from then on, and loses what was before."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._since = 0.0 if self._owner else time.time()

    def put_samples(
        self,
        sample_ids: list[str],
        partition_id: str,
        fields: TensorDict | None = None,
        tags: list[Tags] | None = None,
    ) -> KVBatchMeta:
        """Put, and note when."""
        if fields is not None and isinstance(sample_ids, list):
            rows = [{} for _ in sample_ids] if tags is None else tags
            tags = [{**row, _PUT_AT: time.time()} for row in rows]
        return super().put_samples(sample_ids, partition_id, fields, tags)

    def claim_meta(self, *args: Any, **kwargs: Any) -> KVBatchMeta:
        """Claim rows, and pass over those of before."""
        meta = super().claim_meta(*args, **kwargs)
        put_at = [row.pop(_PUT_AT, self._since) for row in meta.tags or []]
        return meta.subset([n for n, at in enumerate(put_at) if at >= self._since])


@breaks("FLOW-01", says="the lengths of", may_fail=("PAR-01", "PAR-02"))
class ListsLengthsByTheirNames(RayStoreClient):
    """Lists the ids of a claim by age, and the lengths beside them by name."""

    def claim_meta(self, *args: Any, **kwargs: Any) -> KVBatchMeta:
        """Claim rows."""
        meta = super().claim_meta(*args, **kwargs)
        by_id = dict(zip(meta.sample_ids, meta.sequence_lengths or [], strict=False))
        lengths = [by_id[sample_id] for sample_id in sorted(by_id)]
        return replace(meta, sequence_lengths=lengths if by_id else meta.sequence_lengths)


@breaks("FLOW-05", "PUT-21", "WIRE-06", says="message log")
class LosesObjectsOnTheWay(RayStoreClient):
    """Keeps objects where they were put: another process reads None in their place (NR-11)."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._own: set[str] = set()

    def put_samples(self, sample_ids: list[str], *args: Any, **kwargs: Any) -> KVBatchMeta:
        """Put, and keep objects here."""
        meta = super().put_samples(sample_ids, *args, **kwargs)
        self._own.update(sample_ids)
        return meta

    def get_samples(
        self, sample_ids: list[str], partition_id: str, select_fields: list[str]
    ) -> TensorDict:
        """Read rows, of objects those that are here."""
        batch = super().get_samples(sample_ids, partition_id, select_fields)
        for name, leaf in list(batch.items()):
            if is_object_column(leaf) and not self._own.issuperset(sample_ids):
                batch.set(name, object_column(None for _ in sample_ids))
        return batch
