"""The TransferQueue adapter's frames: values are restored exactly, foreign frames are refused."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
import torch
from tensordict import NonTensorStack, TensorDict
from torch import Tensor

from rlconform.backends.columns import codec
from rlconform.backends.columns.column_block import StoredColumn
from rlconform.backends.columns.encode import batch_of, pack
from rlconform.backends.transfer_queue.frame_format import (
    FrameColumn,
    decode_column,
    encode_column,
)
from rlconform.certify.assertions.jagged import expect_whole_column
from rlconform.contract import ForeignRow
from rlconform.wire import object_column, rows_of

IDS = ["a", "a longer id", "ü/:@_ "]
TOKEN = 2**62 + 1
DTYPES = [
    torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64,
    torch.uint16, torch.uint32, torch.uint64, torch.float16, torch.bfloat16, torch.float32,
    torch.float64, torch.float8_e4m3fn, torch.float8_e5m2, torch.complex64, torch.complex128,
]  # fmt: skip


def packed(leaf: Any, n_rows: int) -> StoredColumn:
    return pack({"x": leaf}, n_rows)["x"]


def encode(leaf: Any, ids: list[str] = IDS, field: str = "x", token: int = TOKEN) -> FrameColumn:
    return encode_column("train", field, token, ids, packed(leaf, len(ids)))


def frames_of(column: FrameColumn) -> list[np.ndarray]:
    return np.split(column.buffer.numpy(), np.cumsum(column.sizes)[:-1])


def decode(frames: list[np.ndarray], ids: list[str] = IDS, token: int = TOKEN) -> Any:
    column = decode_column("train", "x", [token] * len(ids), ids, frames)
    return batch_of({"x": column}, len(ids)).get("x")


def round_trip(leaf: Any) -> Any:
    return decode(frames_of(encode(leaf)))


def random_bytes(dtype: torch.dtype, *shape: int) -> Tensor:
    """A tensor of random bytes, including NaN payloads; of valid bytes for bool."""
    count = int(np.prod(shape)) * dtype.itemsize
    data = torch.randint(0, 2 if dtype is torch.bool else 256, (count,), dtype=torch.uint8)
    return data.view(dtype).view(shape) if count else torch.empty(shape, dtype=dtype)


def assert_same(got: Tensor, put: Tensor) -> None:
    assert got.dtype == put.dtype
    for left, right in zip(rows_of(got), rows_of(put), strict=True):
        assert left.shape == right.shape
        assert codec.tensor_bytes(left).tobytes() == codec.tensor_bytes(right).tobytes()


@pytest.mark.parametrize("dtype", DTYPES, ids=codec.dtype_name)
@pytest.mark.parametrize("row", [(), (1,), (4,), (0,), (2, 0), (2, 3, 1, 2)])
def test_dense_columns_come_back_bit_for_bit(dtype: torch.dtype, row: tuple[int, ...]) -> None:
    put = random_bytes(dtype, 3, *row)
    got = round_trip(put)
    assert got.shape == put.shape
    assert_same(got, put)


@pytest.mark.parametrize("dtype", DTYPES, ids=codec.dtype_name)
@pytest.mark.parametrize("tail", [(), (2,), (2, 3), (0,)])
@pytest.mark.parametrize("lengths", [(0, 2, 3), (0, 0, 0), (2, 2, 2), (1, 0, 0)])
def test_jagged_columns_come_back_row_by_row(
    dtype: torch.dtype, tail: tuple[int, ...], lengths: tuple[int, ...]
) -> None:
    values = random_bytes(dtype, sum(lengths), *tail)
    offsets = torch.tensor([0, *lengths]).cumsum(0)
    put = torch.nested.nested_tensor_from_jagged(values, offsets=offsets)
    got = round_trip(put)
    # rows of equal length are returned dense, as by NeMo-RL's adapters
    assert got.layout is (torch.strided if len(set(lengths)) == 1 else torch.jagged)
    assert_same(got, put)
    expect_whole_column(TensorDict({"x": got}, batch_size=[3]), "x")


def test_a_column_is_padded_to_its_longest_row_and_not_to_the_sum() -> None:
    # Equal rows are read with a longer one, because a plane may return equal rows dense.
    put = torch.nested.nested_tensor([torch.ones(n) for n in (4, 4, 3)], layout=torch.jagged)
    padded = torch.nested.to_padded_tensor(round_trip(put), padding=0)
    assert padded.tolist() == [[1, 1, 1, 1], [1, 1, 1, 1], [1, 1, 1, 0]]


def test_frames_on_their_way_to_the_store_know_their_longest() -> None:
    put = torch.nested.nested_tensor([torch.ones(n) for n in (4, 40, 3)], layout=torch.jagged)
    column = encode(put)
    padded = torch.nested.to_padded_tensor(column.batched(), padding=0)
    assert padded.shape == (3, max(column.sizes))


@pytest.mark.parametrize(
    "leaf",
    [
        torch.arange(12).reshape(4, 3).T,
        torch.arange(24).reshape(6, 4)[::2],
        torch.ones(1).expand(3),
        torch.randn(3, 2, dtype=torch.complex64).conj(),
        torch.randn(3, 2, dtype=torch.complex64).conj().imag,
        torch.randn(3, 2, requires_grad=True),
    ],
    ids=["transposed", "strided", "expanded", "conjugate", "negative", "grad"],
)
def test_views_are_stored_by_their_values_and_own_size(leaf: Tensor) -> None:
    assert torch.equal(round_trip(leaf), leaf.detach().clone())
    assert encode(leaf).buffer.numel() < 1000


def test_frames_share_no_memory_with_the_column() -> None:
    leaf = torch.zeros(3, 4)
    column = encode(leaf)
    got = decode(frames_of(column))
    leaf.fill_(1)
    column.buffer.zero_()
    assert not got.any()


def test_dense_rows_of_two_puts_join_to_a_jagged_column() -> None:
    frames = [
        *frames_of(encode(torch.ones(1, 2), IDS[:1])),
        *frames_of(encode(torch.ones(2, 5), IDS[1:])),
    ]
    assert [len(row) for row in rows_of(decode(frames))] == [2, 5, 5]


def test_rows_of_two_dtypes_are_never_cast() -> None:
    frames = [
        *frames_of(encode(torch.ones(1), IDS[:1])),
        *frames_of(encode(torch.ones(2, dtype=torch.int64), IDS[1:])),
    ]
    with pytest.raises(ValueError, match="float32 and int64"):
        decode(frames)


def test_rows_that_no_tensor_holds_are_refused() -> None:
    frames = [
        *frames_of(encode(torch.ones(1, 2, 3), IDS[:1])),
        *frames_of(encode(torch.ones(2, 2, 4), IDS[1:])),
    ]
    with pytest.raises(ValueError, match="first dimension"):
        decode(frames)


@pytest.mark.parametrize(
    "frames",
    [
        frames_of(encode(torch.arange(3), [IDS[1], IDS[0], IDS[2]])),
        frames_of(encode(torch.arange(3), field="y")),
        frames_of(encode(torch.arange(3), token=TOKEN - 1)),
        frames_of(encode_column("val", "x", TOKEN, IDS, packed(torch.arange(3), 3))),
        [frame[:-1] for frame in frames_of(encode(torch.arange(3)))],
        [np.zeros(200, dtype=np.uint8)] * 3,
        [np.zeros(0, dtype=np.uint8)] * 3,
    ],
    ids=[
        "another row",
        "another field",
        "another put",
        "another partition",
        "cut",
        "zeros",
        "none",
    ],
)
def test_bytes_of_somebody_else_are_recognised(frames: list[np.ndarray]) -> None:
    with pytest.raises(ForeignRow):
        decode(frames)


OBJECTS: list[Any] = [
    None, True, 0, -1, 2**100, -(2**64), 1.5, -0.0, 1j, "", "\u00fc\ud800", b"", b"\0",
    [], [1, [None]], (), (1, (2,)), {}, {"k": (1,)}, {1: "a", (1, 2): None}, {1, "a"},
    frozenset({1}), np.float32(1.5), np.int64(3), np.str_("s"),
]  # fmt: skip


@pytest.mark.parametrize("value", OBJECTS, ids=lambda value: type(value).__name__)
def test_plain_data_comes_back_with_its_type(value: Any) -> None:
    got = codec.unpack(codec.pack(value))
    assert type(got) is type(value)
    if isinstance(value, set | frozenset):  # the order of a set's repr is not defined
        assert got == value
    else:
        assert repr(got) == repr(value)  # distinguishes -0.0 from 0.0, and types of contents


@pytest.mark.parametrize(
    "array",
    [
        np.arange(6, dtype=np.int16).reshape(2, 3),
        np.empty((0, 2)),
        np.array(["a", "bc"]),
        np.array([None, "a", [1]], dtype=object),
    ],
    ids=["numbers", "empty", "strings", "objects"],
)
def test_arrays_inside_objects_come_back(array: np.ndarray) -> None:
    got = codec.unpack(codec.pack({"a": array}))["a"]
    assert (got.dtype, got.shape) == (array.dtype, array.shape)
    assert got.tolist() == array.tolist()


def test_tensors_inside_objects_come_back() -> None:
    put = torch.randn(2, 3).to(torch.bfloat16)
    assert_same(codec.unpack(codec.pack([put]))[0], put)


class Text(str):
    """A subclass of str."""

    __slots__ = ()


def endless() -> list[Any]:
    loop: list[Any] = []
    loop.append(loop)
    return loop


@pytest.mark.parametrize(
    "value",
    [
        Text("x"), bytearray(b"x"), [bytearray(b"x")], {"k": memoryview(b"x")}, object(), len,
        endless(), np.zeros(2, dtype=[("a", "i4")]), torch.eye(2).to_sparse(),
    ],
    ids=lambda value: type(value).__name__,
)  # fmt: skip
def test_what_would_change_is_refused(value: Any) -> None:
    with pytest.raises(TypeError):
        codec.pack(value)


def test_object_columns_come_back_in_a_form_that_slices() -> None:
    values = [None, {"k": (1, [2])}, ""]
    for leaf in (
        object_column(values),
        TensorDict({"x": np.array(values, dtype=object)}, [3]).get("x"),
        values,
    ):
        got = round_trip(leaf)
        assert isinstance(got, NonTensorStack)
        assert got[1:].tolist() == values[1:]


@pytest.mark.parametrize(
    "leaf",
    [
        TensorDict({"x": torch.ones(3)}, [3]),
        torch.eye(3).to_sparse(),
        torch.empty(3, device="meta"),
        object_column([None, threading.Lock(), None]),
    ],
    ids=["TensorDict", "sparse", "meta", "unpicklable"],
)
def test_other_leaves_are_refused(leaf: Any) -> None:
    with pytest.raises(TypeError):
        packed(leaf, 3)


def test_object_columns_of_another_length_are_refused() -> None:
    with pytest.raises(ValueError, match="rows"):
        packed(object_column([1, 2]), 3)
