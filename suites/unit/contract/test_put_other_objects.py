"""PUT-28: objects that hold values of other types come back exactly, or are refused."""

from __future__ import annotations

from collections.abc import Callable
from http import HTTPMethod
from typing import Any

import numpy as np
import pytest
import torch

from rlconform.certify.assertions.expect import expect_objects
from rlconform.certify.plugin.markers import requirement
from rlconform.certify.scenarios.partition import PartitionUnderTest
from rlconform.certify.scenarios.refusable_objects import put_other_types_or_leave_nothing
from rlconform.wire import object_array

IDS = ["u0_g0", "u0_g1", "u1_g0"]


@pytest.fixture
def part(new_partition: Callable[..., PartitionUnderTest]) -> PartitionUnderTest:
    """Return a partition with a tensor column and an object column."""
    return new_partition(fields=["x", "log"])


def views_of_one_memory() -> dict[str, Any]:
    """Return tensors and arrays that begin at one address, overlap, or have another form."""
    tokens, scores = torch.arange(12), np.arange(12, dtype=np.float32)
    return {
        "tokens": tokens,
        "prompt": tokens[:4],
        "answer": tokens[4:],
        "every_second": tokens[::2],
        "table": tokens.view(3, 4),
        "turned": tokens.view(3, 4).t(),
        "bytes": tokens.view(torch.uint8),
        "again": tokens,
        "scores": scores,
        "first_scores": scores[:2],
        "turned_scores": scores.reshape(3, 4).T,
    }


OTHER_OBJECTS: dict[str, Callable[[], Any]] = {
    "views_of_one_memory": views_of_one_memory,
    "parts_before_the_whole": lambda: [*reversed(views_of_one_memory().values())],
    "tuple": lambda: {"span": (1, 2), "nested": [((), "a")]},
    "set": lambda: {"stop": {"a", "b"}, "frozen": frozenset({1})},
    "int64_tensor": lambda: {"token_ids": torch.tensor([2**53 + 1, -1])},
    "bfloat16_tensor": lambda: {"logprobs": torch.tensor([0.1, -0.0], dtype=torch.bfloat16)},
    "numpy_scalar": lambda: {"reward": np.float32(0.1), "count": np.int64(2**53 + 1)},
    "arrays_of_other_layouts": lambda: {
        "columns_first": np.asfortranarray(np.arange(6, dtype=np.int64).reshape(2, 3)),
        "reversed": np.arange(5, dtype=np.float32)[::-1],
        "every_second": np.arange(8)[::2],
        "transposed": torch.arange(6).reshape(2, 3).T,
    },
    "no_dimensions_or_no_elements": lambda: {
        "reward": np.array(0.5),
        "count": torch.tensor(3),
        "boxes": np.zeros((0, 4), np.float32),
        "mask": torch.zeros(2, 0, dtype=torch.bool),
    },
    "bytes": lambda: {"image": b"\x00\xff"},
    # of the standard library: every process can import it
    "subclass_of_str": lambda: [HTTPMethod.POST],
    "nan": lambda: {"advantage": float("nan"), "minus": -0.0},
    "nan_in_a_list": lambda: {"logprobs": [0.5, float("nan"), float("-inf"), -0.0]},
}


#: Columns of one type each, for which a plane may have another form.
OTHER_ALIKE: dict[str, list[Any]] = {
    "bytes_that_end_in_zero": [b"a\x00", b"\x00", b"ab\x00\x00"],
    "numpy_scalars": [np.float32(0.1), np.float32(2), np.float32(-0.0)],
    "numpy_integers": [np.int64(2**53 + 1), np.int64(0), np.int64(-1)],
    "arrays": [np.arange(2), np.arange(2, 4), np.arange(4, 6)],
    "arrays_of_numbers": [np.zeros(2, np.float32), np.ones(2, np.int8), np.ones(2, np.bool_)],
    "tuples": [(1, 2), (3, 4), (5, 6)],
    "tuples_beside_lists": [(1, 2), [1, 2], (1.0, 2)],
    "sets": [{1, 2}, {3}, set()],
    "floats": [0.0, -0.0, float("nan")],
    "huge_numbers": [2**64, -(2**70), 2**63],
}


@requirement("PUT-28")
@pytest.mark.parametrize("values", OTHER_ALIKE.values(), ids=OTHER_ALIKE)
def test_a_column_of_one_other_type_is_exact_or_refused(
    part: PartitionUnderTest, values: list[Any]
) -> None:
    if put_other_types_or_leave_nothing(part, IDS, log=object_array(values)):
        expect_objects(part.get(IDS, "log"), "log", values)
        expect_objects(part.get(IDS[::-1], "log"), "log", values[::-1])


@requirement("PUT-28")
@pytest.mark.parametrize("make", OTHER_OBJECTS.values(), ids=OTHER_OBJECTS)
def test_an_object_with_other_types_is_exact_or_refused(
    part: PartitionUnderTest, make: Callable[[], Any]
) -> None:
    values = [make(), "text", make()]
    columns = {"x": torch.arange(3), "log": object_array(values)}
    if put_other_types_or_leave_nothing(part, IDS, **columns):
        expect_objects(part.get(IDS, "x", "log"), "log", values)
        part.expect_rows(IDS, x=list(torch.arange(3)))
