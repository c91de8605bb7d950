"""PUT-21: objects of a column whose values a registration lists in ``enums``.

Planes may store such an object as its place in the list, which later registrations change.
"""

from __future__ import annotations

import pytest

from rlconform.certify.assertions.expect import expect_objects, is_rejected, leaning_on
from rlconform.certify.plugin.markers import requirement
from rlconform.certify.scenarios.partition import PartitionUnderTest
from rlconform.certify.scenarios.refusable_objects import put_or_leave_nothing
from rlconform.contract import Target
from rlconform.wire import object_array

#: Values of two columns: some are values of both, at other places; some differ only in case.
ENUMS = {"source": ["math", "code", "judge", "Math"], "env": ["code", "math", "none"]}
IDS = [f"r{n}" for n in range(4)]


@requirement("PUT-21")
def test_an_object_of_two_enums_comes_back_in_each(
    part: PartitionUnderTest, target: Target
) -> None:
    part.register(fields=[*ENUMS], enums=ENUMS)
    columns = {"source": ENUMS["source"], "env": ["none", "math", "code", "math"]}
    rows = {name: object_array([*values]) for name, values in columns.items()}
    if put_or_leave_nothing(part, target, IDS, **rows):
        batch = part.get(IDS[::-1], *columns)
        for name, values in columns.items():
            expect_objects(batch, name, values[::-1])


@requirement("PUT-21")
@pytest.mark.parametrize("lives", [True, False], ids=["rows_live", "rows_cleared"])
def test_objects_of_an_enum_that_is_registered_again_in_another_order_come_back(
    part: PartitionUnderTest, target: Target, lives: bool
) -> None:
    part.register(fields=["source"], enums=ENUMS)
    put = dict(zip(IDS, ENUMS["source"], strict=True))
    if not put_or_leave_nothing(part, target, IDS, source=object_array([*put.values()])):
        return
    if not lives:
        part.clear(IDS)
        put = {}
    values = ["refused", *ENUMS["source"][::-1]]
    part.register(fields=["source"], enums={"source": values})
    if lives and is_rejected(lambda: part.get(IDS, "source")):
        put = {}  # REG-08 judges that they are gone
    new = {f"new{n}": value for n, value in enumerate(values)}
    part.put([*new], source=object_array(values))
    put |= new
    expect_objects(part.get([*put], "source"), "source", [*put.values()])


@requirement("PUT-21")
@pytest.mark.parametrize("value", ["tool", "MATH", "", "0", "-1", 0, None, True, ["math"]])
def test_an_object_that_the_enum_lacks_comes_back_or_is_refused(
    part: PartitionUnderTest, value: object
) -> None:
    """A plane may hold callers to the values that they named."""
    part.register(fields=["source"], enums=ENUMS)
    values = ["math", value, "code", "judge"]
    if is_rejected(lambda: part.put(IDS, source=object_array(values))):
        with leaning_on("PUT-16"):
            part.expect_absent(IDS, "source")
        return
    expect_objects(part.get(IDS, "source"), "source", values)
