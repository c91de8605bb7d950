"""Planes that carry small columns right, and a training step's wrong.

WIRE, SHARD and PAR look through a plane at what the kit makes of its rows: what breaks one of them
here is a column, a length or a claim for which no check of single calls is large or odd enough.
"""

# ruff: noqa: ARG002, ARG004 - a mutant looks at what it needs of a call

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from tensordict import TensorDict

from rlconform.backends.memory import MemoryClient
from rlconform.contract import KVBatchMeta, Tags
from rlconform.contract.fields import INPUT_LENGTHS
from rlconform.mutants.engines import breaks
from rlconform.wire import is_object_column, object_column, object_rows, rows_of

#: Bytes that one message of a transport holds.
PIECE_BYTES = 1024


def nest(rows: list[torch.Tensor]) -> torch.Tensor:
    """Rows as a jagged column, also where all are equally long."""
    return torch.nested.nested_tensor(rows, layout=torch.jagged)


class _Reads(MemoryClient):
    """Returns ``changed(leaf, ...)`` in place of each column."""

    def get_samples(
        self, sample_ids: list[str], partition_id: str, select_fields: list[str]
    ) -> TensorDict:
        """Read rows."""
        batch = super().get_samples(sample_ids, partition_id, select_fields)
        for name, leaf in list(batch.items()):
            batch.set(name, self.changed(leaf, [(partition_id, name, i) for i in sample_ids]))
        return batch

    def changed(self, leaf: Any, cells: list[tuple[str, str, str]]) -> Any:
        """The column that is returned; ``cells`` name partition, field and row of its rows."""
        raise NotImplementedError


class _NotesPuts(_Reads):
    """Knows by which put, and in a column of how many cells, a value came."""

    def put_samples(
        self,
        sample_ids: list[str],
        partition_id: str,
        fields: TensorDict | None = None,
        tags: list[Tags] | None = None,
    ) -> KVBatchMeta:
        """Put, and take a note."""
        meta = super().put_samples(sample_ids, partition_id, fields, tags)
        notes = self.__dict__.setdefault("_notes", {})
        number = len(notes)
        for name, leaf in () if fields is None else fields.items():
            for sample_id in sample_ids:
                notes[partition_id, name, sample_id] = number, _cells(leaf)
        return meta

    def noted(self, cell: tuple[str, str, str]) -> tuple[int, int]:
        """Number of the put, and cells of its column."""
        came: tuple[int, int] = self.__dict__["_notes"][cell]
        return came


def _is_jagged(leaf: Any) -> bool:
    return isinstance(leaf, torch.Tensor) and leaf.is_nested


def _cells(leaf: Any) -> int:
    if not isinstance(leaf, torch.Tensor):
        return 0
    return leaf.values().numel() if leaf.layout is torch.jagged else leaf.numel()


@breaks("WIRE-01", says="'input_ids' of row", may_fail=("PUT-01", "PUT-05", "PUT-06", "PUT-13"))
class TrimsZeros(_Reads):
    """Finds the end of a row of token ids by its zeros, of which some rows have their own."""

    def changed(self, leaf: Any, cells: list[tuple[str, str, str]]) -> Any:
        """Rows of int64 without the zeros at their end."""
        if not _is_jagged(leaf) or leaf.dtype != torch.int64 or leaf.dim() != 2:
            return leaf
        rows = [row[: int(row.nonzero().max()) + 1] if row.any() else row for row in rows_of(leaf)]
        return nest(rows)


@breaks("WIRE-02", says="'input_ids' of row")
class FetchesAtLeastAToken(_NotesPuts):
    """Rows without tokens come as a token each, if no other row of the read has any.

    A put of such rows alone is stored without tokens; it is the fetch that asks for one too many.
    """

    def changed(self, leaf: Any, cells: list[tuple[str, str, str]]) -> Any:
        """The column, a token wide where it has none."""
        tokens = isinstance(leaf, torch.Tensor) and leaf.dim() > 1
        if not tokens or _cells(leaf) or not self.noted(cells[0])[1]:
            return leaf
        return torch.zeros(len(cells), 1, *leaf.shape[2:], dtype=leaf.dtype)


@breaks(
    "WIRE-03",
    "SHARD-02",
    says="'prev_logprobs' of row",
    may_fail=("PUT-05", "PUT-13", "GET-01"),
)
class CutsToTheFirstPut(_NotesPuts):
    """Makes room for a read of many puts by the first one's longest row: others lose tokens."""

    def changed(self, leaf: Any, cells: list[tuple[str, str, str]]) -> Any:
        """The column; of three puts or more, as wide as the first one was."""
        puts = sorted({self.noted(cell)[0] for cell in cells})
        if not _is_jagged(leaf) or len(puts) < 3:
            return leaf
        rows, first = rows_of(leaf), puts[0]
        of_first = [len(r) for r, c in zip(rows, cells, strict=True) if self.noted(c)[0] == first]
        return nest([row[: max(of_first)] for row in rows])


@breaks("WIRE-04", says="'pixel_values' of row")
class TakesHeightForTokens(MemoryClient):
    """Stores as ragged what has as many lines as the longest row has tokens, an image too."""

    def put_samples(
        self,
        sample_ids: list[str],
        partition_id: str,
        fields: TensorDict | None = None,
        tags: list[Tags] | None = None,
    ) -> KVBatchMeta:
        """Put, with what looks padded cut to the rows' lengths."""
        if isinstance(fields, TensorDict):
            fields = fields.copy()
            lengths = fields.get(INPUT_LENGTHS, None)
            for name, leaf in list(fields.items()) if lengths is not None else ():
                padded = isinstance(leaf, torch.Tensor) and not leaf.is_nested and leaf.dim() > 2
                if padded and leaf.shape[1] == int(lengths.max()):
                    fields.set(name, nest([r[:n] for r, n in zip(leaf, lengths, strict=True)]))
        return super().put_samples(sample_ids, partition_id, fields, tags)


@breaks("PUT-21", says="of 'log' to be")
class GivesMessagesTheSameKeys(_Reads):
    """Keeps a list of dicts as columns: a key that only some of them have comes back in all."""

    def changed(self, leaf: Any, cells: list[tuple[str, str, str]]) -> Any:
        """The column, its lists of dicts made alike."""
        if not is_object_column(leaf):
            return leaf
        return object_column(_alike(value) for value in object_rows(leaf, len(cells)))


def _alike(value: Any) -> Any:
    if not isinstance(value, list) or not all(isinstance(each, dict) for each in value):
        return value
    keys = dict.fromkeys(key for each in value for key in each)
    return [{key: each.get(key) for key in keys} for each in value]


@breaks("SHARD-02", says="row", may_fail=("GET-01", "PUT-13"))
class ReadsPutByPut(_NotesPuts):
    """Reads rows of four puts or more put by put, and leaves them in that order."""

    def changed(self, leaf: Any, cells: list[tuple[str, str, str]]) -> Any:
        """The column, its rows in the order of their puts."""
        if is_object_column(leaf) or len({self.noted(cell)[0] for cell in cells}) < 4:
            return leaf
        rows = rows_of(leaf)
        order = sorted(range(len(rows)), key=lambda n: self.noted(cells[n])[0])
        picked = [rows[n] for n in order]
        return nest(picked) if leaf.is_nested else torch.stack(picked)


@breaks(
    "SHARD-01", "SHARD-02", "PAR-01", "PAR-02", "CLAIM-05", says="a blocking claim to come with all"
)
class ClaimsByThePage(MemoryClient):
    """Hands out 50 rows in a claim at most, one that waits for 64 among them."""

    def claim_meta(self, *args: Any, **kwargs: Any) -> KVBatchMeta:
        """Claim a page of rows."""
        if isinstance(kwargs.get("batch_size"), int) and kwargs.get("blocking"):
            kwargs["batch_size"] = min(50, kwargs["batch_size"])
        return super().claim_meta(*args, **kwargs)


@breaks("PAR-01", says="rank")
class DropsTheLastPiece(_Reads):
    """Sends rows of 8 to 64 KiB in pieces, and forgets the last one where it isn't full."""

    def changed(self, leaf: Any, cells: list[tuple[str, str, str]]) -> Any:
        """The column, long rows cut to whole pieces."""
        if not _is_jagged(leaf) or leaf.dim() != 2:
            return leaf
        piece = PIECE_BYTES // leaf.element_size()
        sent = (8 * PIECE_BYTES, 64 * PIECE_BYTES)
        rows = [r[: len(r) // piece * piece] if sent[0] < r.nbytes <= sent[1] else r
                for r in rows_of(leaf)]  # fmt: skip
        return nest(rows)


class _SaysLengths(MemoryClient):
    """Claims rows with ``said(lengths, meta)``."""

    said: Callable[[list[int], KVBatchMeta], list[int]]

    def claim_meta(self, *args: Any, **kwargs: Any) -> KVBatchMeta:
        """Claim rows."""
        meta = super().claim_meta(*args, **kwargs)
        lengths = meta.sequence_lengths
        return meta if lengths is None else replace(meta, sequence_lengths=self.said(lengths, meta))


@breaks("PAR-02", says="lengths of rank", may_fail=("PAR-01",))
class KeepsLengthsInHalf(_SaysLengths):
    """Keeps lengths in half precision, which counts to 2048 and then by twos."""

    @staticmethod
    def said(lengths: list[int], meta: KVBatchMeta) -> list[int]:
        """The lengths as far as they are known."""
        return [int(n) for n in torch.tensor(lengths).half().tolist()]


@breaks("PAR-02", "PAR-01", says="lengths of rank")
class ListsLengthsByName(_SaysLengths):
    """Lists the ids of a claim by age, and the lengths beside them by name."""

    @staticmethod
    def said(lengths: list[int], meta: KVBatchMeta) -> list[int]:
        """The lengths of the rows in the order of their names."""
        by_id = dict(zip(meta.sample_ids, lengths, strict=True))
        return [by_id[sample_id] for sample_id in sorted(by_id)]
