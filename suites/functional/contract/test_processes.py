"""What only several processes can show: Ray actors hold attached clients."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial

from rlconform.certify.expect import (
    ContractViolation,
    expect,
    expect_column,
    expect_equal,
)
from rlconform.certify.marks import requirement
from rlconform.certify.partition import Partition, expect_ids, expect_unreadable, tags_by_id
from rlconform.certify.payload import payload_rows
from rlconform.certify.together import Background, together
from rlconform.contract import DataPlaneClient

Actors = Callable[[int], list[DataPlaneClient]]
IDS = ["u0_g0", "u0_g1", "u1_g0"]


@requirement("REG-01")
def test_processes_write_the_fields_that_the_owner_declared(
    new_partition: Callable[..., Partition], actors: Actors
) -> None:
    fields = ["input_ids", "advantages"]
    part = new_partition(fields=fields)
    for actor, field in zip(actors(2), fields, strict=True):
        part.via(actor).put_payload(IDS, field)
    part.expect_payload(IDS, *fields)


@requirement("PUT-22")
def test_a_put_is_seen_as_a_whole(part: Partition, actors: Actors) -> None:
    rounds, fields = 60, ["x", "y", "z", "extra"]
    (actor,) = actors(1)
    writing = part.via(actor)

    def produce() -> None:
        for n in range(rounds):
            writing.put_payload([f"r{n}_{k}" for k in range(3)], *fields)

    producer = Background(produce, "the producer")
    seen = 0
    while True:
        over = producer.finished.is_set()
        ids = part.claim("train", ["x"], 3).sample_ids
        if ids:
            seen += len(ids)
            part.expect_payload(ids, *fields)  # raises if a field isn't there yet
        elif over:
            break
    producer.result(part.timeouts.operation)
    expect_equal(seen, 3 * rounds, "rows seen")


@requirement("GET-10")
def test_a_finished_put_is_seen_in_every_process(part: Partition, actors: Actors) -> None:
    writer, reader = (part.via(actor) for actor in actors(2))
    for n in range(20):
        ids = [f"r{n}_{k}" for k in range(2)]
        for version in (0, 1):
            writer.put_payload(ids, version=version)
            reader.expect_payload(ids, version=version)
            part.expect_payload(ids, version=version)
    writer.clear(ids)
    expect_unreadable(lambda: reader.get(ids[:1], "x"), ids[0], "x")


@requirement("CLAIM-05")
def test_a_blocked_claim_wakes_by_what_others_put(part: Partition, actors: Actors) -> None:
    first, second = (part.via(actor) for actor in actors(2))
    waiting = Background(lambda: part.claim(batch_size=3, blocking=True), "the blocked claim")
    first.put_payload(IDS[:2])
    early = waiting.finished.wait(part.timeouts.quiet)
    expect(not early, "the claim to wait for the third row", "an answer with two rows ready")
    second.put_payload(IDS[2:])
    expect_ids(waiting.result(part.timeouts.settle), IDS, "rows of the woken claim")


@requirement("REG-06")
def test_many_processes_bring_new_fields_at_once(part: Partition, actors: Actors) -> None:
    rounds = 5

    def produce(producing: Partition, who: int) -> None:
        for n in range(rounds):
            producing.put_payload([f"p{who}"], f"extra_{who}_{n}")

    def watch() -> None:
        for _ in range(8 * rounds):
            part.claim("train", ["x"])

    producers = [part.via(actor) for actor in actors(4)]
    calls = [partial(produce, producing, who) for who, producing in enumerate(producers)]
    together([*calls, watch], part.timeouts.check, "producer")
    for who in range(len(producers)):
        part.expect_payload([f"p{who}"], *(f"extra_{who}_{n}" for n in range(rounds)))


@requirement("GET-11")
def test_claimed_rows_are_read_by_another_process(part: Partition, actors: Actors) -> None:
    (actor,) = actors(1)
    part.put_payload(IDS, "x", "y")
    meta = part.claim("train", ["x", "y"])
    batch = part.via(actor).get_data(meta)
    for field in ("x", "y"):
        expect_column(batch, field, payload_rows(part.id, meta.sample_ids, field))


@requirement("TAG-07")
def test_two_processes_stamp_the_same_rows(part: Partition, actors: Actors) -> None:
    ids = [f"r{i}" for i in range(30)]
    part.put_payload(ids)
    keys = ["std", "reward"]

    def stamp(stamping: Partition, key: str) -> None:
        for n, sample_id in enumerate(ids):
            stamping.put([sample_id], [{key: n}])

    calls = [
        lambda a=actor, k=key: stamp(part.via(a), k)
        for actor, key in zip(actors(2), keys, strict=True)
    ]
    together(calls, part.timeouts.check, "stamper")
    came = tags_by_id(part.claim("train"))
    lost = [i for n, i in enumerate(ids) if came.get(i) != {"std": n, "reward": n}]
    expect(not lost, "both stamps on every row", f"{len(lost)} of {len(ids)} lost one: {lost[:4]}")


@requirement("CLAIM-02")
def test_each_row_is_claimed_once_by_processes(part: Partition, actors: Actors) -> None:
    rows = 96
    ids = [f"r{i}" for i in range(rows)]
    consumers = [part.via(actor) for actor in actors(4)]

    def produce() -> None:
        for start in range(0, rows, 8):
            part.put_payload(ids[start : start + 8])

    producer = Background(produce, "the producer")

    def consume(consumer: Partition) -> list[str]:
        claimed: list[str] = []
        while True:
            over = producer.finished.is_set()
            came = consumer.claim(batch_size=5).sample_ids
            claimed += came
            if over and not came:
                return claimed

    results = together([lambda c=c: consume(c) for c in consumers], part.timeouts.check, "consumer")
    producer.result(part.timeouts.operation)
    claims = Counter(i for result in results for i in result)
    twice = sorted(i for i, n in claims.items() if n > 1)
    lost = sorted(set(ids) - set(claims))
    expect(not twice, "no row claimed twice", twice)
    expect(not lost, "no row lost", lost)


@requirement("STAT-02")
def test_every_process_gets_the_same_status(part: Partition, actors: Actors) -> None:
    views = [part, *(part.via(actor) for actor in actors(2))]
    part.put_payload(IDS)
    expect_equal([v.consumed() for v in views], [False] * 3, "status with rows unclaimed")
    views[1].claim("train")
    expect_equal([v.consumed() for v in views], [True] * 3, "status with all claimed")
    views[2].put_payload(["late"])
    expect_equal([v.consumed() for v in views], [False] * 3, "status after one more row")


@requirement("CLEAR-08")
def test_none_leaves_what_another_process_put(part: Partition, actors: Actors) -> None:
    (actor,) = actors(1)
    part.put_payload(IDS[:1])
    part.via(actor).put_payload(IDS[1:])
    part.clear(None)
    part.expect_payload(IDS[1:])
    expect_unreadable(lambda: part.get(IDS[:1], "x"), IDS[0], "x")


@requirement("LIFE-02")
def test_an_attached_clients_close_leaves_the_plane_up(
    part: Partition, actors: Actors, new_actor: Callable[[], DataPlaneClient]
) -> None:
    part.put_payload(IDS)
    leaving = new_actor()
    part.via(leaving).put_payload(["parting"])
    leaving.close()
    (staying,) = actors(1)
    for view in (part, part.via(staying)):
        read = Background(
            lambda v=view: v.expect_payload([*IDS, "parting"]), "a read after another's close"
        )
        read.result(part.timeouts.operation)
    write = Background(lambda: part.put_payload(["later"]), "a put after another's close")
    write.result(part.timeouts.operation)
    expect_ids(part.claim("train"), [*IDS, "parting", "later"], "rows claimable")


@requirement("LIFE-06")
def test_a_late_client_sees_what_was_put_before(
    part: Partition, new_actor: Callable[[], DataPlaneClient]
) -> None:
    part.put_payload(IDS, tags=[{"weight_version": 3}] * 3)
    late = part.via(new_actor())
    late.expect_payload(IDS)
    meta = late.claim("train")
    expect_ids(meta, IDS, "rows claimable by a late client")
    if tags_by_id(meta) != {i: {"weight_version": 3} for i in IDS}:
        raise ContractViolation("the tags that were put before", str(meta.tags))
