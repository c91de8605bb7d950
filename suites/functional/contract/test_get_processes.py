"""GET across processes: each process reads what another process put."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from rlconform.certify.assertions.expect import (
    ContractViolation,
    expect_column,
    expect_equal,
    expect_lookup_error,
    expect_objects,
)
from rlconform.certify.plugin.markers import requirement
from rlconform.certify.scenarios.labeled_rows import labeled_rows
from rlconform.certify.scenarios.normalize_metas import tags_by_id
from rlconform.certify.scenarios.partition import PartitionUnderTest, expect_unreadable
from rlconform.certify.scenarios.two_processes import Actors, each_pair, looker_and_changer
from rlconform.contract import DataPlaneClient, Target
from rlconform.wire import stack_or_nest

IDS = ["u0_g0", "u0_g1", "u1_g0"]


@requirement("GET-10")
def test_a_finished_put_is_seen_in_every_process(part: PartitionUnderTest, actors: Actors) -> None:
    writer, reader = (part.via(actor) for actor in actors(2))
    for n in range(20):
        ids = [f"r{n}_{k}" for k in range(2)]
        for version in (0, 1):
            writer.put_labeled(ids, version=version)
            reader.expect_labeled(ids, version=version)
            part.expect_labeled(ids, version=version)
    writer.clear(ids)
    expect_unreadable(lambda: reader.get(ids[:1], "x"), ids[0], "x")


@pytest.mark.large
@requirement("GET-10", leans_on=("CLEAR-04", "LIFE-02"))
@pytest.mark.parametrize("reused", [True, False], ids=["same_ids", "other_ids"])
def test_the_only_put_of_each_worker_that_follows_another_is_seen(
    part: PartitionUnderTest, new_actor: Callable[[], DataPlaneClient], reused: bool
) -> None:
    """Planes that number workers and their calls may take a new worker's put for a retry."""
    for worker in range(3):
        ids = [f"r{n}" if reused else f"w{worker}_r{n}" for n in range(3)]
        view = part.via(new_actor())
        tags = [{"worker": worker}] * len(ids)
        view.put_labeled(ids, version=worker, tags=tags)
        for each in (part, view):
            each.expect_labeled(ids, version=worker)
        got = tags_by_id(view.claim("train", dp_rank=0))
        expect_equal(got, dict(zip(ids, tags, strict=True)), f"tags of worker {worker}'s rows")
        if reused:
            part.clear(ids)
        view.client.close()


@pytest.mark.large
@requirement("GET-10")
def test_rows_of_megabytes_pass_between_processes(part: PartitionUnderTest, actors: Actors) -> None:
    width = 2 << 20
    rows = labeled_rows(part.id, IDS[:2], "x", 0, width)
    first, second = (part.via(actor) for actor in actors(2))
    first.put(IDS[:2], x=torch.stack(rows))
    second.expect_rows(IDS[:2], x=rows)
    second.put(IDS[:1], x=rows[1].reshape(1, width))
    first.expect_rows(IDS[:2], x=[rows[1], rows[1]])


@requirement("GET-11")
def test_claimed_rows_are_read_by_another_process(part: PartitionUnderTest, actors: Actors) -> None:
    (actor,) = actors(1)
    part.put_labeled(IDS, "x", "y")
    meta = part.claim("train", ["x", "y"])
    batch = part.via(actor).get_data(meta)
    for field in ("x", "y"):
        expect_column(batch, field, labeled_rows(part.id, meta.sample_ids, field))


@pytest.mark.large
@requirement("GET-10")
@each_pair
def test_a_process_that_has_looked_sees_what_another_overwrites(
    part: PartitionUnderTest, actors: Actors, pair: tuple[int, int], target: Target
) -> None:
    """Planes that compare only lengths or ends with what a process has read return old rows."""
    looker, changer = looker_and_changer(part, actors, pair)
    objects = target.declares("objects")
    for version in range(3):
        # the lengths change places: their sum says nothing
        rows = [torch.arange((n + version) % 3 + 1) + 10 * version for n, _ in enumerate(IDS)]
        logs = [[{"content": f"{'a' * 500}{i} v{version}{'z' * 500}"}] for i in IDS]
        wide = torch.zeros(len(IDS), 5000)
        wide[:, 2500] = version
        changer.put_labeled(IDS, "x", version=version)
        changer.put(IDS, y=stack_or_nest(rows), z=wide)
        looker.expect_labeled(IDS, "x", version=version)
        looker.expect_labeled(IDS[:1], "x", version=version)
        looker.expect_rows(IDS, y=rows, z=list(wide))
        if objects:
            changer.put(IDS, log=logs)
            expect_objects(looker.get(IDS, "log"), "log", logs)
            expect_objects(looker.get(IDS[1:2], "log"), "log", logs[1:2])


#: Puts of other rows, and rows of each, by which a list of the newest changes forgets those before
#: and a queue of changes has no room for those after.
OTHER_PUTS, OTHER_ROWS = 300, 16


@pytest.mark.large
@requirement("GET-10", leans_on=("GET-06",))
@each_pair
@pytest.mark.parametrize("how", ["overwritten", "cleared"])
def test_an_idle_process_sees_what_another_did_around_very_many_puts(
    part: PartitionUnderTest, actors: Actors, pair: tuple[int, int], how: str
) -> None:
    """Planes that tell readers which rows have changed must say so where the list was too long."""
    looker, changer = looker_and_changer(part, actors, pair)
    early, late = IDS[:1], IDS[1:]
    changer.put_labeled(IDS)
    for ids in (early, late) * 2:
        looker.expect_labeled(ids)

    def change(ids: list[str]) -> None:
        if how == "overwritten":
            changer.put_labeled(ids, version=1)
        else:
            changer.clear(ids)

    change(early)
    cleared: list[str] = []
    for n in part.rounds(OTHER_PUTS):
        others = [f"other{n}_{row}" for row in range(OTHER_ROWS)]
        changer.put(others, y=torch.arange(OTHER_ROWS))
        cleared.extend(others)
    changer.clear(cleared)  # new rows may take no place in such a list
    change(late)
    for ids in (early, late):
        if how == "overwritten":
            looker.expect_labeled(ids, version=1)
        else:
            looker.expect_absent(ids)


@requirement("GET-01")
def test_rows_of_several_writers_are_read_in_the_order_asked(
    part: PartitionUnderTest, actors: Actors
) -> None:
    views = [part, *(part.via(actor) for actor in actors(2))]
    ids = [f"r{n}" for n in range(18)]
    for n, sample_id in enumerate(ids):  # each process writes every third row
        views[n % 3].put_labeled([sample_id], "x", "y")
    for view in views:
        for asked in (ids, ids[::-1], ids[::2] + ids[1::2], ids[5:7]):
            view.expect_labeled(asked, "x", "y")


@requirement("GET-11")
@each_pair
def test_a_meta_of_many_fields_reads_those_fields_in_another_process(
    new_partition: Callable[..., PartitionUnderTest], actors: Actors, pair: tuple[int, int]
) -> None:
    fields = [f"f{n}" for n in range(12)]
    part = new_partition(fields=fields)
    looker, changer = looker_and_changer(part, actors, pair)
    metas = []
    # Each process meets other fields in another order before it sees a meta of the other.
    for view, names in ((changer, fields[:10]), (looker, fields[:1:-1])):
        ids = [f"{names[0]}_{i}" for i in IDS]
        view.put_labeled(ids, *names)
        metas.append(view.claim("train", names))
        expect_equal(sorted(metas[-1].fields or []), sorted(names), "fields of the claim's meta")
    for meta in metas:
        for reader in (looker, changer):
            batch = reader.get_data(meta)
            for field in meta.fields or []:
                expect_column(batch, field, labeled_rows(part.id, meta.sample_ids, field))


@requirement("GET-02")
def test_an_id_of_several_writers_repeats_or_is_rejected(
    part: PartitionUnderTest, actors: Actors
) -> None:
    """Planes that gather the rows of each writer by id fill only one place of a repeated id."""
    views = [part, *(part.via(actor) for actor in actors(2))]
    for n, view in enumerate(views):
        view.put_labeled([f"r{n}", f"r{n + 3}"])
    for view in views:
        for asked in (["r0", "r1", "r2", "r0", "r5"], ["r2", "r1", "r2", "r1", "r0", "r1"]):
            try:
                batch = view.get(asked, "x")
            except ContractViolation:
                raise
            except Exception:  # noqa: BLE001 - a rejection of any type is right
                continue
            expect_column(batch, "x", labeled_rows(part.id, asked, "x"))


@requirement("GET-05")
@each_pair
def test_a_field_that_a_process_has_read_of_all_rows_is_missing_on_later_ones(
    part: PartitionUnderTest, actors: Actors, pair: tuple[int, int]
) -> None:
    """Planes that remember a column as complete must notice rows of another process."""
    looker, changer = looker_and_changer(part, actors, pair)
    changer.put_labeled(IDS, "x", "y")
    looker.expect_labeled(IDS, "x", "y")
    changer.put_labeled(["late0", "late1"], "x")
    for asked in (["late0"], [*IDS, "late1"]):
        what = "a field that another process's later rows lack"
        expect_lookup_error(lambda ids=asked: looker.get(ids, "y"), what)
    changer.put_labeled(["late0", "late1"], "y")
    looker.expect_labeled([*IDS, "late1", "late0"], "x", "y")


#: Reads of another process, more than a host has buffers for results.
OTHER_READS = 70


@pytest.mark.large
@requirement("GET-13")
@pytest.mark.parametrize("asked", [IDS[:1], IDS], ids=["one_row", "all"])
@pytest.mark.parametrize("elements", [8, 1 << 14, 1 << 18])
def test_another_process_changes_no_result(
    part: PartitionUnderTest, actors: Actors, elements: int, asked: list[str]
) -> None:
    """Planes that map the memory of large rows, or lend a host's buffers, must not write there."""
    (changer,) = (part.via(actor) for actor in actors(1))
    rows = torch.arange(len(IDS) * elements).reshape(len(IDS), elements)
    changer.put(IDS, x=rows)
    batch = part.get(asked, "x")
    changer.put(IDS, x=rows + 1)
    expect_column(batch, "x", list(rows[: len(asked)]))
    changer.clear(IDS)
    others = [f"next_{i}" for i in IDS]
    changer.put(others, x=rows + 2)
    expect_column(batch, "x", list(rows[: len(asked)]))
    for _ in part.rounds(OTHER_READS if elements <= 1 << 14 else OTHER_READS // 7):
        changer.get(others, "x")
    expect_column(batch, "x", list(rows[: len(asked)]))


#: Claims whose metas are kept until the last of them is made.
MANY_CLAIMS = 40


@pytest.mark.large
@requirement("GET-11")
@pytest.mark.parametrize("claims", ["owner", "attached"])
def test_the_metas_of_many_claims_are_read_by_another_process(
    part: PartitionUnderTest, actors: Actors, claims: str
) -> None:
    (attached,) = (part.via(actor) for actor in actors(1))
    claimer, reader = (part, attached) if claims == "owner" else (attached, part)
    part.put_labeled([f"r{n}" for n in range(MANY_CLAIMS)])
    metas = [claimer.claim("train", batch_size=1) for _ in range(MANY_CLAIMS)]
    for meta in metas:
        expect_column(reader.get_data(meta), "x", labeled_rows(part.id, meta.sample_ids, "x"))


@requirement("GET-10", leans_on=("GET-06", "PUT-13", "CLAIM-09"))
@each_pair
def test_a_process_reads_its_claim_as_another_has_changed_it_since(
    part: PartitionUnderTest, actors: Actors, pair: tuple[int, int]
) -> None:
    """A client that has learnt to fetch its claims ahead must notice what others change then."""
    reader, changer = looker_and_changer(part, actors, pair)
    for turn in range(8):
        ids = [f"t{turn}_{i}" for i in IDS]
        changer.put_labeled(ids, "x", "y", tags=[{"turn": turn}] * len(ids))
        meta = reader.claim("train", ["x", "y"], len(ids))
        expect_equal(sorted(meta.sample_ids), sorted(ids), "rows claimed")
        changed = turn in {4, 7}
        if changed:
            changer.put_labeled(ids, "x", version=1)
        asked = meta.sample_ids
        rows = {"x": labeled_rows(part.id, asked, "x", int(changed))}
        rows["y"] = labeled_rows(part.id, asked, "y", 0)
        if turn != 6:
            batch = reader.get_data(meta)
            for field, due in rows.items():
                expect_column(batch, field, due)
        else:
            changer.clear(ids)
            expect_unreadable(lambda: reader.get_data(meta), ids[0], "x")  # noqa: B023 - called now


@requirement("GET-02", leans_on=("GET-01", "GET-09"))
@each_pair
def test_reads_of_the_same_rows_repeat_them_as_each_process_asks(
    part: PartitionUnderTest, actors: Actors, pair: tuple[int, int]
) -> None:
    """Planes that answer the equal reads of several ranks together must know where they differ."""
    first, second = looker_and_changer(part, actors, pair)
    a, b, _ = IDS
    first.put_labeled(IDS)
    requests = [[a, b, a, b], [a, a, b, b], [a, b], [a, b, b], [a, b], IDS, [*IDS, a], IDS]
    for n, asked in enumerate([*requests, [a, b], *requests]):
        view = (first, second)[n % 2]
        if len({*asked}) == len(asked):
            view.expect_labeled(asked)
            continue
        try:
            batch = view.get(asked, "x")
        except ContractViolation:
            raise
        except Exception:  # noqa: BLE001 - a plane may reject repeated ids
            continue
        expect_column(batch, "x", labeled_rows(part.id, asked, "x", 0))
