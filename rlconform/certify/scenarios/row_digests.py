"""``DigestClient``: a client whose rows have a digest, by which each reader verifies them.

    rollout worker ── put of columns ──▶ DigestClient ── the same, and their digests ──▶ plane
    rank, driver ◀── columns, verified ── DigestClient ◀── columns, and their digests ── plane

A digest is of a row's id, the column's name and the row's bytes. So a reader finds rows of other
ids, and rows whose columns come from two puts, without knowing what the rollout wrote.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from hashlib import blake2b
from typing import Any

import torch
from tensordict import TensorDict, TensorDictBase
from torch import Tensor

from rlconform.certify.assertions.raw_bytes import raw_bytes
from rlconform.contract import BatchMeta, DataPlaneClient, Tags
from rlconform.contract.fields import GENERATION_LOGPROBS, INPUT_IDS, TOKEN_MASK
from rlconform.wire import rows_of

#: Columns of a rollout that have digests, and the column of the digests, (N, 3) int64.
DIGESTED = (INPUT_IDS, GENERATION_LOGPROBS, TOKEN_MASK)
DIGESTS = "row_digests"


class WrongRow(RuntimeError):
    """A read returned a row that is not as its rollout wrote it."""


def open_digesting(attach: Callable[[], DataPlaneClient]) -> DataPlaneClient:
    """Open a client and wrap it; a partial of this function is sent to the actors."""
    return DigestClient(attach())


class DigestClient:
    """A client that wraps another client, with the same results."""

    def __init__(self, client: DataPlaneClient) -> None:
        self._client = client
        self.register_partition = client.register_partition
        self.claim_meta = client.claim_meta
        self.check_consumption_status = client.check_consumption_status
        self.clear_samples = client.clear_samples
        self.close = client.close

    def put_samples(
        self,
        sample_ids: list[str],
        partition_id: str,
        fields: TensorDict | None = None,
        tags: list[Tags] | None = None,
    ) -> BatchMeta:
        """Put the batch, with digests if it has all columns of a rollout."""
        if fields is not None and set(DIGESTED) <= set(fields.keys()):
            columns = [digests_of(sample_ids, name, fields.get(name)) for name in DIGESTED]
            digests = {DIGESTS: torch.stack(columns, dim=1)}
            fields = TensorDict({**dict(fields.items()), **digests}, batch_size=[len(sample_ids)])
        return self._client.put_samples(
            sample_ids=sample_ids, partition_id=partition_id, fields=fields, tags=tags
        )

    def get_samples(
        self, sample_ids: list[str], partition_id: str, select_fields: list[str]
    ) -> TensorDict:
        """Read rows; raise ``WrongRow`` unless they have the digests of their puts."""
        read = self._client.get_samples
        batch = read(sample_ids=sample_ids, partition_id=partition_id, select_fields=select_fields)
        self._verify(sample_ids, partition_id, batch)
        return batch

    def get_data(self, meta: BatchMeta, select_fields: list[str] | None = None) -> TensorDict:
        """Read the rows of a meta; see ``get_samples``."""
        batch = self._client.get_data(meta, select_fields=select_fields)
        self._verify(meta.sample_ids, meta.partition_id, batch)
        return batch

    def _verify(self, sample_ids: list[str], partition_id: str, batch: TensorDictBase) -> None:
        names = [name for name in DIGESTED if name in set(batch.keys())]
        if not names or not sample_ids:
            return
        stored = self._client.get_samples(
            sample_ids=sample_ids, partition_id=partition_id, select_fields=[DIGESTS]
        )
        written = torch.stack(rows_of(stored.get(DIGESTS)))
        for name in names:
            found = digests_of(sample_ids, name, batch.get(name))
            differing = found.ne(written[:, DIGESTED.index(name)]).nonzero().flatten().tolist()
            if differing:
                raise WrongRow(
                    f"expected {name!r} of {sample_ids[differing[0]]!r} as its rollout wrote it; "
                    f"got other bytes, in {len(differing)} of {len(sample_ids)} rows"
                )


def digests_of(sample_ids: Sequence[str], name: str, column: Any) -> Tensor:
    """Return the digest of each row of a column, (N,) int64."""
    rows = rows_of(column)
    if len(rows) != len(sample_ids):
        raise WrongRow(f"expected {len(sample_ids)} rows of {name!r}; got {len(rows)}")
    return torch.tensor([_digest(i, name, row) for i, row in zip(sample_ids, rows, strict=True)])


def _digest(sample_id: str, name: str, row: Tensor) -> int:
    text = f"{sample_id}/{name}/{row.dtype}/{tuple(row.shape)}/".encode()
    raw = blake2b(text + raw_bytes(row), digest_size=8).digest()
    return int.from_bytes(raw, "big", signed=True)
