"""PUT-27: stored objects share nothing with those of callers, and rows nothing with each other."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import numpy as np
import pytest
import torch

from rlconform.certify.assertions.expect import (
    ContractViolation,
    expect,
    expect_equal,
    expect_objects,
    same_object,
)
from rlconform.certify.plugin.markers import requirement
from rlconform.certify.scenarios.partition import (
    PartitionUnderTest,
)
from rlconform.certify.scenarios.refusable_objects import (
    put_or_leave_nothing,
    put_other_types_or_leave_nothing,
)
from rlconform.contract import KVBatchMeta, Target
from rlconform.wire import object_array, object_rows

IDS = ["u0_g0", "u0_g1", "u1_g0"]


@pytest.fixture
def part(new_partition: Callable[..., PartitionUnderTest]) -> PartitionUnderTest:
    """Return a partition with a tensor column and an object column."""
    return new_partition(fields=["x", "log"])


def message_logs() -> list[Any]:
    return [[{"role": "user", "content": f"{i}", "turns": [n]}] for n, i in enumerate(IDS)]


def grow(log: Any) -> None:
    """Change a message log at every depth, as an environment does."""
    log[0]["content"] = "changed"
    log[0]["turns"].append(None)
    log.append({"role": "assistant"})


@requirement("PUT-27", changes_results=True)
def test_changing_the_callers_objects_changes_nothing_stored(
    part: PartitionUnderTest, target: Target
) -> None:
    logs = message_logs()
    if put_or_leave_nothing(part, target, IDS, log=object_array(logs)):
        for log in logs:
            grow(log)
        expect_objects(part.get(IDS, "log"), "log", message_logs())


@requirement("PUT-27", changes_results=True, leans_on=("PUT-13", "PUT-21"))
@pytest.mark.parametrize("characters", [1, 20_000], ids=["short", "long"])
def test_a_log_that_was_extended_is_put_again(
    part: PartitionUnderTest, target: Target, characters: int
) -> None:
    """Planes that remember the encoding of an object by its identity store it as it was."""
    logs = [[{"content": i * characters, "turns": [i]}] for i in IDS]
    for turn in range(3):
        if not put_or_leave_nothing(part, target, IDS, log=object_array(logs)):
            return
        expect_objects(part.get(IDS, "log"), "log", deepcopy(logs))
        for log in logs:
            log[0]["turns"].append(turn)
            log.append({"content": "another", "turns": []})


@requirement("PUT-27", changes_results=True)
@pytest.mark.parametrize("read", ["get_samples", "get_data"])
@pytest.mark.parametrize("asked", [IDS[:1], IDS, IDS[1:]], ids=["one_row", "all", "part"])
def test_changing_objects_that_were_read_changes_nothing_stored(
    part: PartitionUnderTest, target: Target, asked: list[str], read: str
) -> None:
    if not put_or_leave_nothing(part, target, IDS, log=object_array(message_logs())):
        return
    expected = [message_logs()[IDS.index(i)] for i in asked]
    meta = KVBatchMeta(part.id, None, asked, fields=["log"])
    batch = part.get_data(meta) if read == "get_data" else part.get(asked, "log")
    expect_objects(batch, "log", expected)
    for log in object_rows(batch.get("log"), len(asked)):
        grow(log)
    expect_objects(part.get(asked, "log"), "log", expected)
    expect_objects(part.get(IDS, "log"), "log", message_logs())


@requirement("PUT-27", changes_results=True)
@pytest.mark.parametrize("read", ["get_samples", "get_data"])
def test_a_row_that_a_read_names_twice_has_an_object_in_each_place(
    part: PartitionUnderTest, target: Target, read: str
) -> None:
    """A batch that is filled up with its first row is changed row by row later."""
    if not put_or_leave_nothing(part, target, IDS, log=object_array(message_logs())):
        return
    asked = [*IDS, IDS[0], IDS[0]]
    meta = KVBatchMeta(part.id, None, asked, fields=["log"])
    batch = part.get_data(meta) if read == "get_data" else part.get(asked, "log")
    expected = [message_logs()[IDS.index(i)] for i in asked]
    expect_objects(batch, "log", expected)
    first, *others = object_rows(batch.get("log"), len(asked))
    grow(first)
    for index, (other, due) in enumerate(zip(others, expected[1:], strict=True), 1):
        expect_equal(other, due, f"place {index} after the object in place 0 changed:")


@requirement("PUT-27", changes_results=True)
def test_changing_a_long_log_that_was_read_changes_nothing_stored(
    part: PartitionUnderTest, target: Target
) -> None:
    def long_logs() -> list[Any]:
        return [[{"content": f"{i} " + "t" * 50_000, "turns": []}] for i in IDS]

    if put_or_leave_nothing(part, target, IDS, log=object_array(long_logs())):
        for _ in range(3):
            batch = part.get(IDS, "log")
            expect_objects(batch, "log", long_logs())
            for log in object_rows(batch.get("log"), len(IDS)):
                grow(log)


@requirement("PUT-27", changes_results=True)
@pytest.mark.parametrize("puts", [1, 3], ids=["at_once", "row_by_row"])
def test_one_object_put_for_several_rows_becomes_an_object_of_each(
    part: PartitionUnderTest, target: Target, puts: int
) -> None:
    log, size = [{"role": "user", "turns": []}], len(IDS) // puts
    for start in range(0, len(IDS), size):
        ids = IDS[start : start + size]
        if not put_or_leave_nothing(part, target, ids, log=object_array([log] * size)):
            return
    batch = part.get(IDS, "log")
    first, *others = object_rows(batch.get("log"), len(IDS))
    first[0]["turns"].append(1)
    for index, other in enumerate(others, 1):
        expect_equal(other, [{"role": "user", "turns": []}], f"row {index} after row 0 changed:")


#: Makers of a value of some KiB that is in the objects of several rows.
LARGE_VALUES: dict[str, Callable[[], Any]] = {
    "list": lambda: [0] * 4096,
    "array": lambda: np.zeros(4096),
    "tensor": lambda: torch.zeros(4096),
}


@requirement("PUT-27", changes_results=True, leans_on=("PUT-28",))
@pytest.mark.parametrize("make", LARGE_VALUES.values(), ids=LARGE_VALUES)
def test_equal_large_values_in_objects_are_each_rows_own(
    part: PartitionUnderTest, make: Callable[[], Any]
) -> None:
    """Planes that send equal values once often give all rows of a read the same one."""

    def logs() -> list[Any]:
        return [[{"role": "user", "image": make()}] for _ in IDS]

    if not put_other_types_or_leave_nothing(part, IDS, log=object_array(logs())):
        return
    first, *others = object_rows(part.get(IDS, "log").get("log"), len(IDS))
    try:
        first[0]["image"][0] = 7
    except (ValueError, RuntimeError) as error:
        raise ContractViolation("an object that is its reader's own", str(error)) from error
    for index, (other, due) in enumerate(zip(others, logs()[1:], strict=True), 1):
        expect(same_object(other, due), f"row {index} as before a change of row 0", repr(other))
    expect_objects(part.get(IDS, "log"), "log", logs())
