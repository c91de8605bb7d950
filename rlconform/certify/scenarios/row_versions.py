"""Columns that say whose they are in every byte, in any dtype and of any width.

A row repeats its description (``payload.payload_row``) at least once, to its very end, so that a
row made of two puts is told from a whole one, wherever the seam is.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import torch
from tensordict import TensorDict, TensorDictBase

from rlconform.certify.assertions.values import rows_in
from rlconform.certify.concurrency.events import Value
from rlconform.certify.recording.text import shorten
from rlconform.certify.scenarios.labeled_rows import labeled_row

#: Every dtype's size divides it, so that a row's bytes are a whole number of values.
_STEP = 16
_DESCRIBED = re.compile(rb"row:(.*?)\|(.*?)\|(.*?)\|v(\d+);")

#: dtype of a field by its name; other names are uint8.
Dtypes = Mapping[str, torch.dtype]


def row(
    partition_id: str, sample_id: str, field: str, version: int, ragged: bool = False
) -> torch.Tensor:
    """One row as 1-D uint8; a ragged one is 0 to 4 steps longer, as its version has it."""
    described = bytes(labeled_row(partition_id, sample_id, field, version).tolist()) + b";"
    width = -(-2 * len(described) // _STEP) * _STEP + (version % 5 if ragged else 0) * _STEP
    repeated = described * -(-width // len(described))
    return torch.frombuffer(bytearray(repeated[:width]), dtype=torch.uint8)


def batch(
    partition_id: str,
    sample_ids: Sequence[str],
    fields: Sequence[str],
    version: int,
    *,
    ragged: bool = False,
    dtypes: Dtypes | None = None,
) -> TensorDict:
    """The columns of a put, jagged where the rows' widths differ."""
    columns = {}
    for field in fields:
        dtype = (dtypes or {}).get(field, torch.uint8)
        rows = [row(partition_id, i, field, version, ragged).view(dtype) for i in sample_ids]
        alike = len({len(each) for each in rows}) == 1
        columns[field] = (
            torch.stack(rows) if alike else torch.nested.as_nested_tensor(rows, layout=torch.jagged)
        )
    return TensorDict(columns, batch_size=[len(sample_ids)])


def values_of(
    came: TensorDictBase,
    partition_id: str,
    sample_ids: Sequence[str],
    fields: Sequence[str],
    dtypes: Dtypes | None = None,
) -> tuple[dict[str, Value], ...]:
    """What a get returned, row by row: versions, or in words what isn't the row asked for.

    Raises:
        ContractViolation: A field is missing, no tensor column, or of another number of rows.
    """
    values: list[dict[str, Value]] = [{} for _ in sample_ids]
    for field in fields:
        rows = rows_in(came, field)
        dtype = (dtypes or {}).get(field, torch.uint8)
        for index, sample_id in enumerate(sample_ids):
            if index < len(rows):
                values[index][field] = value_of(rows[index], partition_id, sample_id, field, dtype)
            else:
                values[index][field] = f"no row: {len(rows)} came for {len(sample_ids)} ids"
    return tuple(values)


def value_of(
    came: torch.Tensor, partition_id: str, sample_id: str, field: str, dtype: torch.dtype
) -> Value:
    """The version of a row that is wholly the one asked for, else what it is."""
    if came.dtype is not dtype:
        return f"a row of {came.dtype} in place of {dtype}"
    raw = came.detach().contiguous().view(torch.uint8).numpy().tobytes()
    found = _DESCRIBED.match(raw)
    if found is None:
        return f"bytes that no put wrote: {shorten(repr(raw), 60)}"
    described = found[0]
    if (described * -(-len(raw) // len(described)))[: len(raw)] != raw or len(raw) % _STEP:
        return f"a row made of parts: {shorten(repr(raw), 160)}"
    whose = [part.decode("utf-8", "replace") for part in found.groups()]
    if whose[:3] == [partition_id, sample_id, field]:
        return int(whose[3])
    return f"row of {whose[1]!r} field {whose[2]!r} v{whose[3]} of partition {whose[0]!r}"
