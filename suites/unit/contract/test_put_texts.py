"""PUT-20, PUT-21: texts that a plane may decode, escape or strip, as ids and within objects."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from rlconform.certify.assertions.expect import expect_equal, expect_objects
from rlconform.certify.plugin.markers import requirement
from rlconform.certify.scenarios.normalize_metas import tags_by_id
from rlconform.certify.scenarios.odd_texts import ODD_TEXTS
from rlconform.certify.scenarios.partition import PartitionUnderTest
from rlconform.certify.scenarios.refusable_objects import put_or_leave_nothing
from rlconform.contract import Target
from rlconform.wire import object_array

#: Where a text is in an object.
PLACES: dict[str, Callable[[str], Any]] = {
    "text": lambda text: text,
    "message": lambda text: [{"role": "user", "content": text}],
    "key": lambda text: {text: 1},
    "beside_numbers": lambda text: [text, 1, None, text],
}


@requirement("PUT-21")
@pytest.mark.parametrize("place", PLACES.values(), ids=PLACES)
def test_odd_texts_in_objects_come_back(
    new_partition: Callable[..., PartitionUnderTest], target: Target, place: Callable[[str], Any]
) -> None:
    part, ids = new_partition(fields=["log"]), [f"r{n}" for n in range(len(ODD_TEXTS))]
    values = [place(text) for text in ODD_TEXTS]
    if put_or_leave_nothing(part, target, ids, log=object_array(values)):
        expect_objects(part.get(ids, "log"), "log", values)


@requirement("PUT-20")
def test_odd_texts_are_the_ids_of_rows(part: PartitionUnderTest) -> None:
    ids = [f"a{text}a" for text in ODD_TEXTS]  # an id is not empty
    tags = {one: {"row": n} for n, one in enumerate(ids)}
    part.put_labeled(ids, tags=list(tags.values()))
    part.expect_labeled(ids[::-1])
    part.clear(ids[::2])
    part.expect_absent(ids[::2])
    part.expect_labeled(ids[1::2])
    left = {one: tags[one] for one in ids[1::2]}
    expect_equal(tags_by_id(part.claim("train")), left, "rows left, with their tags")
