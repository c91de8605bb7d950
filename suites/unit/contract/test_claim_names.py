"""CLAIM-03, CLAIM-01: tasks and fields whose names differ only in case, or behind a long beginning.

Planes that cut, fold or pad names take two for one. Only ids are opaque: a plane may refuse a name.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from rlconform.certify.assertions.expect import expect_equal
from rlconform.certify.plugin.markers import requirement
from rlconform.certify.scenarios.partition import PartitionUnderTest, expect_ids

IDS = ["u0_g0", "u0_g1", "u1_g0"]

#: Two names each; the long ones differ behind as many characters as a fixed field holds.
NAMES = {
    "case": ("eval_a", "eval_A"),
    **{f"behind_{n}": ("n" * n + "a", "n" * n + "b") for n in (15, 31, 63, 64, 127, 255, 1000)},
    "before_300": ("a" + "n" * 300, "b" + "n" * 300),
    "longer": ("n" * 300, "n" * 301),
    # the second is where the first would be, if names were paths
    **{f"path_{sign}": (f"a{sign}b", "a") for sign in "._/-:"},
}

pairs = pytest.mark.parametrize("names", NAMES.values(), ids=NAMES)


@requirement("CLAIM-03")
@pairs
def test_tasks_with_nearly_equal_names_share_no_claims(
    new_partition: Callable[..., PartitionUnderTest], names: tuple[str, str]
) -> None:
    try:
        part = new_partition(tasks=names)
    except (ValueError, TypeError):
        return
    part.put_labeled(IDS)
    first, second = names
    expect_ids(part.claim(first), IDS, "rows of one task")
    expect_equal(part.consumed(first), True, "status of the task that claimed all rows")
    expect_equal(part.consumed(second), False, "status of the task that claimed nothing")
    expect_ids(part.claim(second), IDS, "rows of the other task")


@requirement("CLAIM-01", leans_on=("PUT-11", "GET-05"))
@pairs
def test_fields_with_nearly_equal_names_are_produced_apart(
    new_partition: Callable[..., PartitionUnderTest], names: tuple[str, str]
) -> None:
    try:
        part = new_partition(fields=names)
        part.put_labeled(IDS, names[0])
    except (ValueError, TypeError):
        return
    first, second = names
    expect_ids(part.claim("train", [second], 3), [], "rows without the field")
    part.expect_absent(IDS, second)
    part.put_labeled(IDS[:1], second)
    expect_ids(part.claim("train", [second], 3), IDS[:1], "rows with the field")
    part.put_labeled(IDS[:1], second, version=1)
    part.expect_labeled(IDS, first)
    part.expect_labeled(IDS[:1], second, version=1)
