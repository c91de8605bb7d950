"""TAG-01, TAG-03: tags of tasks that are added later, of odd texts, and of very many puts."""

from __future__ import annotations

import pytest

from rlconform.certify.assertions.expect import expect, expect_equal, is_rejected
from rlconform.certify.plugin.markers import requirement
from rlconform.certify.recording.shorten import shorten
from rlconform.certify.scenarios.normalize_metas import tags_by_id
from rlconform.certify.scenarios.odd_texts import ODD_TEXTS
from rlconform.certify.scenarios.partition import TASKS, PartitionUnderTest

IDS = ["u0_g0", "u0_g1", "u1_g0"]


@requirement("TAG-01", leans_on=("REG-08", "CLAIM-02"))
@pytest.mark.parametrize("stamped", ["before", "after"])
def test_a_task_that_is_added_later_gets_the_tags_that_the_others_get(
    part: PartitionUnderTest, stamped: str
) -> None:
    """Planes that queue rows for each task with their tags have no tags for a new task."""
    tags = {i: {"weight_version": 1, "row": n} for n, i in enumerate(IDS)}
    part.put_labeled(IDS, tags=list(tags.values()))
    tags[IDS[1]] = {"weight_version": 2, "row": 9}
    if stamped == "before":
        part.put(IDS[1:2], [tags[IDS[1]]])
    part.register(tasks=[*TASKS, "ref_lp"])
    if is_rejected(lambda: part.expect_labeled(IDS)):
        return  # the registration dropped the rows, which REG-08 judges
    if stamped == "after":
        part.put(IDS[1:2], [tags[IDS[1]]])
    for task in (*TASKS, "ref_lp"):
        expect_equal(tags_by_id(part.claim(task)), tags, f"tags for the task {task!r}")


#: Texts beyond the length of a page that differ in their last character.
TEXTS = [*ODD_TEXTS, "é" * 10_000, "é" * 9_999 + "e"]


@requirement("TAG-01")
@pytest.mark.parametrize("as_key", [False, True], ids=["values", "keys"])
def test_odd_texts_in_tags_come_back(part: PartitionUnderTest, as_key: bool) -> None:
    ids = [f"r{n}" for n in range(len(TEXTS))]
    tags = {
        i: {text or "-": i} if as_key else {"text": text}
        for i, text in zip(ids, TEXTS, strict=True)
    }
    part.put_labeled(ids, tags=list(tags.values()))
    got = tags_by_id(part.claim("train"))
    for sample_id in ids:
        expected = f"{sample_id} to carry {shorten(repr(tags[sample_id]))}"
        right = got.get(sample_id) == tags[sample_id]
        expect(right, expected, shorten(repr(got.get(sample_id))))


@requirement("TAG-03")
def test_tags_of_very_many_puts_are_merged(part: PartitionUnderTest) -> None:
    part.put_labeled(IDS)
    keys = [f"tag_{n}" for n in range(40)]
    for n, key in enumerate(keys):
        part.put(IDS, [{key: n + row} for row, _ in enumerate(IDS)])
    merged = {i: {key: n + row for n, key in enumerate(keys)} for row, i in enumerate(IDS)}
    got = tags_by_id(part.claim("train"))
    for sample_id in IDS:
        lost = sorted(set(keys) - set(got.get(sample_id, {})))
        expect(not lost, f"tags of {len(keys)} puts on {sample_id}", f"none of {lost}")
    expect_equal(got, merged, "merged tags")


#: Numbers that lose digits where they pass through text of 14 to 16 digits, or through float64.
LONG_NUMBERS = [0.1 + 0.2, 1 / 3, 1e22 / 7, 5e-324, 1.7976931348623157e308, 2**53 + 1, -(2**62) - 1]


@requirement("TAG-01")
def test_long_numbers_in_tags_come_back_after_another_stamp(part: PartitionUnderTest) -> None:
    ids = [f"r{n}" for n in range(len(LONG_NUMBERS))]
    part.put_labeled(ids, tags=[{"first": number} for number in LONG_NUMBERS])
    part.put(ids, [{"second": number} for number in LONG_NUMBERS[::-1]])
    part.put(ids[:2], [{"third": 1}] * 2)
    got = tags_by_id(part.claim("train"))
    for place, sample_id in enumerate(ids):
        due = {"first": LONG_NUMBERS[place], "second": LONG_NUMBERS[::-1][place]}
        due |= {"third": 1} if place < 2 else {}
        expect_equal(got.get(sample_id), due, f"tags of {sample_id} after another stamp")


@requirement("TAG-01", leans_on=("PUT-11",))
@pytest.mark.parametrize("with_fields", [True, False], ids=["write_back", "stamp"])
def test_tags_over_rows_of_several_puts_are_those_of_their_rows(
    part: PartitionUnderTest, with_fields: bool
) -> None:
    """Planes that cut a put by the puts that its rows came from must cut its tags alike."""
    ids = [f"r{n}" for n in range(12)]
    for first in range(3):
        part.put_labeled(ids[first::3])
    mixed = [*ids[::2], *ids[:0:-2]]
    tags = {i: {"of": i} for i in mixed}
    if with_fields:
        part.put_labeled(mixed, "y", tags=list(tags.values()))
    else:
        part.put(mixed, list(tags.values()))
    expect_equal(tags_by_id(part.claim("train")), tags, "tags of rows of three puts")
