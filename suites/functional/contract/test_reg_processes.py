"""REG across processes: many producers, one registration."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from rlconform.certify.evidence.together import together
from rlconform.certify.marks import requirement
from rlconform.certify.scenes.partition import Partition
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
