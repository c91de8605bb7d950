"""Turns tensors into Python source, exact in dtype, shape, bytes, layout and strides."""

from __future__ import annotations

import base64
import re
import zlib
from collections.abc import Sequence
from typing import Any

import torch

from rlconform.certify.reproduce.numbered import numbered
from rlconform.wire.leaves import is_jagged, jagged_buffers

#: Tensors of up to this many elements are written one by one, larger ones as compressed bytes.
MAX_LITERAL = 256
#: Most characters of one tensor in a script.
MAX_CHARACTERS = 21_400
#: Larger tensors (bytes) are not compressed: every call is recorded, and compressing takes time.
MAX_BYTES = 1 << 16

#: Types of tensors that may hold consecutive numbers.
_COUNTING = frozenset({torch.int16, torch.int32, torch.int64})

#: A labeled row, see ``scenarios.labeled_rows``: partition, id, field, version, padding.
_LABEL = re.compile(rb"row:([^|]+)\|([^|]+)\|([^|]+)\|v(\d+)(\.*)")


class NoSource(ValueError):
    """The error for a value that can't be written as source, so that no script can build it."""


def tensor_source(value: torch.Tensor) -> str:
    """Return source that builds an equal tensor; ``NoSource`` if it is too large or quantized."""
    with torch._C.DisableTorchFunctionSubclass():  # of a jagged tensor it takes torch 35 us
        requires_grad = value.requires_grad
    if requires_grad:
        return f"{tensor_source(value.detach())}.requires_grad_()"
    if is_jagged(value):
        return _jagged(value)
    value = value.detach()
    if value.device.type != "cpu":
        return f"{tensor_source(value.cpu())}.to({str(value.device)!r})"
    if value.is_nested:
        return _nested(value)
    if value.layout is torch.sparse_coo:
        plain = value.coalesce()
        parts = f"{tensor_source(plain.indices())}, {tensor_source(plain.values())}"
        return f"torch.sparse_coo_tensor({parts}, {tuple(value.shape)})"
    if value.layout is torch.sparse_csr:
        return f"{tensor_source(value.to_dense())}.to_sparse_csr()"
    if value.layout is not torch.strided or value.is_quantized:
        raise NoSource(f"it holds a tensor of layout {value.layout}")
    if value.is_conj():
        return f"{tensor_source(value.conj())}.conj()"
    if value.is_neg():
        return f"torch._neg_view({tensor_source(value.resolve_neg().neg())})"
    return _strided(value)


def _nested(value: Any) -> str:
    if value.layout is torch.strided:
        shown = ", ".join(tensor_source(row.clone()) for row in value.unbind())
        return f"torch.nested.nested_tensor([{shown}], layout=torch.strided)"
    raise NoSource("it holds a tensor that is ragged in a later dimension")


def _jagged(value: torch.Tensor) -> str:
    values, offsets, lengths = jagged_buffers(value)
    if lengths is None and int(offsets[0]) == 0 and int(offsets[-1]) == len(values):
        rows = list(torch.split(values, offsets.diff().tolist()))
        uneven = len({len(row) for row in rows}) > 1  # labeled_column makes even ones dense
        if uneven and len(values) <= MAX_BYTES and (labeled := _labeled(rows)):
            return labeled
        if rows and _is_plain(values) and offsets.dtype is torch.int64:
            shown = ", ".join(_row_sources(values, rows))
            return f"torch.nested.as_nested_tensor([{shown}], layout=torch.jagged)"
    parts = [tensor_source(part) for part in (values, offsets, lengths) if part is not None]
    return f"torch.nested.nested_tensor_from_jagged({', '.join(parts)})"


def _row_sources(values: torch.Tensor, rows: list[torch.Tensor]) -> list[str]:
    """Return the rows' sources; of a few numbers the elements are read at once, in less time."""
    few = values.numel() <= MAX_LITERAL and values.dtype is not torch.uint8
    if not few or not _has_literal(values):
        return [tensor_source(row.clone()) for row in rows]
    elements, sources, end = values.tolist(), [], 0
    for row in rows:
        start, end = end, end + len(row)
        empty = f"torch.empty({tuple(row.shape)}, dtype={row.dtype})"
        source = f"torch.tensor({elements[start:end]}, dtype={row.dtype})"
        sources.append(source if row.numel() else empty)
    return sources


def _has_literal(value: torch.Tensor) -> bool:
    """Whether decimals say each element: only bytes tell two NaNs apart, complex has no literal."""
    if value.is_complex():
        return False
    return not value.is_floating_point() or bool(value.double().isfinite().all())


def _strided(value: torch.Tensor) -> str:
    if _is_plain(value):
        return _dense(value)
    size, stride, first = tuple(value.shape), value.stride(), value.storage_offset()
    nbytes = value.untyped_storage().nbytes()
    if nbytes > MAX_BYTES:
        raise NoSource(f"it holds a view of {nbytes} bytes, too large to be written")
    count = nbytes // value.element_size()
    whole = value.as_strided((count,), (1,), 0)
    return f"{_dense(whole)}.as_strided({size}, {stride}, {first})"


def _is_plain(value: torch.Tensor) -> bool:
    """Whether the tensor is contiguous and covers its whole storage."""
    size = value.untyped_storage().nbytes()
    return value.is_contiguous() and value.numel() * value.element_size() == size


def _dense(value: torch.Tensor) -> str:
    if value.dim() == 2 and 1 < value.numel() <= MAX_BYTES and (labeled := _labeled(list(value))):
        return labeled
    if value.numel() == 0:
        return f"torch.empty({tuple(value.shape)}, dtype={value.dtype})"
    if value.numel() > MAX_LITERAL:
        return _large(value)
    if not _has_literal(value):
        raw = value.reshape(-1).view(torch.uint8).tolist()
        source = f"torch.tensor({raw}, dtype=torch.uint8).view({value.dtype})"
        return f"{source}.reshape({tuple(value.shape)})"
    return f"torch.tensor({_elements(value)}, dtype={value.dtype})"


def _large(value: torch.Tensor) -> str:
    size, flat = tuple(value.shape), value.reshape(-1)
    if value.dtype in _COUNTING and (counted := _counted(flat)):
        return f"{counted}.reshape({size})"
    if value.numel() * value.element_size() > MAX_BYTES:
        raise NoSource(f"it holds a {value.dtype} tensor of shape {size}, too large to be written")
    raw = flat.view(torch.uint8).reshape(len(flat), -1)
    if bool((raw == raw[0]).all()) and not value.is_complex():
        first = tensor_source(flat[:1].clone())
        return f"{first}.expand({len(flat)}).clone().reshape({size})"
    # base 85 is 6 % shorter, but Python code encodes it, in 20 times as long
    text = base64.b64encode(zlib.compress(raw.numpy().tobytes(), 1)).decode()
    if len(text) <= MAX_CHARACTERS:
        return f"unpacked({text!r}, {value.dtype}, {size})"
    raise NoSource(f"it holds a {value.dtype} tensor of shape {size}, too large to be written")


def _counted(flat: torch.Tensor) -> str:
    """Return source of consecutive numbers; "" for others."""
    first, end = int(flat[0]), int(flat[0]) + len(flat)
    if int(flat[-1]) != end - 1 or not bool((flat.diff() == 1).all()):
        return ""
    return f"torch.arange({first}, {end}, dtype={flat.dtype})"


def unpacked(text: str, dtype: torch.dtype, shape: Sequence[int]) -> torch.Tensor:
    """Return the tensor whose bytes ``text`` holds, compressed and in base 64; for scripts."""
    raw = bytearray(zlib.decompress(base64.b64decode(text)))
    return torch.frombuffer(raw, dtype=dtype).reshape(tuple(shape))


def _labeled(rows: list[torch.Tensor]) -> str:
    """Return the source of labeled rows, a call of ``labeled_column``; "" for other rows."""
    labels = []
    for row in rows:
        if row.dtype is not torch.uint8 or row.dim() != 1:
            return ""
        label = _LABEL.fullmatch(bytes(row.tolist()))
        if label is None:
            return ""
        try:
            part, sample_id, field, version = (label[n].decode() for n in range(1, 5))
        except UnicodeDecodeError:
            return ""
        labels.append((part, sample_id, field, int(version), len(row) if label[5] else 0))
    if len({(part, field, version, width) for part, _, field, version, width in labels}) != 1:
        return ""
    part, _, field, version, width = labels[0]
    more = f", {version}, {width}" if width else f", {version}" if version else ""
    ids = [label[1] for label in labels]
    return f"labeled_column({part!r}, {numbered(ids) or repr(ids)}, {field!r}{more})"


def _elements(value: torch.Tensor) -> str:
    """Return the elements as nested lists; rows of printable bytes (labels) as byte strings."""
    if value.dtype is not torch.uint8 or value.dim() not in {1, 2}:
        return repr(value.tolist())
    if value.dim() == 2:
        return f"[{', '.join(_elements(row) for row in value)}]"
    text = bytes(value.tolist())
    return f"[*{text!r}]" if text.isascii() and text.decode().isprintable() else repr([*text])
