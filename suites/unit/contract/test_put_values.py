"""PUT: reads return bit for bit the columns that put_samples accepted."""

from __future__ import annotations

import math

import pytest
import torch
from tensordict import TensorDict

from rlconform.certify.assertions.expect import expect_equal
from rlconform.certify.plugin.markers import requirement
from rlconform.certify.scenarios.labeled_rows import jagged, random_rows
from rlconform.certify.scenarios.partition import PartitionUnderTest
from rlconform.wire import stack_or_nest

IDS = ["u0_g0", "u0_g1", "u1_g0"]

DTYPES = [
    torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64,
    torch.float16, torch.bfloat16, torch.float32, torch.float64,
]  # fmt: skip


def expect_round_trip(
    part: PartitionUnderTest, rows: list[torch.Tensor], column: torch.Tensor | None = None
) -> None:
    """Put the rows as one column, then one by one, and read the same rows back each time."""
    ids = [f"r{i}" for i in range(len(rows))]
    part.put(ids, x=stack_or_nest(rows) if column is None else column)
    part.expect_rows(ids, x=rows)
    part.expect_rows_by_meta(ids, x=rows)
    apart = [f"apart{i}" for i in range(len(rows))]
    for sample_id, row in zip(apart, rows, strict=True):
        part.put([sample_id], x=torch.stack([row]) if column is None else jagged([row]))
    part.expect_rows(apart, x=rows)
    part.expect_rows([apart[0], *ids[1:]], x=rows)


@requirement("PUT-01")
@pytest.mark.parametrize("shape", [(), (5,)], ids=["scalar", "row"])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_dtype_comes_back_bitwise(
    part: PartitionUnderTest, dtype: torch.dtype, shape: tuple
) -> None:
    expect_round_trip(part, random_rows(dtype, [shape] * 3))


@requirement("PUT-01")
@pytest.mark.parametrize("dtype", [each for each in DTYPES if each.is_floating_point], ids=str)
def test_rows_of_equal_numbers_keep_their_own_bits(
    part: PartitionUnderTest, dtype: torch.dtype
) -> None:
    """Planes that store equal rows once take -0.0 for 0.0."""
    zeros = torch.zeros(64, dtype=dtype)
    one_negative = zeros.clone()
    one_negative[-1] = -0.0
    expect_round_trip(part, [zeros, -zeros, one_negative, zeros.clone(), -zeros])


@requirement("PUT-02", capability="dtype_fp8")
@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2], ids=str)
def test_fp8_comes_back_bitwise(part: PartitionUnderTest, dtype: torch.dtype) -> None:
    expect_round_trip(part, random_rows(dtype, [(5,)] * 3))
    every_byte = torch.arange(256, dtype=torch.int16).to(torch.uint8)
    expect_round_trip(part, [every_byte.view(dtype), every_byte.flip(0).view(dtype)])
    uneven = [every_byte[:n].view(dtype) for n in (3, 1, 5)]
    expect_round_trip(part, uneven, jagged(uneven))


@requirement("PUT-02", capability="dtype_complex")
def test_complex_comes_back_bitwise(part: PartitionUnderTest) -> None:
    expect_round_trip(part, random_rows(torch.complex64, [(5,)] * 3))
    parts = torch.tensor([0.0, -0.0, math.inf, -math.inf, math.nan, 1.0])
    pairs = torch.cartesian_prod(parts, parts)
    expect_round_trip(
        part, [torch.view_as_complex(pairs), torch.view_as_complex(pairs.flip(1).contiguous())]
    )
    uneven = random_rows(torch.complex64, [(3,), (1,), (5,)])
    expect_round_trip(part, uneven, jagged(uneven))


@requirement("PUT-03")
@pytest.mark.parametrize("size", [1, 3])
def test_one_dimensional_columns_are_distinct_from_columns_of_width_one(
    part: PartitionUnderTest, size: int
) -> None:
    ids = [f"r{i}" for i in range(size)]
    flat, column = torch.arange(size), torch.arange(size).reshape(size, 1)
    part.put(ids, x=flat, y=column)
    part.expect_rows(ids, x=list(flat), y=list(column))
    part.expect_rows_by_meta(ids, x=list(flat), y=list(column))
    part.put(["later"], x=flat[:1], y=column[:1])
    both = [*ids, "later"]
    part.expect_rows(both, x=[*flat, flat[0]], y=[*column, column[0]])


@requirement("PUT-04")
@pytest.mark.parametrize(
    "shape",
    [(4,), (0,), (1,), (2, 1), (0, 5), (2, 0), (2, 3, 4), (1, 1, 1), (2, 3, 2, 2), (3, 0, 2, 1)],
    ids=str,
)
def test_dense_row_shape_comes_back(part: PartitionUnderTest, shape: tuple[int, ...]) -> None:
    expect_round_trip(part, random_rows(torch.float32, [shape] * 3))


@requirement("PUT-05")
@pytest.mark.parametrize("lengths", [(3, 1, 5), (4, 4, 4), (7,)], ids=str)
@pytest.mark.parametrize("dtype", [torch.int64, torch.bfloat16, torch.bool], ids=str)
def test_jagged_rows_come_back(
    part: PartitionUnderTest, dtype: torch.dtype, lengths: tuple[int, ...]
) -> None:
    rows = random_rows(dtype, [(n,) for n in lengths])
    expect_round_trip(part, rows, jagged(rows))


@requirement("PUT-05")
def test_rows_longer_than_16_bit_lengths_come_back(part: PartitionUnderTest) -> None:
    rows = random_rows(torch.int32, [(70_000,), (3,)])
    expect_round_trip(part, rows, jagged(rows))


@requirement("PUT-05")
def test_trailing_zeros_of_a_row_are_kept(part: PartitionUnderTest) -> None:
    rows = [torch.tensor(row) for row in ([1, 2, 0], [0], [0, 0, 3, 0, 0])]
    expect_round_trip(part, rows, jagged(rows))


@requirement("PUT-06")
@pytest.mark.parametrize("lengths", [(0, 3), (3, 0), (2, 0, 0, 1), (0,), (0, 0)], ids=str)
def test_zero_length_rows_come_back(part: PartitionUnderTest, lengths: tuple[int, ...]) -> None:
    rows = random_rows(torch.float32, [(n,) for n in lengths])
    expect_round_trip(part, rows, jagged(rows))


@requirement("PUT-07")
@pytest.mark.parametrize("trailing", [(3,), (2, 4), (1,), (0,), (0, 4), (2, 0)], ids=str)
@pytest.mark.parametrize("lengths", [(3, 1, 2), (0, 2), (0, 0), (2,)], ids=str)
def test_jagged_rows_with_trailing_dimensions_come_back(
    part: PartitionUnderTest, lengths: tuple[int, ...], trailing: tuple[int, ...]
) -> None:
    rows = random_rows(torch.uint8, [(n, *trailing) for n in lengths])
    expect_round_trip(part, rows, jagged(rows))


@requirement("PUT-24")
@pytest.mark.parametrize("dtype", [torch.uint16, torch.uint32, torch.uint64], ids=str)
def test_wide_unsigned_dtypes_come_back(part: PartitionUnderTest, dtype: torch.dtype) -> None:
    expect_round_trip(part, random_rows(dtype, [(5,)] * 3))


@requirement("PUT-26")
@pytest.mark.gpu
def test_cuda_tensor_right_after_its_kernel(part: PartitionUnderTest) -> None:
    if not torch.cuda.is_available():
        pytest.skip("this machine has no GPU")
    for version in range(20):
        busy = torch.ones(2048, 2048, device="cuda")
        column = (busy @ busy)[:3, :64] * 0 + version  # not yet computed when put is called
        part.put(IDS, x=column)
        batch = part.get(IDS, "x")
        got = TensorDict({"x": batch.get("x").cpu()}, batch_size=[3])
        expect_equal(got["x"].tolist(), [[float(version)] * 64] * 3, "the kernel's result")


@requirement("PUT-01", scattered=False)
@pytest.mark.parametrize("default", [torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize("rows", [IDS, IDS[:1]], ids=["rows", "one_row"])
def test_values_do_not_depend_on_the_default_dtype_of_torch(
    part: PartitionUnderTest, default: torch.dtype, rows: list[str]
) -> None:
    """A trainer that builds its model in bfloat16 changes what torch makes of plain numbers."""
    scalars, wide = torch.tensor([0.1, 1e-7, 3.0])[: len(rows)], torch.rand(len(rows), 3)
    usual = torch.get_default_dtype()
    torch.set_default_dtype(default)
    try:
        part.put(rows, x=scalars, y=wide)
        part.expect_rows(rows, x=list(scalars), y=list(wide))
    finally:
        torch.set_default_dtype(usual)
    part.expect_rows(rows, x=list(scalars), y=list(wide))
