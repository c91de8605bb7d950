"""One fresh partition as a check sees it.

Each method is one client call, keywords as in the contract, and what comes back is looked at before
a check relies on it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from tensordict import TensorDict, TensorDictBase

from rlconform.certify.evidence.expect import (
    LAST_CALL,
    ContractViolation,
    Judgement,
    expect,
    expect_column,
    expect_equal,
    judges,
)
from rlconform.certify.evidence.recorder import shorten
from rlconform.certify.scenes.payload import payload_column, payload_rows
from rlconform.contract import BatchMeta, DataPlaneClient, KVBatchMeta, Tags, Timeouts
from rlconform.wire import object_array

#: What a check registers unless it says otherwise.
FIELDS = ("x", "y", "z")
TASKS = ("train", "prev_lp")


class Partition:
    """A partition seen through one client.

    Example:
        part.put(["a", "b"], x=torch.zeros(2, 3))
        meta = part.claim("train", ["x"], 2)
        part.expect_rows(["a"], x=[torch.zeros(3)])
    """

    def __init__(
        self, client: DataPlaneClient, partition_id: str, timeouts: Timeouts, ids: set[str]
    ) -> None:
        self.client = client
        self.id = partition_id
        self.timeouts = timeouts
        self._ids = ids  # every id that the check touched, for the clean-up

    def via(self, client: DataPlaneClient) -> Partition:
        """The same partition through another client."""
        return Partition(client, self.id, self.timeouts, self._ids)

    def rounds(self, most: int) -> Iterator[int]:
        """Numbers of rounds; fewer of a plane that answers slowly, so that they come to an end."""
        end = time.monotonic() + self.timeouts.check / 6
        for n in range(most):
            yield n
            if time.monotonic() > end:
                return

    def will_hold(self, ids: Iterable[str]) -> None:
        """Somebody else puts these rows: the clean-up is to know of them."""
        self._ids.update(ids)

    def register(
        self,
        fields: Sequence[str] = FIELDS,
        tasks: Sequence[str] = TASKS,
        num_samples: int = 64,
        **extra: Any,
    ) -> None:
        """``register_partition``."""
        self.client.register_partition(
            partition_id=self.id,
            fields=list(fields),
            num_samples=num_samples,
            consumer_tasks=list(tasks),
            **extra,
        )

    def put(
        self, ids: Sequence[str], tags: Sequence[Tags] | None = None, **columns: Any
    ) -> BatchMeta:
        """``put_samples`` of the given columns."""
        return self.put_batch(ids, batch_of(columns, len(ids)) if columns else None, tags)

    def put_batch(
        self,
        ids: Sequence[str],
        fields: TensorDict | None,
        tags: Sequence[Tags] | None = None,
    ) -> BatchMeta:
        """``put_samples`` of a batch as it is, right or wrong."""
        self._ids.update(i for i in ids if isinstance(i, str))
        extra = {} if tags is None else {"tags": list(tags)}
        return _meta(
            self.client.put_samples(
                sample_ids=list(ids), partition_id=self.id, fields=fields, **extra
            ),
            "put_samples",
        )

    def put_payload(
        self, ids: Sequence[str], *fields: str, version: int = 0, tags: Sequence[Tags] | None = None
    ) -> BatchMeta:
        """Put self-describing rows into each of ``fields`` (default ``x``)."""
        columns = {
            field: payload_column(self.id, ids, field, version) for field in fields or ("x",)
        }
        return self.put(ids, tags, **columns)

    def get(self, ids: Sequence[str], *fields: str) -> TensorDictBase:
        """``get_samples``; a result that is no TensorDict is a violation."""
        came = self.client.get_samples(
            sample_ids=list(ids), partition_id=self.id, select_fields=list(fields)
        )
        return _batch(came, "get_samples")

    def get_data(self, meta: Any, select_fields: Sequence[str] | None = None) -> TensorDictBase:
        """``get_data``."""
        chosen = None if select_fields is None else list(select_fields)
        return _batch(self.client.get_data(meta, select_fields=chosen), "get_data")

    def claim(
        self,
        task: str = "train",
        fields: Sequence[str] = ("x",),
        batch_size: int | None = None,
        *,
        blocking: bool = False,
        timeout_s: float | None = None,
        dp_rank: int | None = None,
    ) -> BatchMeta:
        """``claim_meta``, not blocking unless asked; ids twice in one claim are a violation.

        Asks for as many rows as the check has put: whether a plane serves a claim of more than are
        ready is for CLAIM-04 to judge.
        """
        batch_size = batch_size or max(1, len(self._ids))
        meta = _meta(
            self.client.claim_meta(
                partition_id=self.id,
                task_name=task,
                required_fields=list(fields),
                batch_size=batch_size,
                dp_rank=dp_rank,
                blocking=blocking,
                timeout_s=self.timeouts.operation if timeout_s is None else timeout_s,
            ),
            "claim_meta",
        )
        ids = meta.sample_ids
        expect(len(set(ids)) == len(ids), "each id once in a claim", ids)
        expect(len(ids) <= batch_size, f"at most {batch_size} rows claimed", f"{len(ids)}: {ids}")
        return meta

    def claim_all(
        self, task: str = "train", fields: Sequence[str] = ("x",), batch_size: int = 1
    ) -> list[str]:
        """Claim until nothing is ready; the ids in the order they came."""
        claimed: list[str] = []
        while ids := self.claim(task, fields, batch_size).sample_ids:
            claimed += ids
        return claimed

    def consumed(self, *tasks: str) -> bool:
        """``check_consumption_status``; anything but a bool is a violation."""
        came = self.client.check_consumption_status(
            partition_id=self.id, task_names=list(tasks or ("train",))
        )
        expect(isinstance(came, bool), "check_consumption_status to be a bool", repr(came))
        return came

    def clear(self, ids: Sequence[str] | None) -> None:
        """``clear_samples``."""
        self.client.clear_samples(
            sample_ids=None if ids is None else list(ids), partition_id=self.id
        )

    def expect_rows(self, ids: Sequence[str], **columns: Sequence[torch.Tensor]) -> None:
        """Reading ``ids`` gives these rows."""
        batch = self.get(ids, *columns)
        for field, rows in columns.items():
            expect_column(batch, field, rows)

    def expect_rows_by_meta(self, ids: Sequence[str], **columns: Sequence[torch.Tensor]) -> None:
        """``get_data`` of a meta that names ``ids`` and these fields gives the same rows."""
        meta = KVBatchMeta(self.id, None, list(ids), fields=list(columns))
        try:
            batch = self.get_data(meta)
            for field, rows in columns.items():
                expect_column(batch, field, rows)
        except ContractViolation as violation:
            by_meta = ContractViolation(f"of get_data: {violation.expected}", violation.came)
            by_meta.judgements = violation.judgements
            raise by_meta from None

    def expect_payload(self, ids: Sequence[str], *fields: str, version: int = 0) -> None:
        """Reading ``ids`` gives their own self-describing rows."""
        names = fields or ("x",)
        self.expect_rows(
            ids, **{field: payload_rows(self.id, ids, field, version) for field in names}
        )

    def expect_absent(self, ids: Sequence[str], field: str = "x") -> None:
        """No trace of ``ids``: not readable, not claimable by a task that never claimed."""
        for sample_id in ids:
            expect_unreadable(partial(self.get, [sample_id], field), sample_id, field)
        try:
            claimed = set(self.claim_all("prev_lp", [field])) & set(ids)
        except ContractViolation:
            raise
        except Exception:  # noqa: BLE001 - of a field that nobody heard of a plane may refuse a claim
            return
        expect(not claimed, f"none of {list(ids)} to be claimable", f"claimed {sorted(claimed)}")


def expect_unreadable(read: Callable[[], TensorDictBase], sample_id: str, field: str) -> None:
    """Reading must not give the row; whether it raises, and what, GET-04 to GET-06 judge."""
    try:
        came = read()
    except ContractViolation:
        raise  # it answered, or hung
    except Exception:  # noqa: BLE001 - a plane may raise anything
        return
    rows = came.batch_size[0] if came.batch_size else 0
    if rows and field in came.keys():  # noqa: SIM118 - a TensorDict's own `in` refuses strings
        unreadable = f"{field!r} of {sample_id!r} not to be readable"
        violation = ContractViolation(unreadable, f"{rows} rows")
        violation.judgements.append(Judgement("expect_unreadable", (LAST_CALL, sample_id, field)))
        raise violation


def batch_of(columns: Mapping[str, Any], size: int) -> TensorDict:
    """A put's batch; lists become object columns (numpy object arrays)."""
    return TensorDict(
        {
            name: object_array(value) if isinstance(value, list) else value
            for name, value in columns.items()
        },
        batch_size=[size],
    )


@judges
def expect_ids(meta: BatchMeta, ids: Sequence[str], what: str) -> None:
    """The meta names exactly ``ids``, in any order."""
    expect_equal(sorted(meta.sample_ids), sorted(ids), what)


def tags_by_id(meta: BatchMeta) -> dict[str, Tags]:
    """A meta's tags by sample id; rows without tags have none, not a missing entry."""
    tags = meta.tags
    expect(tags is not None, "tags on the meta", "None")
    assert tags is not None
    expect(
        len(tags) == len(meta.sample_ids),
        f"{len(meta.sample_ids)} tags, 1:1 with the ids",
        f"{len(tags)} tags",
    )
    return dict(zip(meta.sample_ids, tags, strict=True))


def _meta(came: Any, method: str) -> BatchMeta:
    """``came`` if it is a meta with ids that are strings, else a violation."""
    wanted = ("partition_id", "task_name", "sample_ids", "fields", "sequence_lengths", "tags")
    missing = [name for name in wanted if not hasattr(came, name)]
    expect(
        not missing,
        f"{method} to return a meta",
        f"{shorten(repr(came))} without {', '.join(missing)}",
    )
    ids = came.sample_ids
    expect(
        isinstance(ids, list) and all(isinstance(i, str) for i in ids),
        f"{method} to name sample_ids as a list of strings",
        shorten(repr(ids)),
    )
    for name in ("tags", "sequence_lengths"):
        beside = getattr(came, name)
        expect(
            beside is None or (isinstance(beside, list) and len(beside) == len(ids)),
            f"{method} to give {name} as None or as a list of {len(ids)}, 1:1 with the ids",
            shorten(repr(beside)),
        )
    expect(
        all(isinstance(row, dict) for row in came.tags or ()),
        f"{method} to give each row's tags as a dict",
        shorten(repr(came.tags)),
    )
    return came  # type: ignore[no-any-return]


def _batch(came: Any, method: str) -> TensorDictBase:
    expect(isinstance(came, TensorDictBase), f"{method} to return a TensorDict", repr(came))
    return came  # type: ignore[no-any-return]
