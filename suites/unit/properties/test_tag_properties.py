"""TAG: a claim returns any tags with their row."""

from __future__ import annotations

from hypothesis import strategies as st

from rlconform.certify.assertions.expect import expect, same_object
from rlconform.certify.plugin.markers import requirement
from rlconform.certify.properties.runner import for_all
from rlconform.certify.properties.strategies import (
    tags,
)
from rlconform.certify.scenarios.normalize_metas import tags_by_id
from rlconform.certify.scenarios.partition import PartitionUnderTest
from rlconform.contract import Tags

IDS = ["r0", "r1", "r2"]


def put_tags(part: PartitionUnderTest, rows: list[Tags]) -> list[str]:
    """Put rows with these tags; return their ids."""
    ids = IDS[: len(rows)]
    part.put_labeled(ids, tags=rows)
    return ids


def expect_tags(part: PartitionUnderTest, expected: dict[str, Tags]) -> None:
    """Expect a claim to return these rows with these tags, of the same types."""
    got = tags_by_id(part.claim("train"))
    expect(got.keys() == expected.keys(), f"rows {sorted(expected)} with tags", sorted(got))
    for sample_id, row in expected.items():
        expect(same_object(got[sample_id], row), f"{sample_id} to carry {row!r}", got[sample_id])


@requirement("TAG-01")
@for_all(rows=st.lists(tags(), min_size=1, max_size=3))
def test_any_tags_are_claimed_with_their_row(part: PartitionUnderTest, rows: list[Tags]) -> None:
    ids = put_tags(part, rows)
    expect_tags(part, dict(zip(ids, rows, strict=True)))


@requirement("TAG-03")
@for_all(
    rows=st.lists(st.tuples(tags(), tags()), min_size=1, max_size=3), with_fields=st.booleans()
)
def test_any_tags_are_merged_key_by_key(
    part: PartitionUnderTest, rows: list[tuple[Tags, Tags]], with_fields: bool
) -> None:
    ids = put_tags(part, [old for old, _ in rows])
    new = [new for _, new in rows]
    if with_fields:
        part.put_labeled(ids, "y", tags=new)
    else:
        part.put(ids, new)
    expect_tags(part, {i: old | new for i, (old, new) in zip(ids, rows, strict=True)})
