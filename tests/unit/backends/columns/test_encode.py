"""``pack`` converts any leaf to the bytes of its rows, with dtype, shape and sizes."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from tensordict import NonTensorData, TensorDict
from torch import Tensor

from rlconform.backends.columns.column_block import ColumnBlock
from rlconform.backends.columns.encode import batch_of, pack
from rlconform.wire import object_column, same_rows
from rlconform.wire.ragged_rows import RaggedRows

DTYPES = [
    torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.uint16,
    torch.uint32, torch.uint64, torch.float16, torch.bfloat16, torch.float32, torch.float64,
    torch.float8_e4m3fn, torch.float8_e5m2, torch.complex64, torch.complex128,
]  # fmt: skip


def parcel_of(leaf: Any, n_rows: int | None = None) -> ColumnBlock:
    n_rows = leaf.shape[0] if n_rows is None else n_rows
    return pack(TensorDict({"x": leaf}, [n_rows]), n_rows)


def unpacked(columns: ColumnBlock, n_rows: int) -> Any:
    return batch_of(columns, n_rows).get("x")


def jagged(values: Tensor, lengths: list[int]) -> Tensor:
    return RaggedRows(lengths).nest(values)


def with_gaps(base: Tensor) -> Tensor:
    """Rows base[0:2], base[4:4], base[5:8]."""
    offsets, lengths = torch.tensor([0, 4, 5, 8]), torch.tensor([2, 0, 3])
    return torch.nested.nested_tensor_from_jagged(base, offsets, lengths)


BASE = torch.arange(96, dtype=torch.float64).view(8, 12)

LEAVES: dict[str, Callable[[], Tensor]] = {
    "plain": lambda: BASE,
    "scalars": lambda: BASE[:, 3],
    "strided": lambda: BASE[::3, ::5],
    "sliced": lambda: BASE[2:5, 1:4],
    "transposed": BASE.t,
    "expanded rows": lambda: BASE[:1].expand(5, -1),
    "expanded columns": lambda: BASE[:, :1].expand(-1, 4),
    "one number for all": lambda: torch.tensor(3.0).expand(4),
    "one row of a stride": lambda: BASE.view(-1)[::5][:1],
    "one row of many strides": lambda: BASE[::3, ::5][:1, :1],
    "no elements": lambda: BASE[:, :0],
    "no elements in later dimensions": lambda: torch.zeros(2, 0, 3).transpose(1, 2),
    "grad": lambda: BASE.clone().requires_grad_() * 2,
    "conjugate": lambda: torch.randn(4, 3, dtype=torch.complex64).conj(),
    "imaginary part of a conjugate": lambda: torch.randn(4, dtype=torch.complex128).conj().imag,
    "negative view": lambda: torch.randn(4, 2, dtype=torch.complex64).conj().imag,
    "jagged": lambda: jagged(BASE, [3, 0, 5]),
    "jagged of tokens alone": lambda: jagged(BASE[:, 0], [0, 8]),
    "jagged with gaps": lambda: with_gaps(BASE),
    "jagged, transposed": lambda: jagged(BASE.t(), [2, 10]),
    "jagged with grad": lambda: jagged(BASE.clone().requires_grad_(), [8]),
    "jagged of nothing": lambda: jagged(BASE[:0], [0, 0]),
    "jagged of one token of a stride": lambda: jagged(BASE.view(-1)[::5][:1], [0, 1]),
    "jagged of a slice": lambda: jagged(BASE[1:4], [1, 2]),
    "jagged of conjugates": lambda: jagged(torch.randn(3, dtype=torch.complex64).conj(), [1, 2]),
}


@pytest.mark.parametrize("leaf_of", LEAVES.values(), ids=LEAVES.keys())
def test_a_leaf_comes_back_whatever_its_memory_looks_like(leaf_of: Callable[[], Tensor]) -> None:
    leaf = leaf_of()
    columns = parcel_of(leaf)
    got = unpacked(columns, leaf.shape[0])
    assert not got.requires_grad
    assert not got.is_conj()
    assert got.is_nested == leaf.is_nested
    assert same_rows(got, leaf.detach())
    values = columns["x"].values
    assert (values.dtype, values.ndim) == (np.uint8, 1)
    assert values.flags.c_contiguous


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("layout", ["dense", "jagged"])
def test_every_dtype_comes_back_bit_for_bit(dtype: torch.dtype, layout: str) -> None:
    high = 2 if dtype is torch.bool else 256
    raw = torch.randint(0, high, (6 * 2 * dtype.itemsize,), dtype=torch.uint8)
    values = raw.view(dtype).view(6, 2)
    leaf = values if layout == "dense" else jagged(values, [1, 0, 5])
    columns = parcel_of(leaf)
    assert columns["x"].dtype == str(dtype).removeprefix("torch.")
    assert columns["x"].item_bytes == 2 * dtype.itemsize
    assert same_rows(unpacked(columns, leaf.shape[0]), leaf)


def test_a_column_holds_the_bytes_of_its_rows_alone() -> None:
    base = torch.zeros(1000, 1000)
    log = object_column([{"view": base[0, :2]}, {"view": base[1, :2]}])
    for leaf, most in ((base[:2, :3], 24), (jagged(base[:3, 0], [1, 2]), 12), (log, 300)):
        assert parcel_of(leaf, 2)["x"].values.nbytes <= most


def test_a_contiguous_leaf_is_not_copied() -> None:
    for leaf, values in ((BASE, BASE), (jagged(BASE, [3, 5]), BASE)):
        assert np.shares_memory(parcel_of(leaf)["x"].values, values.numpy())


# Extents for the index


def test_extents_count_the_bytes_of_each_row() -> None:
    fields = TensorDict(
        {
            "dense": torch.zeros(3, 4, 2, dtype=torch.int16),
            "scalars": torch.zeros(3, dtype=torch.bool),
            "jagged": jagged(torch.zeros(5, 2), [3, 0, 2]),
            "log": object_column(["", "long enough to tell", None]),
        },
        [3],
    )
    extents = {name: column.extent for name, column in pack(fields, 3).items()}
    assert {name: extent.kind for name, extent in extents.items()} == {
        "dense": "int16", "scalars": "bool", "jagged": "float32", "log": "object"
    }  # fmt: skip
    assert (extents["dense"].sizes, extents["scalars"].sizes) == (16, 1)
    assert np.asarray(extents["jagged"].sizes).tolist() == [24, 0, 16]
    first, second, third = np.asarray(extents["log"].sizes).tolist()
    assert second > first > 0
    assert third > 0


# Shared offsets


def per_token_fields() -> TensorDict:
    lengths = [2, 0, 3]
    return TensorDict(
        {
            "tokens": jagged(torch.arange(5), lengths),
            "logprobs": jagged(torch.randn(5), lengths),  # separate but equal offsets
            "experts": jagged(torch.zeros(5, 4), lengths),
            "image": jagged(torch.zeros(6, 2), [1, 2, 3]),
            "mask": torch.ones(3),
        },
        [3],
    )


def test_equal_offsets_are_one_array() -> None:
    columns = pack(per_token_fields(), 3)
    offsets = {name: column.offsets for name, column in columns.items()}
    assert offsets["tokens"] is offsets["logprobs"] is offsets["experts"]
    assert offsets["tokens"] is not None
    assert offsets["tokens"].tolist() == [0, 2, 2, 5]
    assert offsets["image"] is not None
    assert offsets["image"].tolist() == [0, 1, 3, 6]
    assert offsets["mask"] is None


def test_a_parcel_is_pickled_out_of_band_with_its_offsets_shared() -> None:
    fields = per_token_fields()
    columns = pack(fields, 3)
    buffers: list[pickle.PickleBuffer] = []
    head = pickle.dumps(columns, protocol=5, buffer_callback=buffers.append)
    columns = len(columns)
    assert len(buffers) == columns + 2  # the values, and the offsets of two kinds
    got: ColumnBlock = pickle.loads(head, buffers=[bytearray(buffer.raw()) for buffer in buffers])
    assert got["tokens"].offsets is got["logprobs"].offsets is got["experts"].offsets
    batch = batch_of(got, 3)
    assert all(same_rows(batch.get(name), fields.get(name)) for name in fields.keys())  # noqa: SIM118
    wide = parcel_of(torch.zeros(1000, 1000))
    out_of_band: list[pickle.PickleBuffer] = []
    assert len(pickle.dumps(wide, protocol=5, buffer_callback=out_of_band.append)) < 1000


# Refusals


@pytest.mark.parametrize(
    "leaf",
    [
        TensorDict({"y": torch.zeros(2)}, [2]),
        torch.zeros(2, 3).to_sparse(),
        torch.nested.nested_tensor([torch.zeros(1), torch.zeros(2)], layout=torch.strided),
    ],
    ids=["a batch within the batch", "sparse", "nested, but not jagged"],
)
def test_other_leaves_are_refused_with_the_fields_name(leaf: Any) -> None:
    with pytest.raises(TypeError, match="'bad'"):
        pack(TensorDict({"bad": leaf}, [2]), 2)


def test_a_value_that_can_not_be_pickled_is_refused_with_the_fields_name() -> None:
    with pytest.raises(TypeError, match="'bad'"):
        pack(TensorDict({"bad": object_column([1, threading.Lock()])}, [2]), 2)


def test_an_object_column_of_other_rows_is_refused_with_the_fields_name() -> None:
    sliced = NonTensorData(np.array(["a", "b", "c"], dtype=object), batch_size=[2])
    with pytest.raises(ValueError, match="'bad'"):
        pack(TensorDict({"bad": sliced}, [2]), 2)


def test_no_fields_make_no_columns() -> None:
    assert pack(None, 3) == {}
    assert pack(TensorDict({}, [3]), 3) == {}
    assert batch_of({}, 3).batch_size == (3,)
