"""Correct planes that differ from the built-in ones: a check that fails on one is too strict."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from tensordict import NonTensorStack, TensorDict, TensorDictBase

from rlconform.backends.memory import TARGET as RIGHT
from rlconform.backends.memory import MemoryClient
from rlconform.contract import (
    CLIENT_METHODS,
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

Opens = Callable[[Mapping[str, Any], bool], Any]


def tuple_meta(meta: KVBatchMeta) -> Any:
    """Return the meta as an object of another class, with tuples instead of lists."""
    values = {n: tuple(v) if isinstance(v, list) else v for n, v in vars(meta).items()}
    return SimpleNamespace(**values)


class NestsColumns:
    """Returns every column of two or more dimensions jagged."""

    def get_samples(self, *args: Any, **kwargs: Any) -> TensorDict:
        return nested_where_it_may(super().get_samples(*args, **kwargs))  # type: ignore[misc]


class NestsFields(NestsColumns, TakesOddities):
    """Returns every column of two or more dimensions jagged.

    Columns of scalars stay dense: PUT-03 distinguishes (N,) from (N, 1), and ``torch.jagged`` has
    no column of scalars. Metas contain tuples, a status is a numpy bool, and a batch size may be a
    string.
    """

    def put_samples(self, *args: Any, **kwargs: Any) -> Any:
        return tuple_meta(super().put_samples(*args, **kwargs))

    def claim_meta(self, *args: Any, **kwargs: Any) -> Any:
        if isinstance(kwargs.get("batch_size"), str):
            kwargs["batch_size"] = int(kwargs["batch_size"])
        return tuple_meta(super().claim_meta(*args, **kwargs))

    def check_consumption_status(self, *args: Any, **kwargs: Any) -> Any:
        return np.bool_(super().check_consumption_status(*args, **kwargs))


def nested_where_it_may(batch: TensorDict) -> TensorDict:
    """Make the batch's dense columns of two or more dimensions jagged, and return the batch."""
    for name, leaf in list(batch.items()):
        if isinstance(leaf, torch.Tensor) and leaf.layout is torch.strided and leaf.dim() > 1:
            batch.set(name, _nested(leaf))
    return batch


def _nested(dense: torch.Tensor) -> torch.Tensor:
    """Return (N, S, ...) as N jagged rows of length S."""
    rows, width = dense.shape[:2]
    offsets = torch.arange(rows + 1) * width
    return torch.nested.nested_tensor_from_jagged(
        dense.flatten(0, 1), offsets, min_seqlen=width, max_seqlen=width
    )


class ReversesRows:
    """Gathers copies of the rows in reverse order, then reverses the result.

    Rows of one shape are returned dense, even if they were put jagged; ragged rows are returned
    nested in torch's default layout, which is strided. The plane refuses a stack of objects.
    """

    def put_samples(
        self,
        sample_ids: list[str],
        partition_id: str,
        fields: TensorDict | None = None,
        tags: list[Tags] | None = None,
    ) -> KVBatchMeta:
        refuse_stacks(fields)
        receipt: KVBatchMeta = super().put_samples(sample_ids, partition_id, fields, tags)  # type: ignore[misc]
        return receipt

    def get_samples(self, sample_ids: list[str], *args: Any, **kwargs: Any) -> TensorDict:
        backwards = sample_ids[::-1] if isinstance(sample_ids, list) else sample_ids
        return reversed_rows(super().get_samples(backwards, *args, **kwargs))  # type: ignore[misc]


class GathersBackwards(ReversesRows, MemoryClient):
    """Gathers rows in reverse order, and refuses what the contract does not require.

    Registering a partition again drops its rows. The plane refuses a claim that requires a field
    neither declared nor put, and a schema column of another shape or kind of number. Clearing all
    rows unregisters the partition, and an unregistered partition accepts no rows.
    """

    def __init__(self, cfg: Mapping[str, Any], bootstrap: bool) -> None:
        super().__init__(cfg, bootstrap)
        self._known: dict[str, set[str]] = {}  # declared or put fields by partition

    def register_partition(
        self, partition_id: str, fields: list[str], *args: Any, **kwargs: Any
    ) -> None:
        super().register_partition(partition_id, fields, *args, **kwargs)
        self.clear_samples(list(partitions_of(self)[partition_id]._rows), partition_id)
        self._known[partition_id] = set(fields)

    def put_samples(
        self,
        sample_ids: list[str],
        partition_id: str,
        fields: TensorDict | None = None,
        tags: list[Tags] | None = None,
    ) -> KVBatchMeta:
        if partition_id not in self._known:
            raise UnknownPartition(f"partition {partition_id!r} is not registered")
        refuse_what_the_schema_does_not_say(fields)
        receipt = super().put_samples(sample_ids, partition_id, fields, tags)
        self._known.setdefault(partition_id, set()).update(receipt.fields or [])
        return receipt

    def claim_meta(
        self, partition_id: str, task_name: str, required_fields: list[str], *args: Any, **kw: Any
    ) -> KVBatchMeta:
        known = self._known.get(partition_id, set())
        if isinstance(required_fields, list) and (unknown := set(required_fields) - known):
            raise UnknownField(f"nobody declared or put {', '.join(sorted(unknown))}")
        return super().claim_meta(partition_id, task_name, required_fields, *args, **kw)

    def clear_samples(self, sample_ids: list[str] | None, partition_id: str) -> None:
        """Clear rows; None also removes the partition, as in NeMo-RL's plane for tests."""
        super().clear_samples(sample_ids, partition_id)
        if sample_ids is None and partition_id in self._known:
            partitions_of(self).pop(partition_id)
            self._known.pop(partition_id, None)


def refuse_stacks(fields: object) -> None:
    """Refuse stacks of objects: the contract names only numpy arrays as object columns."""
    if isinstance(fields, TensorDictBase):
        stacks = [n for n in fields.keys() if isinstance(fields.get(n), NonTensorStack)]  # noqa: SIM118
        if stacks:
            raise TypeError(f"expected numpy arrays of objects; got NonTensorStack in {stacks}")


def refuse_what_the_schema_does_not_say(fields: object) -> None:
    """Raise ``ValueError`` for a schema column of another shape or kind of number (a byte mask)."""
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


def reversed_rows(batch: TensorDict) -> TensorDict:
    """Reverse the order of the batch's rows, and return the batch."""
    for name, leaf in list(batch.items()):
        batch.set(name, _reversed_leaf(leaf, batch.batch_size[0]))
    return batch


#: Dtypes for which torch (2.13) makes no nested tensor in its older, strided layout.
_NOT_IN_THE_OLDER_LAYOUT = {
    torch.float8_e4m3fn, torch.float8_e5m2, torch.uint16, torch.uint32, torch.uint64,
}  # fmt: skip


def _reversed_leaf(leaf: Any, count: int) -> Any:
    """Return copies of a column's rows in reverse order."""
    if is_object_column(leaf):
        return object_column(object_rows(leaf, count)[::-1])
    rows = [row.clone() for row in rows_of(leaf)[::-1]]
    if len({row.shape for row in rows}) > 1 and leaf.dtype not in _NOT_IN_THE_OLDER_LAYOUT:
        return torch.nested.nested_tensor(rows, layout=torch.strided)
    return stack_or_nest(rows)


def answers_late(opens: Opens, late_s: float = 0.05) -> Opens:
    """Return ``opens`` with a client that executes calls immediately and returns late."""

    def late(call: Callable[..., Any]) -> Callable[..., Any]:
        def wait_after(*args: Any, **kwargs: Any) -> Any:
            try:
                return call(*args, **kwargs)
            finally:
                time.sleep(late_s)

        return wait_after

    def open_late(cfg: Mapping[str, Any], bootstrap: bool) -> Any:
        client = opens(cfg, bootstrap)
        return SimpleNamespace(**{name: late(getattr(client, name)) for name in CLIENT_METHODS})

    return open_late


def unusual(name: str, opens: Opens, right: Target = RIGHT) -> Target:
    """Return the target of a correct plane, with the declarations of the target ``right``."""
    return replace(right, name=f"unusual/{name}", version="", open=opens, control=None)


NESTED = unusual("nested", NestsFields)
BACKWARDS = unusual("backwards", GathersBackwards)
LATE = unusual("late", answers_late(MemoryClient))
#: For the gate, which has minutes.
NESTED_LATE = unusual("nested-late", answers_late(NestsFields, late_s=0.02))
