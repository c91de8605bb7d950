"""Rows that earlier steps of a run have left in a partition before a check uses it.

A plane that pages rows, keeps a number of them at hand or looks at the newest ones only is right in
an empty partition, and wrong behind some thousand rows. The rows are claimed by every task, so for
the check the partition is as good as empty: only its status before anything else is put differs.
"""

from __future__ import annotations

import random
import time
import warnings
from collections.abc import Sequence
from typing import Any

import torch

from rlconform.certify.assertions.expect import FewerExamples
from rlconform.certify.scenarios.partition import FIELDS, TASKS, PartitionUnderTest

#: More rows than a page or a cache of 2,048 holds.
ROWS = 2100
#: Seconds that putting and claiming the rows may take, roughly.
BUDGET_S = 0.25
#: Rows of the first put, which measures how fast the plane is.
FIRST = 300
#: A plane that does not manage so many rows in time gets none, after so many partitions.
LEAST, TRIES = 500, 3
#: The rows' field, which no check uses.
FIELD = "earlier"


class EarlierRows:
    """Decides which partitions of a plane have earlier rows, and how many."""

    def __init__(self) -> None:
        self._tries = TRIES

    def wanted(self, check: str, seed: int) -> bool:
        """Whether the check begins behind earlier rows, as half of all do on a fast plane."""
        return self._tries > 0 and random.Random(f"{check} {seed}").random() < 0.5

    def register(
        self,
        part: PartitionUnderTest,
        *,
        fields: Sequence[str] = FIELDS,
        tasks: Sequence[str] = TASKS,
        **options: Any,
    ) -> None:
        """Register the partition with a field more; put rows into it, and claim them for all tasks.

        The first rows measure how many the plane stores in time.
        """
        part.register(fields=[*fields, FIELD], tasks=tasks, **options)
        start = time.monotonic()
        _put_and_claim(part, range(FIRST), tasks)
        in_time = int(FIRST * BUDGET_S / (time.monotonic() - start))
        if in_time >= LEAST:
            _put_and_claim(part, range(FIRST, min(in_time, ROWS)), tasks)
            return
        self._tries -= 1
        if self._tries == 0:
            text = f"the plane is too slow for {LEAST} rows before a check"
            warnings.warn(text, FewerExamples, stacklevel=2)


def _put_and_claim(part: PartitionUnderTest, rows: range, tasks: Sequence[str]) -> None:
    ids, column = [f"{FIELD}{n}" for n in rows], torch.tensor(rows).reshape(-1, 1)
    part.put(ids, [{"step": n} for n in rows], **{FIELD: column})
    for task in tasks:
        part.claim_all(task, [FIELD], len(rows))  # a plane may return fewer at once
