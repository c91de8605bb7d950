"""PUT-21: texts within objects that a plane may decode, escape or strip."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from rlconform.certify.assertions.expect import expect_objects
from rlconform.certify.plugin.markers import requirement
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
