"""PUT-20: a plane treats sample ids as opaque names."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from rlconform.certify.plugin.markers import requirement
from rlconform.certify.scenarios.partition import PartitionUnderTest, expect_ids

SEPARATORS = ["/", ":", "@", "_", " ", "-", "|", "."]

ODD_IDS = [
    "a", "a ", " a", "A", "ä", "a\u0308", "样本_g0", "🙂", "a/b", "a//b", "a:b", "a@b", "a_b",
    "a b",
    "a%2Fb", "../a", "*", "None", "0", "00", "{}", "x", "train", "a\nb", "a\tb", '"', "'", "\\",
    "k" * 1024, "k" * 1023 + "l",
    "plumless", "buckeroo",  # two ids with the same CRC-32
]  # fmt: skip


@requirement("PUT-20")
def test_odd_ids_stay_distinct(part: PartitionUnderTest) -> None:
    part.put_labeled(ODD_IDS)
    part.expect_labeled(ODD_IDS[::-1])
    for sample_id in ODD_IDS:
        part.expect_labeled([sample_id])
    expect_ids(part.claim("train"), ODD_IDS, "ids handed to a task")


@requirement("PUT-20")
@pytest.mark.parametrize("separator", SEPARATORS)
def test_ids_and_fields_that_join_alike_do_not_collide(
    part: PartitionUnderTest, separator: str
) -> None:
    long_id, long_field = f"a{separator}x", f"x{separator}x"
    part.put_labeled([long_id], "x")  # joined: a<sep>x<sep>x
    try:
        part.put_labeled(["a"], long_field)  # joined: the same
    except (ValueError, TypeError):
        return  # only ids are opaque: a plane may refuse such a field name
    part.expect_labeled([long_id], "x")
    part.expect_labeled(["a"], long_field)


@requirement("PUT-20")
@pytest.mark.parametrize("separator", SEPARATORS)
def test_ids_and_partitions_that_join_alike_do_not_collide(
    new_partition: Callable[..., PartitionUnderTest], separator: str
) -> None:
    short = new_partition()
    try:
        long = new_partition(exact=f"{short.id}{separator}q")
    except (ValueError, TypeError):
        return  # only ids are opaque: a plane may refuse such a partition name
    short.put_labeled([f"q{separator}a"])
    long.put_labeled(["a"])
    short.expect_labeled([f"q{separator}a"])
    long.expect_labeled(["a"])
    short.clear([f"q{separator}a"])
    long.expect_labeled(["a"])
