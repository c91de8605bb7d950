"""Planes that are right, and unlike the built-in ones: checks that fail on them ask too much."""

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
    """A meta of a plane that prefers tuples to lists."""

    partition_id: str
    task_name: str | None
    sample_ids: tuple[str, ...]
    fields: tuple[str, ...] | None
    sequence_lengths: tuple[int, ...] | None
    extra_info: dict[str, Any]
    tags: tuple[Tags, ...] | None

    @classmethod
    def of(cls, meta: KVBatchMeta) -> TupleMeta:
        """The same meta, its lists as tuples."""
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
    """Returns every field jagged whose rows have a dimension that can be.

    Rows without one stay dense: PUT-03 keeps (N,) apart from (N, 1), and ``torch.jagged`` has no
    column of scalars. Metas name their rows in tuples, and a status is one of numpy's bools; a
    batch size that is written as text is read.
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
        """Ask; the answer is a numpy bool."""
        return np.bool_(super().check_consumption_status(*args, **kwargs))

    def get_samples(
        self, sample_ids: list[str], partition_id: str, select_fields: list[str] | None
    ) -> TensorDict:
        """Read rows."""
        return nested_where_it_may(super().get_samples(sample_ids, partition_id, select_fields))


def nested_where_it_may(batch: TensorDict) -> TensorDict:
    """The batch, its dense columns of two dimensions or more jagged."""
    for name, leaf in list(batch.items()):
        if isinstance(leaf, torch.Tensor) and leaf.layout is torch.strided and leaf.dim() > 1:
            batch.set(name, _nested(leaf))
    return batch


def _nested(dense: torch.Tensor) -> torch.Tensor:
    """(N, S, ...) as N jagged rows, all of S."""
    rows, width = dense.shape[:2]
    offsets = torch.arange(rows + 1) * width
    return torch.nested.nested_tensor_from_jagged(
        dense.flatten(0, 1), offsets, min_seqlen=width, max_seqlen=width
    )


class GathersBackwards(MemoryClient):
    """Gathers rows from the last to the first, each by itself, and turns them round in the end.

    Where all have one shape they come dense, also if they were put jagged; ragged ones come nested
    in torch's default layout, which is strided. A partition that is registered again starts anew.
    A claim by a field that nobody declared or put is refused, and so are a stack of objects and a
    column of the schema in another shape or kind of number. A clear of everything ends the
    registration, and a partition that is not registered takes no rows.
    """

    def __init__(self, cfg: Mapping[str, Any], bootstrap: bool) -> None:
        super().__init__(cfg, bootstrap)
        self._heard: dict[str, set[str]] = {}  # fields that a partition has heard of

    def register_partition(
        self, partition_id: str, fields: list[str], *args: Any, **kwargs: Any
    ) -> None:
        """Register, and drop the rows that the partition held."""
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
        """Clear rows; with None the partition goes too, as in NeMo-RL's plane for tests."""
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
    """Take object columns only as numpy arrays, which the contract names."""
    if isinstance(fields, TensorDictBase):
        stacks = [n for n in fields.keys() if isinstance(fields.get(n), NonTensorStack)]  # noqa: SIM118
        if stacks:
            raise TypeError(f"objects come as numpy arrays, {stacks} as NonTensorStack")


def refuse_what_the_schema_does_not_say(fields: object) -> None:
    """Take a column with a name of the schema only in the schema's shape and kind of number.

    Raises:
        ValueError: A mask of bytes, a column of scalars put with a second dimension, and the like.
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


#: Whether a column of the schema holds floats; None where a mask may be of either kind.
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
    """The batch, its rows from the last to the first."""
    for name, leaf in list(batch.items()):
        batch.set(name, _turned_round(leaf, batch.batch_size[0]))
    return batch


#: Dtypes of which torch (2.13) makes no nested tensor of its older layout.
_NOT_IN_THE_OLDER_LAYOUT = {
    torch.float8_e4m3fn, torch.float8_e5m2, torch.uint16, torch.uint32, torch.uint64,
}  # fmt: skip


def _turned_round(leaf: Any, count: int) -> Any:
    """The rows of a column from the last to the first, copied."""
    if is_object_column(leaf):
        return object_column(object_rows(leaf, count)[::-1])
    rows = [row.clone() for row in rows_of(leaf)[::-1]]
    if len({row.shape for row in rows}) > 1 and leaf.dtype not in _NOT_IN_THE_OLDER_LAYOUT:
        return torch.nested.nested_tensor(rows, layout=torch.strided)
    return stack_or_nest(rows)


class AnswersLate:
    """Does what it is asked at once, and says so 50 ms later."""

    def __init__(self, cfg: Mapping[str, Any], bootstrap: bool) -> None:
        answer_late(self, MemoryClient(cfg, bootstrap))


def answer_late(outer: object, client: DataPlaneClient) -> None:
    """Give ``outer`` the client's methods, each of which answers 50 ms late."""
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
    """The target of such a plane, with all that the right one declares."""

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
