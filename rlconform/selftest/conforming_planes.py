"""Correct planes that differ from the built-in ones: a check that fails on one is too strict."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import wraps
from typing import Any, cast

import numpy as np
import torch
from tensordict import NonTensorStack, TensorDict, TensorDictBase

from rlconform.backends.memory import TARGET as RIGHT
from rlconform.backends.memory import MemoryClient
from rlconform.contract import (
    CLIENT_METHODS,
    DataPlaneClient,
    KVBatchMeta,
    Tags,
    Target,
    UnknownField,
    UnknownPartition,
)
from rlconform.contract.fields import (
    ADVANTAGES,
    GENERATION_LOGPROBS,
    INPUT_IDS,
    INPUT_LENGTHS,
    PER_SAMPLE_FIELDS,
    PREV_LOGPROBS,
    REFERENCE_POLICY_LOGPROBS,
    SAMPLE_MASK,
    TOKEN_MASK,
    TOTAL_REWARD,
)
from rlconform.mutants.memory.helpers import partitions_of
from rlconform.selftest.conforming_inputs import TakesOddities
from rlconform.wire import is_object_column, object_column, object_rows, rows_of, stack_or_nest


@dataclass(frozen=True)
class TupleMeta:
    """A meta that has tuples instead of lists."""

    partition_id: str
    task_name: str | None
    sample_ids: tuple[str, ...]
    fields: tuple[str, ...] | None
    sequence_lengths: tuple[int, ...] | None
    extra_info: dict[str, Any]
    tags: tuple[Tags, ...] | None

    @classmethod
    def of(cls, meta: KVBatchMeta) -> TupleMeta:
        """The same meta with tuples instead of lists."""
        return cls(
            meta.partition_id,
            meta.task_name,
            tuple(meta.sample_ids),
            None if meta.fields is None else tuple(meta.fields),
            None if meta.sequence_lengths is None else tuple(meta.sequence_lengths),
            meta.extra_info,
            None if meta.tags is None else tuple(meta.tags),
        )


class NestsFields(TakesOddities):
    """Returns every column of two or more dimensions jagged.

    Columns of scalars stay dense: PUT-03 distinguishes (N,) from (N, 1), and ``torch.jagged`` has
    no column of scalars. Metas contain tuples, a status is a numpy bool, and a batch size may be a
    string.
    """

    def put_samples(self, *args: Any, **kwargs: Any) -> Any:
        """Put; the receipt holds tuples."""
        return TupleMeta.of(super().put_samples(*args, **kwargs))

    def claim_meta(self, *args: Any, **kwargs: Any) -> Any:
        """Claim rows; the meta holds tuples."""
        if isinstance(kwargs.get("batch_size"), str):
            kwargs["batch_size"] = int(kwargs["batch_size"])
        return TupleMeta.of(super().claim_meta(*args, **kwargs))

    def check_consumption_status(self, *args: Any, **kwargs: Any) -> Any:
        """Check the status; the result is a numpy bool."""
        return np.bool_(super().check_consumption_status(*args, **kwargs))

    def get_samples(
        self, sample_ids: list[str], partition_id: str, select_fields: list[str] | None
    ) -> TensorDict:
        """Read rows."""
        return nested_where_it_may(super().get_samples(sample_ids, partition_id, select_fields))


def nested_where_it_may(batch: TensorDict) -> TensorDict:
    """The batch with its dense columns of two or more dimensions made jagged."""
    for name, leaf in list(batch.items()):
        if isinstance(leaf, torch.Tensor) and leaf.layout is torch.strided and leaf.dim() > 1:
            batch.set(name, _nested(leaf))
    return batch


def _nested(dense: torch.Tensor) -> torch.Tensor:
    """(N, S, ...) as N jagged rows, all of length S."""
    rows, width = dense.shape[:2]
    offsets = torch.arange(rows + 1) * width
    return torch.nested.nested_tensor_from_jagged(
        dense.flatten(0, 1), offsets, min_seqlen=width, max_seqlen=width
    )


class GathersBackwards(MemoryClient):
    """Gathers rows one by one in reverse order, then reverses the result.

    Rows of one shape are returned dense, even if they were put jagged; ragged rows are returned
    nested in torch's default layout, which is strided. A second registration drops the rows of a
    partition. The plane refuses a claim that requires a field neither declared nor put, a stack of
    objects, and a schema column of another shape or kind of number. A clear of everything ends the
    registration, and an unregistered partition accepts no rows.
    """

    def __init__(self, cfg: Mapping[str, Any], bootstrap: bool) -> None:
        super().__init__(cfg, bootstrap)
        self._heard: dict[str, set[str]] = {}  # declared or put fields by partition

    def register_partition(
        self, partition_id: str, fields: list[str], *args: Any, **kwargs: Any
    ) -> None:
        """Register, and drop all rows of the partition."""
        super().register_partition(partition_id, fields, *args, **kwargs)
        self.clear_samples(list(partitions_of(self)[partition_id]._rows), partition_id)
        self._heard[partition_id] = set(fields)

    def put_samples(
        self,
        sample_ids: list[str],
        partition_id: str,
        fields: TensorDict | None = None,
        tags: list[Tags] | None = None,
    ) -> KVBatchMeta:
        """Put."""
        if partition_id not in self._heard:
            raise UnknownPartition(f"partition {partition_id!r} is not registered")
        refuse_stacks(fields)
        refuse_what_the_schema_does_not_say(fields)
        receipt = super().put_samples(sample_ids, partition_id, fields, tags)
        self._heard.setdefault(partition_id, set()).update(receipt.fields or [])
        return receipt

    def claim_meta(
        self, partition_id: str, task_name: str, required_fields: list[str], *args: Any, **kw: Any
    ) -> KVBatchMeta:
        """Claim rows."""
        heard = self._heard.get(partition_id, set())
        if isinstance(required_fields, list) and (strange := set(required_fields) - heard):
            raise UnknownField(f"nobody declared or put {', '.join(sorted(strange))}")
        return super().claim_meta(partition_id, task_name, required_fields, *args, **kw)

    def clear_samples(self, sample_ids: list[str] | None, partition_id: str) -> None:
        """Clear rows; None also removes the partition, as in NeMo-RL's plane for tests."""
        super().clear_samples(sample_ids, partition_id)
        if sample_ids is None and partition_id in self._heard:
            partitions_of(self).pop(partition_id)
            self._heard.pop(partition_id, None)

    def get_samples(
        self, sample_ids: list[str], partition_id: str, select_fields: list[str]
    ) -> TensorDict:
        """Read rows."""
        backwards = sample_ids[::-1] if isinstance(sample_ids, list) else sample_ids
        return turned_round(super().get_samples(backwards, partition_id, select_fields))


def refuse_stacks(fields: object) -> None:
    """Refuse stacks of objects: the contract names only numpy arrays as object columns."""
    if isinstance(fields, TensorDictBase):
        stacks = [n for n in fields.keys() if isinstance(fields.get(n), NonTensorStack)]  # noqa: SIM118
        if stacks:
            raise TypeError(f"objects come as numpy arrays, {stacks} as NonTensorStack")


def refuse_what_the_schema_does_not_say(fields: object) -> None:
    """Refuse a schema column whose shape or kind of number differs from the schema.

    Raises:
        ValueError: For example, a mask of bytes, or a column of scalars with a second dimension.
    """
    if not isinstance(fields, TensorDictBase):
        return
    for name, leaf in fields.items():
        if not isinstance(leaf, torch.Tensor) or name not in _KINDS:
            continue
        floating, flat = _KINDS[name], name in PER_SAMPLE_FIELDS
        if flat is not (leaf.dim() == 1):
            raise ValueError(f"{name!r} has {leaf.dim()} dimensions")
        if floating not in (None, leaf.dtype.is_floating_point) or leaf.dtype is torch.uint8:
            raise ValueError(f"{name!r} is of {leaf.dtype}")


#: Whether a schema column contains floats; None for masks, which may be of either kind.
_KINDS: Mapping[str, bool | None] = {
    INPUT_IDS: False,
    INPUT_LENGTHS: False,
    GENERATION_LOGPROBS: True,
    PREV_LOGPROBS: True,
    REFERENCE_POLICY_LOGPROBS: True,
    ADVANTAGES: True,
    TOKEN_MASK: None,
    SAMPLE_MASK: None,
    TOTAL_REWARD: True,
}


def turned_round(batch: TensorDict) -> TensorDict:
    """The batch with its rows in reverse order."""
    for name, leaf in list(batch.items()):
        batch.set(name, _turned_round(leaf, batch.batch_size[0]))
    return batch


#: Dtypes for which torch (2.13) makes no nested tensor in its older, strided layout.
_NOT_IN_THE_OLDER_LAYOUT = {
    torch.float8_e4m3fn, torch.float8_e5m2, torch.uint16, torch.uint32, torch.uint64,
}  # fmt: skip


def _turned_round(leaf: Any, count: int) -> Any:
    """Copies of a column's rows in reverse order."""
    if is_object_column(leaf):
        return object_column(object_rows(leaf, count)[::-1])
    rows = [row.clone() for row in rows_of(leaf)[::-1]]
    if len({row.shape for row in rows}) > 1 and leaf.dtype not in _NOT_IN_THE_OLDER_LAYOUT:
        return torch.nested.nested_tensor(rows, layout=torch.strided)
    return stack_or_nest(rows)


class AnswersLate:
    """Executes each call immediately and returns 50 ms later."""

    def __init__(self, cfg: Mapping[str, Any], bootstrap: bool) -> None:
        answer_late(self, MemoryClient(cfg, bootstrap))


def answer_late(outer: object, client: DataPlaneClient) -> None:
    """Give ``outer`` the client's methods, each of which returns 50 ms late."""
    for method in CLIENT_METHODS:
        setattr(outer, method, _late(getattr(client, method)))


def _late(call: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(call)
    def late(*args: Any, **kwargs: Any) -> Any:
        try:
            return call(*args, **kwargs)
        finally:
            time.sleep(0.05)

    return late


def unusual(
    name: str, opens: Callable[[Mapping[str, Any], bool], Any], right: Target = RIGHT
) -> Target:
    """The target of a conforming plane, with the declarations of the target ``right``."""

    def client(cfg: Mapping[str, Any], bootstrap: bool) -> DataPlaneClient:
        return cast(DataPlaneClient, opens(cfg, bootstrap))

    return Target(
        name=f"unusual/{name}",
        vendor="rlconform",
        open=client,
        level=right.level,
        capabilities=right.capabilities,
        timeouts=right.timeouts,
        config=right.config,
    )


NESTED = unusual("nested", NestsFields)
BACKWARDS = unusual("backwards", GathersBackwards)
LATE = unusual("late", AnswersLate)
