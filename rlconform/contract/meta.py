"""``KVBatchMeta``: the row names of a batch, and what is known of the rows without their values.

Every transform returns a fresh meta and leaves its source untouched:

    claimed = client.claim_meta(...)             # a meta of N rows
    stamped = claimed.stamp_tags({"std": stds})  # N rows, one more tag each
    kept    = stamped.subset(keep)               # the rows that the filter keeps
    client.clear_samples(stamped.drop(keep).sample_ids, kept.partition_id)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from typing import Any

from rlconform.contract.client import BatchMeta, Tags


@dataclass(frozen=True)
class KVBatchMeta:
    """The names of N rows; ``ValueError`` unless ``tags`` and ``sequence_lengths`` have N entries.

    Attributes:
        partition_id: Partition that holds the rows.
        task_name: Consumer task that claimed the rows; ``None`` in the meta that a put returns.
        sample_ids: N row names, in order.
        fields: Names of the batch's columns; ``None`` if they aren't given.
        sequence_lengths: Number of valid tokens of each row; ``None`` if it isn't known.
        extra_info: Batch-level values (packing plan, pad target).
        tags: One dict of primitives (numbers, text) per row, or ``None``.
    """

    partition_id: str
    task_name: str | None
    sample_ids: list[str]
    fields: list[str] | None = None
    sequence_lengths: list[int] | None = None
    extra_info: dict[str, Any] = field(default_factory=dict)
    tags: list[Tags] | None = None

    def __post_init__(self) -> None:
        for name in ("tags", "sequence_lengths"):
            values = getattr(self, name)
            if values is not None and len(values) != len(self.sample_ids):
                raise ValueError(
                    f"KVBatchMeta.{name} has {len(values)} entries for {len(self.sample_ids)} "
                    f"sample_ids; they must align 1:1"
                )

    @classmethod
    def of(cls, meta: BatchMeta) -> KVBatchMeta:
        """Convert a client's meta, whatever its class, to a ``KVBatchMeta``."""
        if isinstance(meta, cls):
            return meta
        return cls(
            meta.partition_id,
            meta.task_name,
            meta.sample_ids,
            fields=meta.fields,
            sequence_lengths=meta.sequence_lengths,
            extra_info=meta.extra_info or {},
            tags=meta.tags,
        )

    @property
    def size(self) -> int:
        """Number of rows, N."""
        return len(self.sample_ids)

    def subset(self, indices: Iterable[int]) -> KVBatchMeta:
        """Select the rows at ``indices``, in that order; an index may repeat.

        ``IndexError`` if an index is out of range, ``TypeError`` for a boolean mask, which would
        otherwise select rows 0 and 1.
        """
        chosen = list(indices)
        if any(isinstance(index, bool) for index in chosen):
            raise TypeError("KVBatchMeta.subset takes row numbers, not a mask of booleans")
        return self._with_rows(
            [self.sample_ids[i] for i in chosen],
            None if self.sequence_lengths is None else [self.sequence_lengths[i] for i in chosen],
            None if self.tags is None else [self.tags[i] for i in chosen],
        )

    def slice(self, start: int, stop: int) -> KVBatchMeta:
        """Select the rows of the Python slice ``[start:stop]``."""
        return self.subset(range(self.size)[start:stop])

    def drop(self, indices: Iterable[int]) -> KVBatchMeta:
        """Select the rows that ``subset(indices)`` leaves out, in order."""
        rows = range(self.size)
        dropped = {rows[i] for i in indices}  # normalises negatives; IndexError if outside
        return self.subset(i for i in rows if i not in dropped)

    def concat(self, *others: KVBatchMeta) -> KVBatchMeta:
        """Append the rows of ``others``. An ``extra_info`` key keeps the value of the first meta.

        ``ValueError`` if the metas differ in partition, task or fields, or if only some of them
        have lengths or tags, which would be dropped silently.
        """
        parts = (self, *others)
        for name, key in _CONCAT_MUST_AGREE.items():
            if len({key(part) for part in parts}) > 1:
                raise ValueError(
                    f"KVBatchMeta.concat: {name} differ: {[key(part) for part in parts]}"
                )
        extra_info: dict[str, Any] = {}
        for part in reversed(parts):
            extra_info.update(part.extra_info)
        joined = self._with_rows(
            [sample_id for part in parts for sample_id in part.sample_ids],
            None
            if self.sequence_lengths is None
            else [length for part in parts for length in part.sequence_lengths or ()],
            None if self.tags is None else [tags for part in parts for tags in part.tags or ()],
        )
        return replace(joined, extra_info=deepcopy(extra_info))

    def stamp_tags(self, columns: Mapping[str, Sequence[Any]]) -> KVBatchMeta:
        """Add one tag per column to every row; the tag of row i is ``columns[name][i]``.

        Zero-dimensional tensors and numpy scalars become Python numbers, as tags are primitives.
        ``ValueError`` if a column doesn't have N values.
        """
        tags: list[Tags] = [dict(row) for row in self.tags or [{} for _ in self.sample_ids]]
        for name, values in columns.items():
            if len(values) != self.size:
                raise ValueError(
                    f"KVBatchMeta.stamp_tags: {name!r} has {len(values)} values for "
                    f"{self.size} rows"
                )
            for row, value in zip(tags, values, strict=True):
                row[name] = value.item() if hasattr(value, "item") else value
        return self._with_rows(self.sample_ids, self.sequence_lengths, tags)

    def with_fields(self, names: Iterable[str]) -> KVBatchMeta:
        """Add ``names`` to ``fields``, in order and without duplicates."""
        same = self._with_rows(self.sample_ids, self.sequence_lengths, self.tags)
        return replace(same, fields=list(dict.fromkeys([*(self.fields or ()), *names])))

    def _with_rows(
        self,
        sample_ids: list[str],
        sequence_lengths: list[int] | None,
        tags: list[Tags] | None,
    ) -> KVBatchMeta:
        """Copy this meta with other rows; the copy shares nothing mutable with it."""
        return replace(
            self,
            sample_ids=list(sample_ids),
            fields=None if self.fields is None else list(self.fields),
            sequence_lengths=None if sequence_lengths is None else list(sequence_lengths),
            extra_info=deepcopy(self.extra_info),
            tags=None if tags is None else [dict(row) for row in tags],
        )


_CONCAT_MUST_AGREE: dict[str, Any] = {
    "partition_id": lambda meta: meta.partition_id,
    "task_name": lambda meta: meta.task_name,
    "fields": lambda meta: None if meta.fields is None else frozenset(meta.fields),
    "sequence_lengths (present or not)": lambda meta: meta.sequence_lengths is not None,
    "tags (present or not)": lambda meta: meta.tags is not None,
}
