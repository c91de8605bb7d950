"""``BlockClient``: a client for which each row of a check is a block of many rows of the plane.

    check ──put a, b──▶ BlockClient ──put a~0 ... a~259, b~0 ... b~259──▶ plane
          ◀──a, b─────               ◀──520 rows, those of a block alike──

A plane that pages, caps, hashes, pools or counts rows is right for the few rows of a check, and
wrong beyond a size. So checks of several processes run a second time, with blocks for rows.
"""

from __future__ import annotations

import math
import re
import time
import uuid
import warnings
from collections.abc import Sequence
from copy import deepcopy
from typing import Any

import torch
from tensordict import TensorDict, TensorDictBase

from rlconform.certify.assertions.expect import ContractViolation, FewerExamples
from rlconform.certify.recording.recorder import Skipped
from rlconform.certify.recording.snapshot import fingerprint
from rlconform.certify.scenarios.labeled_rows import jagged
from rlconform.contract import BatchMeta, DataPlaneClient, KVBatchMeta
from rlconform.wire import object_array, object_rows
from rlconform.wire.leaves import classify_leaf, rows_of

_ROW_OF_BLOCK = re.compile(r"(?s)(.*)~\d+((?:_g\d+)?)")
_MEMBER = re.compile(r"(?s)(.*?)((?:_g\d+)?)")


#: Rows of a block, the most that a plane puts and reads in ``BLOCK_S`` seconds. The first are more
#: than a small page, word or batch; four of them are more than 1,024.
SIZES, BLOCK_S = (260, 64), 0.15
#: Most rows and bytes of a put in blocks.
MOST_ROWS, MOST_BYTES = 8_000, 8 << 20


class TooLarge(Exception):
    """The error of a check that puts much already, and so can't have blocks for rows."""


class NoBlocks(Skipped):
    """Ends a run in blocks, which the plane does not allow; the usual run judges the check."""

    def __init__(self, why: str) -> None:
        warnings.warn(why, FewerExamples, stacklevel=3)
        super().__init__(why)


class BlockSize:
    """Measures once how large blocks can be on a plane."""

    def __init__(self) -> None:
        self._size: int | None = None

    def size(self, client: DataPlaneClient) -> int:
        """Return the number of rows of a block.

        Raises:
            NoBlocks: The plane is too slow.
        """
        if self._size is None:
            took = _seconds_of(client, SIZES[0])
            slower = (size for size in SIZES if took * size / SIZES[0] <= BLOCK_S)
            self._size = next(slower, 0)
        if not self._size:
            raise NoBlocks(f"the plane is too slow for blocks of {SIZES[-1]} rows")
        return self._size


def _seconds_of(client: DataPlaneClient, rows: int) -> float:
    """Return how long a put and a read of these many rows take, or infinity if they raise."""
    partition, ids = f"block-{uuid.uuid4().hex[:8]}", [f"r{n}" for n in range(rows)]
    batch = TensorDict({"x": torch.arange(rows).reshape(-1, 1)}, batch_size=[rows])
    try:
        client.register_partition(partition, ["x"], rows, ["train"])
        start = time.monotonic()
        client.put_samples(ids, partition, batch)
        client.get_samples(ids, partition, ["x"])
        took = time.monotonic() - start
        client.clear_samples(ids, partition)
    except Exception:  # noqa: BLE001 - a plane may raise anything; the checks judge it
        return math.inf
    return took


class BlockClient:
    """The eight methods, each of which calls ``client`` with ``size`` rows in place of one.

    Rows of a group ``<uid>_g<number>`` become ``size`` groups. Other attributes are the client's.
    """

    def __init__(self, client: Any, size: int) -> None:
        self._client, self._size = client, size

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    def register_partition(
        self,
        partition_id: str,
        fields: list[str],
        num_samples: int,
        consumer_tasks: list[str],
        **extra: Any,
    ) -> None:
        """Register the partition for ``size`` times as many rows."""
        self._client.register_partition(
            partition_id=partition_id,
            fields=fields,
            num_samples=num_samples * self._size,
            consumer_tasks=consumer_tasks,
            **extra,
        )

    def put_samples(
        self,
        sample_ids: list[str],
        partition_id: str,
        fields: TensorDict | None = None,
        tags: list[dict[str, Any]] | None = None,
    ) -> Any:
        """Put each row, and its tags, ``size`` times.

        Raises:
            TooLarge: The put would have very many rows or bytes.
        """
        self._expect_small(sample_ids, fields)
        receipt = self._client.put_samples(
            sample_ids=self._blocks(sample_ids),
            partition_id=partition_id,
            **({} if fields is None else {"fields": self._repeated(fields)}),
            **({} if tags is None else {"tags": [deepcopy(row) for row in self._times(tags)]}),
        )
        return self._of_blocks(receipt)

    def get_samples(
        self, sample_ids: list[str], partition_id: str, select_fields: list[str]
    ) -> TensorDictBase:
        """Read the blocks of the rows."""
        batch = self._client.get_samples(
            sample_ids=self._blocks(sample_ids),
            partition_id=partition_id,
            select_fields=select_fields,
        )
        return self._firsts(batch, sample_ids)

    def claim_meta(self, partition_id: str, task_name: str, **how: Any) -> Any:
        """Claim ``size`` times as many rows.

        Raises:
            NoBlocks: The claim is full and has a part of a block.
            ContractViolation: The claim is not full and has a part of a block, though each put
                makes a whole block ready.
        """
        asked = how["batch_size"] = how["batch_size"] * self._size
        return self._of_blocks(
            self._client.claim_meta(partition_id=partition_id, task_name=task_name, **how), asked
        )

    def get_data(self, meta: Any, select_fields: list[str] | None = None) -> TensorDictBase:
        """Read the blocks of a meta's rows."""
        whole = KVBatchMeta(
            meta.partition_id,
            meta.task_name,
            self._blocks(meta.sample_ids),
            fields=meta.fields,
            sequence_lengths=self._times(meta.sequence_lengths),
            extra_info=meta.extra_info,
            tags=self._times(meta.tags),
        )
        batch = self._client.get_data(whole, select_fields=select_fields)
        return self._firsts(batch, meta.sample_ids)

    def clear_samples(self, sample_ids: list[str] | None, partition_id: str) -> None:
        """Clear the blocks of the rows, or all that the process has put."""
        ids = None if sample_ids is None else self._blocks(sample_ids)
        self._client.clear_samples(sample_ids=ids, partition_id=partition_id)

    def _expect_small(self, ids: Sequence[str], fields: TensorDict | None) -> None:
        put_bytes = 0 if fields is None else fields.bytes()
        if len(ids) > MOST_ROWS // self._size or put_bytes > MOST_BYTES // self._size:
            raise TooLarge(
                f"{len(ids)} rows, {put_bytes} bytes: mark the check with pytest.mark.large"
            )

    def _blocks(self, ids: Sequence[str]) -> list[str]:
        parts = [(found[1], found[2]) for found in map(_MEMBER.fullmatch, ids) if found]
        return [f"{stem}~{n}{member}" for stem, member in parts for n in range(self._size)]

    def _times(self, values: Sequence[Any] | None) -> Any:
        return None if values is None else [each for each in values for _ in range(self._size)]

    def _repeated(self, batch: TensorDictBase) -> TensorDict:
        n = batch.batch_size[0]
        leaves: dict[str, Any] = {}
        for name in batch.keys():  # noqa: SIM118 - iterating over a TensorDict unbinds it
            leaf = batch.get(name)
            match classify_leaf(leaf):
                case "object":
                    leaves[name] = object_array(
                        [deepcopy(row) for row in self._times(object_rows(leaf, n))]
                    )
                case "jagged":
                    leaves[name] = jagged(self._times(rows_of(leaf)))
                case "dense":
                    apart = leaf.unsqueeze(1).expand(n, self._size, *leaf.shape[1:])
                    leaves[name] = apart.reshape(n * self._size, *leaf.shape[1:])
        return TensorDict(leaves, batch_size=[n * self._size])

    def _firsts(self, batch: TensorDictBase, ids: Sequence[str]) -> TensorDictBase:
        """Return the first row of each block; the others must be alike."""
        n = len(ids) * self._size
        if tuple(batch.batch_size) != (n,):
            return batch
        leaves: dict[str, Any] = {}
        for name in batch.keys():  # noqa: SIM118 - as above
            leaf = batch.get(name)
            tensor = isinstance(leaf, torch.Tensor)
            rows = rows_of(leaf) if tensor else object_rows(leaf, n)
            if len(rows) == n:
                self._expect_alike(rows, ids, name)
            firsts = rows[:: self._size]
            if not tensor:
                leaves[name] = object_array(firsts)
            else:
                leaves[name] = jagged(firsts) if leaf.is_nested else leaf[:: self._size]
        return TensorDict(leaves, batch_size=[len(ids)])

    def _expect_alike(self, rows: Sequence[Any], ids: Sequence[str], what: str) -> None:
        prints = list(map(fingerprint, rows))
        for number, sample_id in enumerate(ids):
            block = prints[number * self._size : (number + 1) * self._size]
            other = next((n for n, each in enumerate(block) if each != block[0]), 0)
            if other:
                at = number * self._size
                due = f"{self._size} equal values of {what!r} put for {sample_id!r} to stay equal"
                got = f"{rows[at + other]!r} in place {other}, not {rows[at]!r}"
                raise ContractViolation(due, got)

    def _of_blocks(self, meta: BatchMeta, most: float = math.inf) -> Any:
        """Return the meta of the blocks' rows; only one of ``most`` rows may have a part of one."""
        blocks: dict[str, list[int]] = {}
        for place, sample_id in enumerate(meta.sample_ids):
            found = _ROW_OF_BLOCK.fullmatch(sample_id)
            blocks.setdefault(found[1] + found[2] if found else sample_id, []).append(place)
        for sample_id, places in blocks.items():
            if len(places) == self._size:
                continue
            if len(meta.sample_ids) >= most:
                raise NoBlocks("a claim has a part of the rows that were put at once")
            due = f"all of the {self._size} rows of {sample_id!r}, which were put at once"
            raise ContractViolation(due, f"{len(places)} of them", leans_on=("CLAIM-04",))
        if len(blocks) * self._size == len(meta.sample_ids):
            for values, what in ((meta.tags, "tags"), (meta.sequence_lengths, "sequence_lengths")):
                if values is not None:
                    ordered = [values[place] for places in blocks.values() for place in places]
                    self._expect_alike(ordered, list(blocks), what)
        firsts = KVBatchMeta.of(meta).subset(places[0] for places in blocks.values())
        return KVBatchMeta(
            firsts.partition_id,
            firsts.task_name,
            list(blocks),
            fields=firsts.fields,
            sequence_lengths=firsts.sequence_lengths,
            extra_info=firsts.extra_info,
            tags=firsts.tags,
        )
