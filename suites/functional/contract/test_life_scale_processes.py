"""LIFE across processes: clients that attach late to many rows, or to rows of many kinds."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations

import torch

from rlconform.certify.assertions.expect import expect_equal
from rlconform.certify.plugin.markers import requirement
from rlconform.certify.scenarios.large_step import STEP_IDS, put_large_step
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
