"""Several who write the same rows at once: each write adds to the row, and undoes nobody's."""

from __future__ import annotations

from collections import Counter

from rlconform.certify.evidence.expect import expect_equal
from rlconform.certify.evidence.together import together
from rlconform.certify.marks import requirement
from rlconform.certify.scenes.partition import Partition, expect_ids, tags_by_id
from rlconform.certify.scenes.payload import payload_column

ROUNDS = 20
IDS = ["u0_g0", "u0_g1", "u1_g0"]
MANY = [f"r{n}" for n in range(40)]


@requirement("PUT-11", race=True)
def test_columns_of_two_writers_both_stay(part: Partition) -> None:
    for turn in range(ROUNDS):
        ids = [f"{sample_id}_{turn}" for sample_id in IDS]
        part.put_payload(ids, "x")
        together(
            [lambda f=field: part.put_payload(ids, f) for field in ("y", "z")],  # noqa: B023
            part.timeouts.operation,
            "writer",
        )
        part.expect_payload(ids, "x", "y", "z")
        expect_ids(part.claim("train", ["x", "y", "z"]), ids, "rows with what both writers wrote")


@requirement("CLAIM-08", race=True)
def test_a_write_beside_a_claim_does_not_undo_it(part: Partition) -> None:
    part.put_payload(MANY, "x")

    def write() -> list[str]:
        for _ in range(3):
            for sample_id in MANY:
                part.put([sample_id], y=payload_column(part.id, [sample_id], "y"))
        return []

    def claim() -> list[str]:
        return [i for _ in MANY for i in part.claim("train", batch_size=1).sample_ids]

    written, claimed = together([write, claim], part.timeouts.check / 2, "writer or claimer")
    claims = Counter([*claimed, *part.claim_all("train"), *written])
    expect_equal(claims, Counter(MANY), "claims by id, rows being written to meanwhile")


@requirement("TAG-02", race=True)
def test_a_write_beside_a_stamp_does_not_undo_it(part: Partition) -> None:
    part.put_payload(MANY, "x", tags=[{"weight_version": 1}] * len(MANY))

    def stamp() -> None:
        for sample_id in MANY:
            part.put([sample_id], [{"std": 0.5}])

    def write() -> None:
        for sample_id in MANY:
            part.put([sample_id], y=payload_column(part.id, [sample_id], "y"))

    together([stamp, write], part.timeouts.check / 2, "writer")
    came = tags_by_id(part.claim("train", ["x", "y"]))
    stamped = {i: {"weight_version": 1, "std": 0.5} for i in MANY}
    expect_equal(came, stamped, "tags of rows that were stamped and written to at once")
