"""Looks of several processes at a partition that is unknown, then empty, before a check uses it.

A process that polls for its partition looks before another one registers it. A plane that remembers
an answer "there is no such partition, task or row" must notice when there is one.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import partial

from rlconform.certify.assertions.expect import is_rejected
from rlconform.certify.scenarios.partition import TASKS, PartitionUnderTest

#: Rows that many checks put.
_IDS = ("u0_g0", "u0_g1", "u1_g0")


def has_early_looks(check: str, seed: int) -> bool:
    """Whether processes look early before the check; its id and the seed decide, for a quarter."""
    return random.Random(f"looks before {check} {seed}").random() < 0.25


def look_early(views: Sequence[PartitionUnderTest], tasks: Sequence[str] = TASKS) -> None:
    """Read, claim and ask for the status in each process; the plane may refuse all of it."""
    for view in views:
        is_rejected(partial(view.get, _IDS, "x"))
        for task in tasks:
            is_rejected(partial(view.claim, task, batch_size=2))
            is_rejected(partial(view.consumed, task))
