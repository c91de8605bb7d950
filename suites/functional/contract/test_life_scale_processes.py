"""LIFE across processes: clients that attach late to many rows, or to rows of many kinds."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import combinations

import pytest
import torch

from rlconform.certify.assertions.expect import expect_equal, leaning_on
from rlconform.certify.plugin.markers import requirement
from rlconform.certify.scenarios.large_step import STEP_IDS, put_large_step
from rlconform.certify.scenarios.normalize_metas import tags_by_id
from rlconform.certify.scenarios.partition import PartitionUnderTest, expect_unreadable
from rlconform.certify.scenarios.two_processes import Actors
from rlconform.contract import DataPlaneClient

pytestmark = pytest.mark.large

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


#: Puts of each of two processes, in turns: by then planes that keep a log have written a
#: checkpoint, a log of 2,048 puts or 4,096 rows has lost the first, and rows have changed their
#: writer often.
LOGGED = 1100


@requirement("LIFE-06", leans_on=("TAG-01",))
def test_very_many_puts_hide_nothing_from_late_and_idle_processes(
    new_partition: Callable[..., PartitionUnderTest],
    actors: Actors,
    new_actor: Callable[[], DataPlaneClient],
) -> None:
    """Planes that start a client from a checkpoint must replay all that came after it.

    A process that has made no call meanwhile must notice that it has missed too much.
    """
    part, ids = new_partition(), ["u0_g0", "u0_g1", "u1_g0"]
    other, idle = (part.via(actor) for actor in actors(2))
    part.put_labeled([*ids, "gone"], tags=[{"version": 0}] * 4)
    for known in (ids, ["gone"]):
        idle.expect_labeled(known)
    part.put_labeled(ids, version=1)
    part.clear(["gone"])
    made = list(part.rounds(LOGGED))
    for n in made:
        part.put_labeled([f"own{n}", f"own{n}_2"])
        other.put_labeled([f"other{n}", f"other{n}_2"])
    part.put(ids, tags=[{"version": 1, "std": 0.5}] * 3)
    late = part.via(new_actor())
    got = tags_by_id(late.claim("train", batch_size=4 + 4 * len(made)))
    due = {i: {"version": 1, "std": 0.5} for i in ids}
    expect_equal({i: got.get(i) for i in ids}, due, "tags of the first claim of a late client")
    expect_equal(len(got), len(ids) + 4 * len(made), "the number of rows of this claim")
    with leaning_on("PUT-13", "GET-06"):
        idle.expect_labeled(ids, version=1)
        expect_unreadable(partial(idle.get, ["gone"], "x"), "gone", "x")
    with leaning_on("CLEAR-03", "CLEAR-08"):
        other.clear(None)
        for n in (made[0], made[-1]):
            expect_unreadable(partial(late.get, [f"other{n}"], "x"), f"other{n}", "x")
            late.expect_labeled([f"own{n}"])
