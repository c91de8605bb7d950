"""TAG-01: tags whose values a registration lists in ``enums`` come back as they were put.

Planes store such a tag as the place of its value in a list, which other tags and registrations
have in another order.
"""

from __future__ import annotations

import pytest

from rlconform.certify.assertions.expect import expect_equal, is_rejected, leaning_on
from rlconform.certify.plugin.markers import requirement
from rlconform.certify.scenarios.normalize_metas import tags_by_id
from rlconform.certify.scenarios.partition import PartitionUnderTest

IDS = ["u0_g0", "u0_g1", "u1_g0"]

#: Values of two tags: some are values of both, at other places; some differ only in case.
ENUMS = {"finish_reason": ["stop", "abort", "length", "Stop"], "verdict": ["abort", "stop", "none"]}

#: The tags of each row: each value of each tag is that of some row.
TAGS = [
    {"finish_reason": reason, "verdict": verdict}
    for reason in ENUMS["finish_reason"]
    for verdict in ENUMS["verdict"]
]


@requirement("TAG-01")
def test_a_value_of_two_enums_comes_back_in_each(part: PartitionUnderTest) -> None:
    part.register(enums=ENUMS)
    ids = [f"r{n}" for n, _ in enumerate(TAGS)]
    part.put_labeled(ids, tags=TAGS)
    got = tags_by_id(part.claim("train"))
    expect_equal(got, dict(zip(ids, TAGS, strict=True)), "tags whose values are those of two enums")


#: Values of a second registration.
CHANGED = {
    "reversed": ENUMS["verdict"][::-1],
    "one_more_first": ["refused", *ENUMS["verdict"]],
}


@requirement("TAG-01", leans_on=("REG-08",))
@pytest.mark.parametrize("values", CHANGED.values(), ids=CHANGED)
@pytest.mark.parametrize("lives", [True, False], ids=["rows_live", "rows_cleared"])
def test_values_of_an_enum_that_is_registered_again_in_another_order_come_back(
    part: PartitionUnderTest, values: list[str], lives: bool
) -> None:
    part.register(enums=ENUMS)
    old = {i: {"verdict": v} for i, v in zip(IDS, ENUMS["verdict"], strict=True)}
    part.put_labeled(IDS, tags=list(old.values()))
    if not lives:
        expect_equal(tags_by_id(part.claim("train")), old, "tags of the first registration")
        part.clear(IDS)
        old = {}
    part.register(enums=ENUMS | {"verdict": values})
    if lives and is_rejected(lambda: part.get(IDS, "x")):
        old = {}  # REG-08 judges that they are gone
    new = {f"new{n}": {"verdict": value} for n, value in enumerate(values)}
    part.put_labeled(list(new), tags=list(new.values()))
    got = tags_by_id(part.claim("train", batch_size=len(old | new)))
    expect_equal(got, old | new, "tags after the enum was registered in another order")


@requirement("TAG-01")
@pytest.mark.parametrize("value", ["tool_error", "ABORT", "", "0", "-1", 0, None, True])
def test_a_value_that_the_enum_lacks_comes_back_or_is_refused(
    part: PartitionUnderTest, value: object
) -> None:
    """A plane may hold callers to the values that they named."""
    part.register(enums=ENUMS)
    tags = [{"finish_reason": each} for each in ("stop", value, "abort")]
    if is_rejected(lambda: part.put_labeled(IDS, tags=tags)):
        with leaning_on("PUT-16"):
            part.expect_absent(IDS)
        return
    got = tags_by_id(part.claim("train"))
    shown = {one: {name: repr(each) for name, each in row.items()} for one, row in got.items()}
    due = {one: {"finish_reason": repr(row["finish_reason"])}
           for one, row in zip(IDS, tags, strict=True)}  # fmt: skip
    expect_equal(shown, due, "tags, one of them with a value that the enum lacks")
