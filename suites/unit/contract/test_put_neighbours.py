"""PUT: what lies beside an overwritten value, or is almost like another, stays as it was.

Planes that pack many rows or fields into one buffer, file or table may reach the next one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from rlconform.certify.assertions.expect import expect_lookup_error, expect_objects, leaning_on
from rlconform.certify.plugin.markers import requirement
from rlconform.certify.scenarios.checksum_twins import CHECKSUMS, checksum_twins
from rlconform.certify.scenarios.labeled_rows import jagged, random_rows
from rlconform.certify.scenarios.partition import PartitionUnderTest
from rlconform.certify.scenarios.refusable_objects import (
    put_or_leave_nothing,
    put_other_types_or_leave_nothing,
)
from rlconform.contract import Target
from rlconform.wire import object_array, stack_or_nest

IDS = [f"r{n}" for n in range(6)]


#: Names of fields that are one name where a plane replaces, drops or folds some characters.
ALIKE = [
    "lp_old", "lp.old", "lp-old", "lp old", "lp:old", "lp/old", "lp__old", "lpold", "LP_old",
    "lp_Old", "_lp_old", "lp_old_", "lp_old.", "lp_old1", "lp_old_1", "lp%5Fold", "lp_öld",
]  # fmt: skip


def is_plain(name: str) -> bool:
    """Whether every plane takes the name: no sentence of the contract allows or forbids others."""
    return name.isascii() and name.isidentifier()


@requirement("PUT-11")
def test_fields_whose_names_are_alike_keep_their_own_values(
    new_partition: Callable[..., PartitionUnderTest],
) -> None:
    part = new_partition(fields=[name for name in ALIKE if is_plain(name)])
    columns: dict[str, torch.Tensor] = {}
    for number, name in enumerate(ALIKE):
        column = torch.full((2, 3), float(number))
        try:
            part.put(IDS[:2], **{name: column})
        except (ValueError, TypeError):
            if is_plain(name):
                raise
        else:
            columns[name] = column
    for name, column in columns.items():
        part.expect_rows(IDS[:2], **{name: list(column)})
    part.expect_rows(IDS[:2], **{name: list(column) for name, column in columns.items()})


#: Names that a plane may give to the parts of a jagged field x.
PARTS = [f"x_{part}" for part in (
    "lengths", "length", "len", "lens", "offsets", "values", "shape", "shapes", "dtype", "mask",
    "size", "data", "nested", "jagged", "index", "meta", "0",
)]  # fmt: skip


@requirement("PUT-11", leans_on=("GET-05",))
@pytest.mark.parametrize("first", ["parts", "x"])
def test_fields_that_are_named_as_parts_of_a_jagged_one_are_their_own(
    new_partition: Callable[..., PartitionUnderTest], first: str
) -> None:
    """Planes that store a jagged field as several columns need names that no caller gives."""
    part = new_partition(fields=["x", *PARTS])
    rows = [torch.arange(n) for n in (3, 1, 2)]
    columns = {name: torch.arange(3) + 10 * n for n, name in enumerate(PARTS)}
    puts = [columns, {"x": stack_or_nest(rows)}]
    part.put(IDS[:3], **puts[first == "x"])
    if first == "x":
        part.expect_absent(IDS[:1], PARTS[0])
        for name in PARTS[1:]:
            expect_lookup_error(lambda name=name: part.get(IDS[:3], name), f"a read of {name}")
    part.put(IDS[:3], **puts[first != "x"])
    part.expect_rows(IDS[:3], **{name: list(column) for name, column in columns.items()})
    part.expect_rows(IDS[2::-1], x=rows[::-1])


#: Lengths of six rows, most of which end within a byte of bools or a word of numbers.
LENGTHS = (3, 5, 11, 1, 9, 17)


@requirement("PUT-13", leans_on=("PUT-05",))
@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.bfloat16, torch.int64], ids=str)
@pytest.mark.parametrize("change", [0, -1, 4], ids=["same_length", "shorter", "longer"])
def test_the_rows_beside_an_overwritten_one_stay(
    part: PartitionUnderTest, dtype: torch.dtype, change: int
) -> None:
    rows = random_rows(dtype, [(n,) for n in LENGTHS], seed=1)
    if dtype is torch.bool:  # a mask: zeroed neighbours show
        rows = [torch.ones_like(row) for row in rows]
    part.put(IDS, x=stack_or_nest(rows))
    for place, length in enumerate(LENGTHS):
        (rows[place],) = random_rows(dtype, [(max(1, length + change),)], seed=10 + place)
        part.put(IDS[place : place + 1], x=jagged(rows[place : place + 1]))
        part.expect_rows(IDS, x=rows)
    more = random_rows(dtype, [(n + 1,) for n in LENGTHS[:2]], seed=20)
    part.put(IDS[1:3], x=jagged(more))
    part.expect_rows(IDS, x=[rows[0], *more, *rows[3:]])


#: Dtypes of which a plane may store several rows in one word, and the shapes of such rows.
NARROW = [torch.bool, torch.uint8, torch.int8, torch.float16, torch.bfloat16, torch.int32]


@requirement("PUT-13", leans_on=("PUT-03",))
@pytest.mark.parametrize("shape", [(), (1,), (3,)], ids=str)
@pytest.mark.parametrize("dtype", NARROW, ids=str)
def test_a_put_of_some_rows_leaves_the_rows_beside_them(
    part: PartitionUnderTest, dtype: torch.dtype, shape: tuple[int, ...]
) -> None:
    """A plane that packs the flags of eight rows into a byte must not write a whole byte."""
    ids = [f"u{n}" for n in range(40)]
    column = torch.ones(40, *shape, dtype=dtype)
    part.put(ids, x=column)
    for some in (slice(8, 12), slice(21, 22), slice(3, 37, 11)):
        column[some] = 0
        part.put(ids[some], x=column[some])
        part.expect_rows(ids, x=list(column))


@requirement("PUT-07")
@pytest.mark.parametrize("trailing", [(1,), (1, 1), (2, 1)], ids=str)
def test_dimensions_of_width_one_stay_whatever_the_lengths(
    part: PartitionUnderTest, trailing: tuple[int, ...]
) -> None:
    rows = random_rows(torch.float32, [(n, *trailing) for n in (2, 3, 2, 2, 1, 1)])
    part.put(IDS, x=stack_or_nest(rows))
    for places in ([0, 1, 2, 3, 4, 5], [0, 2, 3], [4, 5], [4], [1]):
        part.expect_rows([IDS[n] for n in places], x=[rows[n] for n in places])
    with leaning_on("PUT-13"):
        same = random_rows(torch.float32, [(4, *trailing)] * 6, seed=2)
        part.put(IDS, x=jagged(same))
        part.expect_rows(IDS, x=same)


#: Where two long rows differ.
PLACES = {"first": 0, "after_1_kib": 1100, "middle": 5000, "near_the_end": -100, "last": -1}


@requirement("PUT-21")
@pytest.mark.parametrize("place", PLACES.values(), ids=PLACES)
def test_long_texts_that_differ_in_one_place_are_kept_apart(
    part: PartitionUnderTest, target: Target, place: int
) -> None:
    """Planes that store equal rows once must compare whole rows, and not their beginnings."""
    texts = []
    for sign in "ab":
        text = list("So the answer is 56. " * 500)
        text[place] = sign
        texts.append("".join(text))
    logs = [[{"role": "user", "content": text}] for text in texts]
    if put_or_leave_nothing(part, target, IDS[:4], log=object_array([*texts, *logs])):
        expect_objects(part.get(IDS[:4], "log"), "log", [*texts, *logs])


#: Objects around a value: rows of each differ only in the type of equal values.
HOLDERS: dict[str, Callable[[Any], Any]] = {
    "list": lambda value: {"n": [value, "a"]},
    "dict": lambda value: {"n": {"of": value}},
    "tuple": lambda value: {"n": (value, "a")},
}


@requirement("PUT-28")
@pytest.mark.parametrize("rows", [6, 1], ids=["one_put", "a_put_each"])
@pytest.mark.parametrize("holding", HOLDERS.values(), ids=HOLDERS)
def test_equal_values_of_unlike_types_in_objects_are_kept_apart(
    part: PartitionUnderTest, holding: Callable[[Any], Any], rows: int
) -> None:
    """Planes that keep one of several equal values compare with ``==``, for which 0 equals 0.0."""
    logs = [holding(value) for value in (0, 0.0, False, 1, True, 1.0)]
    for start in range(0, 6, rows):
        ids, own = IDS[start : start + rows], logs[start : start + rows]
        if not put_other_types_or_leave_nothing(part, ids, log=object_array(own)):
            return
    expect_objects(part.get(IDS, "log"), "log", logs)


#: Long values for an object; ``repr`` leaves out the middle of an array.
LONG_VALUES: dict[str, Callable[[torch.Tensor], Any]] = {
    "array": lambda numbers: numbers.numpy(),
    "tensor": lambda numbers: numbers,
    "bytes": lambda numbers: numbers.numpy().tobytes(),
}


@requirement("PUT-28")
@pytest.mark.parametrize("place", PLACES.values(), ids=PLACES)
@pytest.mark.parametrize("make", LONG_VALUES.values(), ids=LONG_VALUES)
def test_objects_with_long_values_that_differ_in_one_place_are_kept_apart(
    part: PartitionUnderTest, make: Callable[[torch.Tensor], Any], place: int
) -> None:
    """Planes that store equal objects once may know them by their texts."""
    numbers = torch.arange(10_000).repeat(2, 1)
    numbers[1, place] += 1
    logs = [[{"role": "assistant", "token_ids": make(each)}] for each in numbers]
    if put_other_types_or_leave_nothing(part, IDS[:2], log=object_array(logs)):
        expect_objects(part.get(IDS[:2], "log"), "log", logs)


@requirement("PUT-01")
@pytest.mark.parametrize("place", PLACES.values(), ids=PLACES)
def test_long_rows_that_differ_in_one_place_are_kept_apart(
    part: PartitionUnderTest, place: int
) -> None:
    """Planes that store equal rows once must compare whole rows, and not their beginnings."""
    rows = torch.arange(10_000).repeat(2, 1)
    rows[1, place] += 1
    part.put(IDS[:2], x=rows)
    part.expect_rows(IDS[:2], x=list(rows))


@requirement("PUT-01", leans_on=("PUT-05", "PUT-13"))
@pytest.mark.parametrize("checksum", CHECKSUMS)
def test_values_of_equal_checksums_are_kept_apart(part: PartitionUnderTest, checksum: str) -> None:
    """Planes that store equal values once, or look for changes, may know them by a checksum."""
    values = checksum_twins(checksum, 8_000)
    words = [value.view(torch.int64) for value in values]
    for order in ([0, 1], [1, 0]):
        rows, lists = [values[n] for n in order], [words[n] for n in order]
        part.put(IDS[:2], x=torch.stack(rows), y=jagged(lists))
        part.expect_rows(IDS[:2], x=rows, y=lists)


@requirement("PUT-28")
@pytest.mark.parametrize("checksum", CHECKSUMS)
def test_objects_with_bytes_of_equal_checksums_are_kept_apart(
    part: PartitionUnderTest, checksum: str
) -> None:
    """Images and tool results travel as bytes in logs."""
    logs = [[{"image": bytes(each.tolist())}] for each in checksum_twins(checksum, 8_000)]
    for made in (logs, logs[::-1]):
        if not put_other_types_or_leave_nothing(part, IDS[:2], log=object_array(made)):
            return
        expect_objects(part.get(IDS[:2], "log"), "log", made)


@requirement("PUT-01")
@pytest.mark.parametrize("rows", [6, 1], ids=["one_put", "a_put_each"])
def test_images_that_differ_in_one_place_are_kept_apart(
    part: PartitionUnderTest, rows: int
) -> None:
    """Of rows of 600 KiB, a plane may hash some pages: each two differ in a page of their own."""
    pixels = torch.zeros(6, 3 * 200 * 256)
    for n in range(1, 6):
        pixels[n, pixels.shape[1] * (2 * n - 1) // 12] = 1
    images = pixels.reshape(6, 3, 200, 256)
    for start in range(0, 6, rows):
        part.put(IDS[start : start + rows], x=images[start : start + rows])
    part.expect_rows(IDS, x=list(images))
