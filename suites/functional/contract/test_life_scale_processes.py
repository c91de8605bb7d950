"""LIFE across processes: clients that attach late to many rows, or to rows of many kinds."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations

import torch

from rlconform.certify.assertions.expect import expect_equal
from rlconform.certify.plugin.markers import requirement
from rlconform.certify.scenarios.large_step import STEP_IDS, put_large_step
from rlconform.certify.scenarios.normalize_metas import tags_by_id
from rlconform.certify.scenarios.partition import PartitionUnderTest
from rlconform.contract import DataPlaneClient

#: Sets of fields beside ``x``; each row has another one.
SETS = [fields for size in range(10) for fields in combinations("abcdefghi", size)][:300]


@requirement("LIFE-06", leans_on=("CLAIM-04",))
def test_a_late_client_claims_rows_that_all_have_other_fields(
    new_partition: Callable[..., PartitionUnderTest], new_actor: Callable[[], DataPlaneClient]
) -> None:
    """Planes that keep the layouts of rows in a table must send a late client all of it."""
    part = new_partition(fields=["x", *"abcdefghi"], num_samples=len(SETS))
    made = list(part.rounds(len(SETS)))
    ids = [f"r{n}" for n in made]
    for n in made:
        part.put_labeled([ids[n]], "x", *SETS[n])
    late = part.via(new_actor())
    claimed = late.claim("train", batch_size=len(ids)).sample_ids
    expect_equal(sorted(claimed), sorted(ids), "rows of the first claim of a late client")
    for n in (made[0], made[-1]):
        for name in ("x", *SETS[n]):
            late.expect_labeled([ids[n]], name)


@requirement("LIFE-06")
def test_a_late_client_sees_all_of_a_large_step(
    new_partition: Callable[..., PartitionUnderTest], new_actor: Callable[[], DataPlaneClient]
) -> None:
    step = put_large_step(new_partition)
    late = step.via(new_actor())
    for first in (0, 1020, len(STEP_IDS) - 2):
        ids = STEP_IDS[first : first + 2]
        late.expect_rows(ids, x=[torch.tensor(first), torch.tensor(first + 1)])
    claimed = late.claim(batch_size=len(STEP_IDS)).sample_ids
    expect_equal(len(set(claimed)), len(STEP_IDS), "rows claimed by a late client")


#: Puts after which planes that keep a log have written a checkpoint.
LOGGED = 1100


@requirement("LIFE-06", leans_on=("TAG-01",))
def test_a_late_client_has_the_tags_that_were_stamped_after_very_many_puts(
    new_partition: Callable[..., PartitionUnderTest], new_actor: Callable[[], DataPlaneClient]
) -> None:
    """Planes that start a client from a checkpoint must replay all that came after it."""
    part = new_partition()
    ids = ["u0_g0", "u0_g1", "u1_g0"]
    part.put_labeled([*ids, "other"], tags=[{"version": 0}] * 4)
    for n in part.rounds(LOGGED):
        part.put(["other"], tags=[{"version": n}])
    part.put(ids, tags=[{"version": 1, "std": 0.5}] * 3)
    late = part.via(new_actor())
    got = tags_by_id(late.claim("train", batch_size=4))
    due = {i: {"version": 1, "std": 0.5} for i in ids} | {"other": {"version": n}}
    expect_equal(got, due, "tags of the first claim of a late client")
