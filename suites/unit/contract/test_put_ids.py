"""PUT-20: a plane treats sample ids as opaque names."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from rlconform.certify.assertions.expect import expect_equal
from rlconform.certify.plugin.markers import requirement
from rlconform.certify.scenarios.normalize_metas import tags_by_id
from rlconform.certify.scenarios.odd_ids import COLLISIONS, NUMBERS, ODD_IDS
from rlconform.certify.scenarios.odd_texts import ODD_TEXTS
from rlconform.certify.scenarios.partition import PartitionUnderTest, expect_ids

SEPARATORS = ["/", ":", "@", "_", " ", "-", "|", "."]


@requirement("PUT-20")
def test_odd_ids_stay_distinct(part: PartitionUnderTest) -> None:
    part.put_labeled(ODD_IDS)
    part.expect_labeled(ODD_IDS[::-1])
    for sample_id in ODD_IDS:
        part.expect_labeled([sample_id])
    expect_ids(part.claim("train"), ODD_IDS, "ids handed to a task")


@requirement("PUT-20")
def test_ids_with_texts_that_formats_rewrite_stay_distinct(part: PartitionUnderTest) -> None:
    ids = [*filter(None, ODD_TEXTS), *(f"a{text}a" for text in ODD_TEXTS)]  # none is empty
    tags = {one: {"row": n} for n, one in enumerate(ids)}
    part.put_labeled(ids, tags=list(tags.values()))
    part.expect_labeled(ids[::-1])
    part.clear(ids[::2])
    part.expect_absent(ids[::2])
    part.expect_labeled(ids[1::2])
    left = {one: tags[one] for one in ids[1::2]}
    expect_equal(tags_by_id(part.claim("train")), left, "rows left, with their tags")


@requirement("PUT-20")
def test_ids_that_are_equal_as_numbers_stay_distinct(part: PartitionUnderTest) -> None:
    part.put_labeled(NUMBERS)
    part.expect_labeled(NUMBERS[::-1])
    part.clear(NUMBERS[::2])
    part.expect_absent(NUMBERS[::2])
    part.expect_labeled(NUMBERS[1::2])


@requirement("PUT-20")
@pytest.mark.parametrize("pair", COLLISIONS.values(), ids=COLLISIONS)
def test_ids_of_one_hash_stay_distinct(part: PartitionUnderTest, pair: tuple[str, str]) -> None:
    for sample_id in pair:
        part.put_labeled([sample_id], tags=[{"id": sample_id}])
    part.expect_labeled(pair)
    part.clear(pair[:1])
    part.expect_absent(pair[:1])
    part.expect_labeled(pair[1:])
    expect_equal(tags_by_id(part.claim("train")), {pair[1]: {"id": pair[1]}}, "rows left")


@requirement("PUT-20")
@pytest.mark.parametrize("pair", [*COLLISIONS.values(), ("x", "X"), ("f1", "f01")], ids="-".join)
def test_fields_of_alike_names_stay_distinct(
    new_partition: Callable[..., PartitionUnderTest], pair: tuple[str, str]
) -> None:
    part = new_partition(fields=list(pair))
    part.put_labeled(["a"], *pair)
    part.expect_labeled(["a"], *pair)
    part.put_labeled(["b"], pair[0])
    expect_ids(part.claim("train", [pair[1]]), ["a"], f"rows that have {pair[1]!r}")


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
