"""LIFE across processes: clients attach late, close early and make malformed calls."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch

from rlconform.certify.assertions.expect import (
    ContractViolation,
    expect,
    expect_equal,
    expect_objects,
    expect_rejection,
)
from rlconform.certify.assertions.malformed import expect_harmless
from rlconform.certify.plugin.markers import requirement
from rlconform.certify.plugin.plane_session import PlaneSession
from rlconform.certify.recording.shorten import shorten
from rlconform.certify.scenarios.consumers import (
    expect_timeout,
    expect_waiting,
    expect_woken,
    start_blocking_claim,
)
from rlconform.certify.scenarios.normalize_metas import tags_by_id
from rlconform.certify.scenarios.partition import UNDECLARED, PartitionUnderTest, expect_ids
from rlconform.certify.scenarios.refusable_objects import put_unless_refused
from rlconform.certify.threads import BackgroundCall
from rlconform.contract import DataPlaneClient, Target
from rlconform.wire import object_array

Actors = Callable[[int], list[DataPlaneClient]]
IDS = ["u0_g0", "u0_g1", "u1_g0"]


@requirement("LIFE-02")
def test_an_attached_clients_close_leaves_the_plane_up(
    part: PartitionUnderTest, actors: Actors, new_actor: Callable[[], DataPlaneClient]
) -> None:
    part.put_labeled(IDS)
    leaving = new_actor()
    part.via(leaving).put_labeled(["parting"])
    leaving.close()
    leaving.close()  # a second close, as a trainer's finalizer does
    (staying,) = actors(1)
    for view in (part, part.via(staying)):
        read = BackgroundCall(
            lambda v=view: v.expect_labeled([*IDS, "parting"]), "a read after another's close"
        )
        read.result(view.call_s)
    write = BackgroundCall(lambda: part.put_labeled(["later"]), "a put after another's close")
    write.result(part.timeouts.operation)
    expect_ids(part.claim("train"), [*IDS, "parting", "later"], "rows claimable")


@requirement("LIFE-06")
def test_a_late_client_sees_what_was_put_before(
    part: PartitionUnderTest, new_actor: Callable[[], DataPlaneClient]
) -> None:
    part.put_labeled(IDS, tags=[{"weight_version": 3}] * 3)
    late = part.via(new_actor())
    late.expect_labeled(IDS)
    meta = late.claim("train")
    expect_ids(meta, IDS, "rows claimable by a late client")
    if tags_by_id(meta) != {i: {"weight_version": 3} for i in IDS}:
        raise ContractViolation("the tags that were put before", str(meta.tags))


@pytest.mark.large
@requirement("LIFE-03")
def test_calls_of_an_attached_client_after_its_close_are_rejected(
    part: PartitionUnderTest, new_actor: Callable[[], DataPlaneClient]
) -> None:
    part.put_labeled(IDS)
    leaving = part.via(new_actor())
    leaving.expect_labeled(IDS)
    leaving.client.close()
    try:
        BackgroundCall(lambda: part.expect_labeled(IDS), "a read after another's close").result(
            part.timeouts.operation
        )
    except Exception as error:  # noqa: BLE001 - a plane that has ended may raise anything
        pytest.skip(f"the close ended the plane, which LIFE-02 checks: {shorten(str(error))}")
    calls: dict[str, Callable[[], object]] = {
        "put_samples": lambda: leaving.put_labeled(["late"]),
        "get_samples": lambda: leaving.get(IDS, "x"),
        "claim_meta": lambda: leaving.claim("train"),
    }
    for method, call in calls.items():
        expect_rejection(call, f"{method} of a client that was closed")
    part.expect_absent(["late"])
    expect_ids(part.claim("train"), IDS, "rows claimable by others")


#: Malformed calls that a server must survive: a client may forward them unchecked.
CLAIM = {"task_name": "train", "required_fields": ["x"], "batch_size": 2, "blocking": False}
MALFORMED: list[tuple[str, dict[str, Any], Callable[[Any], bool]]] = [
    ("claim_meta", CLAIM | {"batch_size": None}, lambda _meta: True),
    ("claim_meta", CLAIM | {"batch_size": -1}, lambda meta: not meta.sample_ids),
    ("claim_meta", CLAIM | {"required_fields": []}, lambda _meta: True),
    (
        "put_samples",
        {"sample_ids": [1, None, 3], "tags": [{}, 2, None]},
        lambda _receipt: False,
    ),
    ("get_samples", {"sample_ids": [None], "select_fields": ["x"]}, lambda _batch: False),
    ("check_consumption_status", {"task_names": None}, lambda consumed: not consumed),
    ("clear_samples", {"sample_ids": 42}, lambda _none: True),
    (
        "register_partition",
        {"fields": None, "num_samples": None, "consumer_tasks": None},
        lambda _none: True,
    ),
]


@requirement("LIFE-07")
def test_a_malformed_call_of_one_process_affects_no_other(
    part: PartitionUnderTest, actors: Actors
) -> None:
    faulty, other = actors(2)
    part.put_labeled(IDS)
    for n, (method, wrong, harmless) in enumerate(MALFORMED):
        # another partition, as the plane decides whether a second registration keeps existing rows
        where = f"{part.id}-other" if method == "register_partition" else part.id
        call = partial(getattr(faulty, method), partition_id=where, **wrong)
        expect_harmless(call, f"{method} with {wrong}", part.via(faulty).call_s, harmless)
        for view, who in ((part, "owner"), (part.via(other), "other")):
            view.put_labeled([f"{who}{n}"])
            view.expect_labeled([*IDS, f"{who}{n}"])
    late = [f"{who}{n}" for n in range(len(MALFORMED)) for who in ("owner", "other")]
    expect_ids(part.claim("prev_lp"), [*IDS, *late], "rows claimable after malformed calls")


@requirement("LIFE-02")
def test_a_close_gives_back_no_claims_and_takes_no_rows_along(
    part: PartitionUnderTest, actors: Actors, new_actor: Callable[[], DataPlaneClient]
) -> None:
    part.put_labeled(IDS)
    leaving = part.via(new_actor())
    leaving.put_labeled(["own0", "own1"])
    announcing = part.via(new_actor())  # as a loader does, which puts no field
    announcing.put(["announced"], [{"prompt": 7}])
    announcing.client.close()
    claimed = leaving.claim("train", batch_size=2).sample_ids
    leaving.client.close()
    (staying,) = (part.via(actor) for actor in actors(1))
    rest = sorted({*IDS, "own0", "own1"} - set(claimed))
    expect_equal(sorted(staying.claim("train").sample_ids), rest, "rows that it had not claimed")
    for view in (part, staying):
        view.expect_labeled([*IDS, "own0", "own1"])
    staying.put_labeled(["announced"])
    tags = tags_by_id(part.claim("train"))
    expect_equal(tags, {"announced": {"prompt": 7}}, "the tags of a row that it had announced")


@pytest.mark.large
@requirement("LIFE-02")
def test_a_client_that_joins_after_a_close_replaces_no_rows_of_the_one_that_left(
    part: PartitionUnderTest, new_actor: Callable[[], DataPlaneClient], target: Target
) -> None:
    """Planes that number their clients, and rows by client, may use a number again."""
    ids = {who: [f"{who}{n}" for n in range(3)] for who in ("leaves", "joins")}
    logs = {who: [[{"role": who, "content": f"{i} " * 40_000}] for i in ids[who]] for who in ids}
    wide = {who: torch.full((3, 1 << 15), float(n)) for n, who in enumerate(ids)}
    objects = False
    for who, own in ids.items():
        view = part.via(new_actor())
        view.put_labeled(own, tags=[{"by": who}] * 3)
        view.put(own, y=wide[who])
        objects = put_unless_refused(view, target, own, z=object_array(logs[who]))
        if who == "leaves":
            view.client.close()
    for who, own in ids.items():
        part.expect_labeled(own)
        part.expect_rows(own, y=list(wide[who]))
        if objects:
            expect_objects(part.get(own, "z"), "z", logs[who])
    tags = {i: {"by": who} for who, own in ids.items() for i in own}
    expect_equal(tags_by_id(part.claim("train")), tags, "tags of both clients' rows")


@requirement("LIFE-02")
def test_a_client_that_closes_while_it_waits_ends_no_wait_of_others(
    part: PartitionUnderTest, actors: Actors, new_actor: Callable[[], DataPlaneClient]
) -> None:
    """Planes that cancel the waiting claims of a task cancel those of other clients too."""
    (attached,) = (part.via(actor) for actor in actors(1))
    leaving = part.via(new_actor())
    timeout_s = 4 * part.timeouts.settle
    own = start_blocking_claim(leaving, 2, timeout_s)
    claims = [(view, start_blocking_claim(view, 2, timeout_s)) for view in (part, attached)]
    expect_waiting(own, part, "two rows", "an answer with no row ready")
    leaving.client.close()
    for _, claim in claims:
        expect_waiting(claim, part, "two rows", "an answer after a waiting client's close")
    ids = [f"late{n}" for n in range(6)]  # enough for its own claim too, which may have gone on
    part.put_labeled(ids)
    got = [i for view, claim in claims for i in expect_woken(claim, view, part).sample_ids]
    expect(len({*got} & {*ids}) == 4, "two rows for each of the two claims that wait on", got)
    own.finished.wait(timeout_s)  # however it ends: LIFE-10 judges that


@requirement("LIFE-02")
def test_an_attached_clients_close_ends_no_claim_of_others(
    part: PartitionUnderTest, actors: Actors, new_actor: Callable[[], DataPlaneClient]
) -> None:
    """Planes that wake all claims at a close, to end those of its client, must end no others."""
    (attached,) = (part.via(actor) for actor in actors(1))
    leaving = part.via(new_actor())
    leaving.put_labeled(IDS[:1])
    timeout_s = 4 * part.timeouts.settle
    claims = [(view, start_blocking_claim(view, 2, timeout_s)) for view in (part, attached)]
    for _, claim in claims:
        expect_waiting(claim, part, "a second row", "an answer with one row ready")
    leaving.client.close()
    for _, claim in claims:
        expect_waiting(claim, part, "a second row", "an answer after another client's close")
    part.put_labeled([*IDS[1:], "later"])
    got = [i for view, claim in claims for i in expect_woken(claim, view, part).sample_ids]
    expect_equal(sorted(got), sorted([*IDS, "later"]), "rows of the two claims")


@requirement("LIFE-06", leans_on=("REG-02",))
def test_a_late_client_reads_an_undeclared_field_of_a_client_that_left(
    part: PartitionUnderTest, new_actor: Callable[[], DataPlaneClient]
) -> None:
    """Planes in which clients announce the fields that they bring must keep those of leavers."""
    part.put_labeled(IDS)
    leaving = part.via(new_actor())
    leaving.put_labeled(IDS, UNDECLARED)
    leaving.client.close()
    late = part.via(new_actor())
    late.expect_labeled(IDS, "x", UNDECLARED)
    expect_ids(late.claim("train", ["x", UNDECLARED]), IDS, "rows with the field of the leaver")


#: Elements of a row of 64 KiB, of which planes share the memory.
LONG = 8192
#: Seconds within which the memory of a process that has ended is freed.
FREED_S = 2.0


@requirement("LIFE-02", leans_on=("CLEAR-01", "CLAIM-09"))
def test_rows_that_a_leaver_left_over_when_it_cleared_others_stay(
    plane: PlaneSession, part: PartitionUnderTest
) -> None:
    """What a plane copies to make room when rows are cleared outlives the process that cleared."""
    ids = [f"r{n}" for n in range(64)]
    kept, rows = ids[::4], torch.arange(64 * LONG).reshape(64, LONG)
    part.put(ids, x=rows)
    (worker,) = plane.actors().start(1)
    view = part.via(worker)
    try:
        view.expect_rows(ids[:2], x=list(rows[:2]))
        view.clear([i for i in ids if i not in kept])
        worker.close()
    finally:
        worker.end()
    expect_timeout(part, len(ids), timeout_s=FREED_S)
    part.expect_rows(kept, x=list(rows[::4]))
    expect_ids(part.claim("train", batch_size=len(ids)), kept, "rows left")


#: How often a worker attaches: more often than planes have slots for the clients of a run.
ATTACHES = 70


@pytest.mark.large
@requirement("LIFE-06", leans_on=("TAG-07", "PUT-11"))
def test_a_client_that_attaches_after_many_others_shares_rows_with_the_owner(
    plane: PlaneSession, part: PartitionUnderTest
) -> None:
    """Planes that number their clients in few bits take a late one for one that still lives."""
    (worker,) = plane.actors().start(1)
    view, made = part.via(worker), 0
    try:
        for n in part.rounds(ATTACHES, 1 / 6):
            ids = [f"r{n}"]
            part.put_labeled(ids)
            owners = BackgroundCall(partial(part.put, ids, [{"owner": n}]), "the owner's stamp")
            view.put(ids, [{"worker": n}])
            owners.result(part.call_s)
            view.put_labeled(ids, "y")
            plane.actors().attach_again(worker)
            made += 1
        every = [f"r{n}" for n in range(made)]
        for reader in (part, view):
            reader.expect_labeled(every, "x", "y")
        got = tags_by_id(view.claim("train", batch_size=made))
        for n, sample_id in enumerate(every):
            what = f"tags of {sample_id!r}, which the owner and the {n + 1}th client have stamped"
            expect_equal(got.get(sample_id), {"owner": n, "worker": n}, what)
    finally:
        worker.end()
