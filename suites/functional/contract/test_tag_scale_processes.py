"""TAG across processes: tags of many rows of two writers, and tags of rows to be claimed next."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from rlconform.certify.assertions.expect import expect, expect_equal, same_object
from rlconform.certify.plugin.markers import requirement
from rlconform.certify.scenarios.normalize_metas import tags_by_id
from rlconform.certify.scenarios.odd_texts import ODD_TEXTS
from rlconform.certify.scenarios.partition import PartitionUnderTest
from rlconform.certify.scenarios.two_processes import Actors, each_pair, looker_and_changer
from rlconform.certify.threads import run_concurrently

pytestmark = pytest.mark.large

#: Rows of each writer.
ROWS = 160


@requirement("TAG-01")
@pytest.mark.parametrize(
    "values", [(1, 1.0), (True, 1), (1, "1"), (False, None)], ids=lambda values: f"{values}"
)
def test_tags_of_many_rows_of_two_writers_keep_value_and_type(
    new_partition: Callable[..., PartitionUnderTest], actors: Actors, values: tuple[object, object]
) -> None:
    """Planes that number the values of a large claim must not take equal values for one."""
    part = new_partition(num_samples=2 * ROWS)
    views = [part.via(actor) for actor in actors(2)]
    tags = {}
    for view, value, group in zip(views, values, "uv", strict=True):
        new = {f"{group}_g{n}": {"kept": value, "n": n} for n in range(ROWS)}
        view.put_labeled(list(new), tags=list(new.values()))
        tags |= new
    for view, task in zip(views, ("train", "prev_lp"), strict=True):
        got = tags_by_id(view.claim(task, batch_size=2 * ROWS))
        wrong = {i: row for i, row in tags.items() if not same_object(got.get(i), row)}
        first = next(iter(wrong), "")
        expect(not wrong, f"the tags {wrong.get(first)} of {first!r}", repr(got.get(first)))


@requirement("TAG-01", leans_on=("GET-10",))
@each_pair
def test_a_consumer_that_claims_by_turns_gets_tags_that_another_process_stamped_since(
    part: PartitionUnderTest, actors: Actors, pair: tuple[int, int]
) -> None:
    """Planes that send the next rows ahead to a steady consumer send them with their old tags."""
    consumer, stamper = looker_and_changer(part, actors, pair)
    ids = [f"r{n}" for n in range(24)]
    stamper.put_labeled(ids, tags=[{"version": 0}] * len(ids))
    due = dict.fromkeys(ids, 0)
    for version in range(1, 6):
        got = {i: row["version"] for i, row in tags_by_id(consumer.claim(batch_size=4)).items()}
        expect_equal(got, {i: due.pop(i) for i in got}, f"versions before stamp {version}")
        stamper.put(list(due), [{"version": version}] * len(due))
        due = dict.fromkeys(due, version)


@requirement("TAG-06", leans_on=("TAG-01",))
@each_pair
def test_lengths_of_many_rows_that_another_process_stamped_since_are_the_newest(
    part: PartitionUnderTest, actors: Actors, pair: tuple[int, int]
) -> None:
    """Planes that keep the lengths of a large claim for the next task report the old ones."""
    consumer, stamper = looker_and_changer(part, actors, pair)
    ids = [f"r{n}" for n in range(48)]
    stamper.put_labeled(ids)
    for version, task in enumerate(("train", "prev_lp")):
        due = {i: 100 * version + n for n, i in enumerate(ids)}
        stamper.put(ids, [{"input_lengths": due[i]} for i in ids])
        meta = consumer.claim(task, batch_size=len(ids))
        got = dict(zip(meta.sample_ids, meta.sequence_lengths or [], strict=False))
        expect_equal(got, due, f"lengths of the claim for {task!r}")


#: Rows that two processes stamp at once, and how often they do.
STAMPED, STAMPS = 100, 8


@requirement("TAG-07")
def test_two_processes_stamp_many_rows_again_and_again_at_once(
    new_partition: Callable[..., PartitionUnderTest], actors: Actors
) -> None:
    """Planes that merge the tags of a large put before they lock the rows undo another's stamps.

    Stamps of equal size leave no trace by which such a plane could notice.
    """
    tasks = [f"task{n}" for n in range(STAMPS)]
    part, ids = new_partition(tasks=tasks), [f"r{n}" for n in range(STAMPED)]
    part.put_labeled(ids, tags=[{"std": 0, "reward": 0}] * STAMPED)
    views = dict(zip(("std", "reward"), map(part.via, actors(2)), strict=True))
    for n in part.rounds(STAMPS, 1 / 12):
        stamps = [partial(view.put, ids, [{key: n + 1}] * STAMPED) for key, view in views.items()]
        run_concurrently(stamps, part.timeouts.check, "writer")
        got = tags_by_id(part.claim(tasks[n], batch_size=STAMPED))
        due = {"std": n + 1, "reward": n + 1}
        lost = {i: got.get(i) for i in ids if got.get(i) != due}
        first = next(iter(lost), "")
        expect(not lost, f"the tags {due} on every row", f"{lost.get(first)} on {first!r}")


@requirement("TAG-01", leans_on=("TAG-02", "GET-10"))
@each_pair
def test_many_tags_that_are_stamped_again_replace_those_of_another_process(
    new_partition: Callable[..., PartitionUnderTest], actors: Actors, pair: tuple[int, int]
) -> None:
    """A client that does not send the same tags again keeps those of the other process."""
    part = new_partition(num_samples=2 * ROWS, tasks=["a", "b", "c", "d"])
    first, second = looker_and_changer(part, actors, pair)
    ids = [f"r{n}" for n in range(2 * ROWS)]
    part.put_labeled(ids)
    for task, (version, writer) in zip("abcd", 2 * [*enumerate((first, second))], strict=True):
        writer.put(ids, [{"version": version, "n": n} for n in range(2 * ROWS)])
        got = tags_by_id(first.claim(task, batch_size=2 * ROWS))
        due = {i: {"version": version, "n": n} for n, i in enumerate(ids)}
        expect(got == due, f"all rows with version {version}", f"{[*got.items()][:2]}")


#: Rows of a large put: more than the block of numbers that a process takes for its texts.
LARGE = 4608


@requirement("TAG-01")
@each_pair
def test_texts_of_small_puts_stay_as_another_process_brings_very_many(
    new_partition: Callable[..., PartitionUnderTest], actors: Actors, pair: tuple[int, int]
) -> None:
    """Planes that number texts in blocks must give no number of another process's block."""
    part = new_partition(num_samples=2 * LARGE)
    first, second = looker_and_changer(part, actors, pair)
    due = {}
    for name, writer, rows in (("a", first, 4), ("b", second, 4), ("c", first, LARGE)):
        tags = {f"{name}{n}": {"uid": f"the prompt {name}-{n:06}"} for n in range(rows)}
        writer.put_labeled(list(tags), tags=list(tags.values()))
        due |= tags
    for view, task in ((second, "train"), (first, "prev_lp")):
        got = tags_by_id(view.claim(task, batch_size=2 * LARGE))
        wrong = {i: row for i, row in due.items() if got.get(i) != row}
        first_wrong = next(iter(wrong), "")
        text = f"the tags {wrong.get(first_wrong)} of {first_wrong!r}"
        expect(not wrong, text, repr(got.get(first_wrong)))


@requirement("TAG-01", leans_on=("TAG-07",))
@pytest.mark.parametrize("as_key", [False, True], ids=["values", "keys"])
@each_pair
def test_odd_texts_that_another_process_stamps_come_back(
    new_partition: Callable[..., PartitionUnderTest],
    actors: Actors,
    pair: tuple[int, int],
    as_key: bool,
) -> None:
    """Planes that set a tag by its path in a stored document split its name."""
    part = new_partition(num_samples=len(ODD_TEXTS))
    writer, stamper = looker_and_changer(part, actors, pair)
    ids = [f"r{n}" for n in range(len(ODD_TEXTS))]
    stamps = [
        {text or "-": i} if as_key else {"text": text}
        for i, text in zip(ids, ODD_TEXTS, strict=True)
    ]
    tags = {i: {"text": i, **stamp} for i, stamp in zip(ids, stamps, strict=True)}
    writer.put_labeled(ids, tags=[{"text": i} for i in ids])
    stamper.put(ids, list(tags.values()))
    got = tags_by_id(writer.claim("train", batch_size=len(ids)))
    for sample_id, due in tags.items():
        expect_equal(got.get(sample_id), due, f"tags of {sample_id!r}, stamped by another process")


#: The values of a tag, as they are registered one after the other.
ENUMS = (["length", "stop"], ["abort", "length", "stop"], ["stop", "length", "abort"])


@requirement("TAG-01", leans_on=("REG-03",))
@each_pair
def test_a_process_that_only_claims_has_the_values_of_an_enum_that_another_changed(
    new_partition: Callable[..., PartitionUnderTest], actors: Actors, pair: tuple[int, int]
) -> None:
    """Clients that remember the list read the places of values in the newest one by it."""
    part = new_partition()
    consumer, driver = looker_and_changer(part, actors, pair)
    for values in ENUMS:
        driver.register(enums={"finish_reason": values})
        for value in values:
            driver.put_labeled([value], tags=[{"finish_reason": value}])
            got = tags_by_id(consumer.claim("train"))
            expect_equal(got, {value: {"finish_reason": value}}, f"tags with the enum {values}")
        driver.clear(values)
