"""PUT across processes: objects of one row or one read that several processes put."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import numpy as np
import pytest
import torch

from rlconform.certify.assertions.expect import (
    expect_equal,
    expect_objects,
    is_rejected,
    leaning_on,
)
from rlconform.certify.plugin.markers import requirement
from rlconform.certify.scenarios.partition import PartitionUnderTest
from rlconform.certify.scenarios.refusable_objects import (
    put_or_leave_nothing,
    put_other_types_or_leave_nothing,
)
from rlconform.certify.scenarios.two_processes import Actors, each_pair, looker_and_changer
from rlconform.contract import DataPlaneClient, Target
from rlconform.wire import object_array, object_rows


@pytest.fixture
def part(new_partition: Any) -> PartitionUnderTest:
    """Return a partition with an object column."""
    made: PartitionUnderTest = new_partition(fields=["log"])
    return made


#: Values of one process and of another, equal for ``==`` and of other types, or texts that differ
#: by little.
ALIKE: list[tuple[Any, Any]] = [
    (1, True), (1.0, 1), (False, 0), (-0.0, 0.0), ("1", 1), ("é", "e\u0301"), ([], {}), (None, ""),
    ({"n": 1}, {"n": True}), ([0.0, 1], [0, 1.0]), ({"a": [True]}, {"a": [1.0]}),
]  # fmt: skip


@requirement("PUT-21")
@each_pair
def test_equal_objects_of_two_processes_keep_their_types(
    part: PartitionUnderTest, actors: Actors, pair: tuple[int, int], target: Target
) -> None:
    """Planes that join the dictionaries of two writers in a read may join them by ``==``."""
    first, second = looker_and_changer(part, actors, pair)
    put: dict[str, Any] = {}
    for n, (writer, values) in enumerate(
        zip((first, second), zip(*ALIKE, strict=True), strict=True)
    ):
        ids = [f"w{n}_{i}" for i in range(len(ALIKE))]
        if not put_or_leave_nothing(writer, target, ids, log=object_array(deepcopy(values))):
            return
        put.update(zip(ids, values, strict=True))
    by_turns = [f"w{n}_{i}" for i in range(len(ALIKE)) for n in range(2)]
    for ids in ([*put], [*put][::-1], by_turns, by_turns[::-1]):
        for view in (first, second):
            expect_objects(view.get(ids, "log"), "log", [put[i] for i in ids])


#: Objects with values of other types, which a plane may refuse.
OTHERS: list[Any] = [
    {"span": (1, 2)}, {1: "a", "1": "b"}, {"stop": {"a"}}, {"image": b"\x00\xff"},
    {"reward": np.float32(0.1)}, {"advantage": float("nan")}, {"tokens": torch.arange(3)},
    ["text", 1, 1.0, None, True],
]  # fmt: skip


@requirement("PUT-28")
@each_pair
def test_objects_stay_as_another_process_writes_to_their_rows(
    part: PartitionUnderTest, actors: Actors, pair: tuple[int, int]
) -> None:
    """Planes that move a row to the process that wrote it last write its objects again."""
    first, second = looker_and_changer(part, actors, pair)
    put: dict[str, Any] = {}
    for n, value in enumerate(OTHERS):
        columns = {"log": object_array([deepcopy(value)]), "x": torch.arange(1)}
        if put_other_types_or_leave_nothing(first, [f"r{n}"], **columns):
            put[f"r{n}"] = value
    ids = [*put]
    if not ids:
        return
    for number, columns in enumerate(
        ({"y": torch.arange(len(ids))}, {"x": -torch.arange(len(ids))})
    ):
        second.put(ids, [{"turn": number}] * len(ids), **columns)
        for view in (first, second):
            expect_objects(view.get(ids, "log"), "log", [*put.values()])


@requirement("PUT-27", changes_results=True)
def test_equal_objects_of_two_processes_are_two_objects(
    part: PartitionUnderTest, actors: Actors, target: Target
) -> None:
    """Planes that decode equal objects of a read once must not return one for rows of two."""
    ids, logs = ["u0_g0", "u0_g1", "v0_g0", "v0_g1"], [[{"role": "user", "turns": [1]}]] * 4
    for writer, own in zip(actors(2), (ids[:2], ids[2:]), strict=True):
        if not put_or_leave_nothing(
            part.via(writer), target, own, log=object_array(deepcopy(logs[:2]))
        ):
            return
    for view in (part, part.via(actors(1)[0])):
        batch = view.get(ids, "log")
        expect_objects(batch, "log", logs)
        got = object_rows(batch.get("log"), len(ids))
        got[0].append({"role": "a reader's own"})
        got[1][0]["turns"].append(2)
        expect_equal(got[2:], logs[2:], "rows of one process, as those of the other are changed")


#: Distinct values of a column, and a column's rows.
FEW, COLUMN = 3, 16


@pytest.mark.large
@requirement("PUT-21")
def test_columns_of_few_values_of_two_new_processes_are_read_together(
    part: PartitionUnderTest, new_actor: Callable[[], DataPlaneClient], target: Target
) -> None:
    """Planes that store such columns as numbers keep a dictionary, and each process counts its own.

    Two new processes make the same calls in turn, so whatever they count is equal in both.
    """
    writers = [part.via(new_actor()) for _ in range(2)]
    part.register(fields=["text", "log", "number"])
    put: dict[str, dict[str, Any]] = {"text": {}, "log": {}, "number": {}}
    for turn in range(3):
        for n, writer in enumerate(writers):
            ids = [f"t{turn}_w{n}_{i}" for i in range(COLUMN)]
            numbers = [100 * n + 10 * turn + i % FEW for i in range(COLUMN)]
            rows = {
                "text": [f"task_{number}" for number in numbers],
                "log": [{"env": number} for number in numbers],
                "number": numbers,
            }
            columns = {name: object_array(values) for name, values in rows.items()}
            if not put_or_leave_nothing(writer, target, ids, **columns):
                return
            for name, values in rows.items():
                put[name] |= dict(zip(ids, values, strict=True))
    ids = [*put["text"]]
    by_turns = sorted(ids, key=lambda one: one.rpartition("_")[2])
    for order in (ids, ids[::-1], by_turns):
        for view in (part, *writers):
            batch = view.get(order, *put)
            for name, values in put.items():
                expect_objects(batch, name, [values[i] for i in order])


@requirement("PUT-21", leans_on=("PUT-13",))
@each_pair
@pytest.mark.parametrize("texts", [False, True], ids=["logs", "texts"])
def test_a_log_is_extended_though_another_process_replaced_it(
    part: PartitionUnderTest, actors: Actors, pair: tuple[int, int], target: Target, texts: bool
) -> None:
    """A client that sends only what is new since its own last put extends the log of another."""
    first, second = looker_and_changer(part, actors, pair)

    def log(*turns: str) -> Any:
        said = [f"{turn} " * 20 for turn in turns]
        return "".join(said) if texts else [{"role": "user", "content": each} for each in said]

    turns = [
        (first, log("a")), (second, log("b", "c")), (first, log("a", "d")), (first, log("a", "d")),
        (second, log("b", "c", "e")), (first, log("a", "d", "f")), (second, log("b")),
        (first, log("a", "d", "f")), (second, log("a", "d", "f", "g")), (first, log("a", "d")),
    ]  # fmt: skip
    for writer, value in turns:
        if not put_or_leave_nothing(writer, target, ["u0_g0"], log=object_array([value])):
            return
        for view in (second, first):
            expect_objects(view.get(["u0_g0"], "log"), "log", [value])


#: Characters of a text that is stored by its hash, or apart from the others.
LONG = [300, 9000, 70_000]


@requirement("PUT-21")
@pytest.mark.parametrize("length", LONG)
@each_pair
def test_long_objects_of_two_processes_that_differ_by_little_stay_apart(
    part: PartitionUnderTest, actors: Actors, pair: tuple[int, int], target: Target, length: int
) -> None:
    """Planes that store equal values once may take values with equal ends for equal ones."""
    first, second = looker_and_changer(part, actors, pair)
    text = "a" * length
    changed = (length // 2, length // 3, length - 2)
    texts = [text, *(f"{text[:at]}b{text[at + 1 :]}" for at in changed)]
    logs = [[{"role": "user", "content": text}] for text in texts]
    ids = [f"r{n}" for n in range(len(logs))]
    for n, log in enumerate(logs):
        writer = (first, second)[n % 2]
        if not put_or_leave_nothing(writer, target, ids[n : n + 1], log=object_array([log])):
            return
    for view in (second, first):
        expect_objects(view.get(ids, "log"), "log", logs)
    second.clear(ids[:1])
    expect_objects(first.get(ids[1:], "log"), "log", logs[1:])


#: Texts with half of a character, as JSON that was cut holds them, which UTF-8 has no bytes for.
HALVES = ["sunny \ud83d", "\udc00", [{"role": "tool", "content": "\ud83d and more"}]]


@requirement("PUT-21")
@each_pair
def test_texts_with_half_a_character_reach_another_process_or_are_refused(
    part: PartitionUnderTest, actors: Actors, pair: tuple[int, int]
) -> None:
    """Planes that send texts as UTF-8 may replace what they can't send."""
    reader, writer = looker_and_changer(part, actors, pair)
    if is_rejected(lambda: writer.put(["r0", "r1", "r2"], log=object_array([*HALVES]))):
        with leaning_on("PUT-16"):
            reader.expect_absent(["r0", "r1", "r2"], "log")
        return
    for view in (reader, writer):
        expect_objects(view.get(["r0", "r1", "r2"], "log"), "log", HALVES)


#: The values of a column, as they are registered one after the other.
ENUMS = (["math", "code"], ["code", "math"], ["judge", "math", "code"])


@requirement("PUT-21")
@each_pair
def test_objects_of_an_enum_that_another_process_registers_anew_come_back(
    part: PartitionUnderTest, actors: Actors, pair: tuple[int, int], target: Target
) -> None:
    """A client that puts the places of values in the list that it saw first puts other values."""
    looker, changer = looker_and_changer(part, actors, pair)
    for values in ENUMS:
        changer.register(fields=["log"], enums={"log": values})
        put: dict[str, str] = {}
        for name, view in (("looker", looker), ("changer", changer)):
            new = {f"{name}_{value}": value for value in values}
            if not put_or_leave_nothing(view, target, list(new), log=object_array([*values])):
                return
            put |= new
        for view in (looker, changer):
            expect_objects(view.get([*put], "log"), "log", [*put.values()])
        changer.clear([*put])


@requirement("PUT-21", leans_on=("REG-03",))
@each_pair
def test_a_process_that_only_reads_has_the_objects_of_an_enum_that_another_changed(
    part: PartitionUnderTest, actors: Actors, pair: tuple[int, int], target: Target
) -> None:
    """Clients that remember the list read the places of values in the newest one by it."""
    reader, driver = looker_and_changer(part, actors, pair)
    for values in ENUMS:
        driver.register(fields=["log"], enums={"log": values})
        for value in values:
            if not put_or_leave_nothing(driver, target, [value], log=object_array([value])):
                return
            expect_objects(reader.get([value], "log"), "log", [value])
        driver.clear(values)


@requirement("PUT-21", leans_on=("CLEAR-01",))
@each_pair
@pytest.mark.parametrize(
    "characters", [10, *(pytest.param(n, marks=pytest.mark.large) for n in (30_000, 300_000))]
)
def test_an_object_that_a_process_has_read_and_put_stays_after_the_first_row(
    part: PartitionUnderTest,
    actors: Actors,
    pair: tuple[int, int],
    characters: int,
    target: Target,
) -> None:
    """Planes that store equal objects once must know of each row that still has one."""
    reader, writer = looker_and_changer(part, actors, pair)
    log = [{"role": "user", "content": "a" * characters}]
    if not put_or_leave_nothing(writer, target, ["first"], log=object_array([log])):
        return
    for turn in range(2):
        branch = f"branch{turn}"
        read = object_rows(reader.get(["first"], "log").get("log"), 1)
        reader.put([branch], log=object_array(deepcopy(read)))
        writer.clear(["first"])
        for view in (reader, writer):
            expect_objects(view.get([branch], "log"), "log", [log])
        writer.put(["first"], log=object_array([deepcopy(log)]))
        reader.clear([branch])
        for view in (reader, writer):
            expect_objects(view.get(["first"], "log"), "log", [log])
