"""Rows whose bytes contain their partition, id, field and version.

A row that a plane returns in the wrong place, or mixes with another, is then recognised.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import torch
from tensordict import TensorDict, TensorDictBase

from rlconform.certify.assertions.expect import rows_in
from rlconform.certify.concurrency.operation import Value
from rlconform.certify.recording.shorten import shorten
from rlconform.wire import stack_or_nest


def labeled_row(
    partition_id: str, sample_id: str, field: str, version: int = 0, width: int = 0
) -> torch.Tensor:
    """Return one row as 1-D uint8: its label, padded to ``width`` bytes."""
    text = f"row:{partition_id}|{sample_id}|{field}|v{version}".encode()
    return torch.frombuffer(bytearray(text.ljust(width, b".")), dtype=torch.uint8)


def labeled_rows(
    partition_id: str, sample_ids: Sequence[str], field: str, version: int = 0, width: int = 0
) -> list[torch.Tensor]:
    """Return one labelled row for each id."""
    return [labeled_row(partition_id, i, field, version, width) for i in sample_ids]


def labeled_column(
    partition_id: str, sample_ids: Sequence[str], field: str, version: int = 0, width: int = 0
) -> torch.Tensor:
    """Return the labelled rows as one column: dense (N, W), or jagged (N, j)."""
    return stack_or_nest(labeled_rows(partition_id, sample_ids, field, version, width))


def jagged(rows: Sequence[torch.Tensor]) -> torch.Tensor:
    """Return rows as a jagged column, even a single one, or several of equal lengths."""
    return torch.nested.nested_tensor(list(rows), layout=torch.jagged)


# -- random rows ---------------------------------------------------------------------------------


def random_rows(
    dtype: torch.dtype, shapes: Sequence[Sequence[int]], seed: int = 0
) -> list[torch.Tensor]:
    """Return rows of random bits in ``dtype``, one for each shape; bools are 0 or 1.

    Each row of several real floating values ends in a value that gets lost easily: in turn a NaN
    with a payload, minus zero and infinity.
    """
    generator = torch.Generator().manual_seed(seed)
    rows = [random_bits(dtype, shape, generator) for shape in shapes]
    if dtype.is_floating_point and dtype.itemsize > 1:
        odd = torch.tensor([float("nan"), -0.0, float("inf")], dtype=dtype)
        odd.view(torch.uint8)[0] |= 1
        for index, row in enumerate(row for row in rows if row.numel() > 1):
            row.view(-1)[-1] = odd[index % len(odd)]
    return rows


def random_bits(
    dtype: torch.dtype, shape: Sequence[int], generator: torch.Generator
) -> torch.Tensor:
    """Return a tensor of random bits in ``dtype``; bools are 0 or 1."""
    if dtype is torch.bool:
        return torch.randint(0, 2, tuple(shape), generator=generator).to(torch.bool)
    count = torch.Size(shape).numel()
    raw = torch.randint(0, 256, (count * dtype.itemsize,), generator=generator, dtype=torch.uint8)
    return raw.view(dtype).reshape(tuple(shape))


# -- rows of several versions --------------------------------------------------------------------
# The label is repeated to the very end of the row, so that a row made of two puts is recognised
# wherever the boundary is. The rows can be viewed in any dtype.

#: A multiple of every dtype's size, so that a row's bytes are a whole number of values.
_STEP = 16
_LABEL = re.compile(rb"row:(.*?)\|(.*?)\|(.*?)\|v(\d+);")

#: dtype of a field by its name; other fields are uint8.
Dtypes = Mapping[str, torch.dtype]


def versioned_row(
    partition_id: str,
    sample_id: str,
    field: str,
    version: int,
    ragged: bool = False,
    width: int = 0,
) -> torch.Tensor:
    """Return one row as 1-D uint8 of at least ``width`` bytes.

    If ragged, its version adds 0 to 4 times ``_STEP`` bytes.
    """
    label = bytes(labeled_row(partition_id, sample_id, field, version).tolist()) + b";"
    least = max(2 * len(label), width)
    width = -(-least // _STEP) * _STEP + (version % 5 if ragged else 0) * _STEP
    return torch.frombuffer(bytearray(_repeated(label, width)), dtype=torch.uint8)


def versioned_batch(
    partition_id: str,
    sample_ids: Sequence[str],
    fields: Sequence[str],
    version: int,
    *,
    ragged: bool = False,
    dtypes: Dtypes | None = None,
    width: int = 0,
) -> TensorDict:
    """Return the columns of a put, jagged where the rows' widths differ."""
    columns = {}
    for field in fields:
        dtype = (dtypes or {}).get(field, torch.uint8)
        rows = [versioned_row(partition_id, i, field, version, ragged, width) for i in sample_ids]
        columns[field] = stack_or_nest([row.view(dtype) for row in rows])
    return TensorDict(columns, batch_size=[len(sample_ids)])


def versions_in(
    batch: TensorDictBase,
    partition_id: str,
    sample_ids: Sequence[str],
    fields: Sequence[str],
    dtypes: Dtypes | None = None,
) -> tuple[dict[str, Value], ...]:
    """Return the version of each row that a get returned, or a description of a wrong row.

    Raises:
        ContractViolation: A field is missing, is no tensor column, or has too many rows.
    """
    values: list[dict[str, Value]] = [{} for _ in sample_ids]
    for field in fields:
        rows = rows_in(batch, field)
        dtype = (dtypes or {}).get(field, torch.uint8)
        for index, sample_id in enumerate(sample_ids):
            if index < len(rows):
                value = version_of(rows[index], partition_id, sample_id, field, dtype)
            else:
                value = f"no row: {len(rows)} returned for {len(sample_ids)} ids"
            values[index][field] = value
    return tuple(values)


def version_of(
    row: torch.Tensor, partition_id: str, sample_id: str, field: str, dtype: torch.dtype
) -> Value:
    """Return the version of ``row`` if it is the whole requested row, else a description."""
    if row.dtype is not dtype:
        return f"a row of {row.dtype} in place of {dtype}"
    raw = row.detach().contiguous().view(torch.uint8).numpy().tobytes()
    found = _LABEL.match(raw)
    if found is None:
        return f"bytes that no put wrote: {shorten(repr(raw), 60)}"
    if _repeated(found[0], len(raw)) != raw or len(raw) % _STEP:
        return f"a row made of parts: {shorten(repr(raw), 160)}"
    partition, sample, name, version = (part.decode("utf-8", "replace") for part in found.groups())
    if (partition, sample, name) == (partition_id, sample_id, field):
        return int(version)
    return f"row of {sample!r} field {name!r} v{version} of partition {partition!r}"


def _repeated(label: bytes, width: int) -> bytes:
    return (label * -(-width // len(label)))[:width]
