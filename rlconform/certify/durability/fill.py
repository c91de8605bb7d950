"""``fill``: puts rows until the plane refuses one or lets it wait.

check ── put in a thread ──▶ plane      each put has the target's ``operation`` deadline; one that
      ◀── returns, raises or waits ──   is still running then counts as waiting, and goes on
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from rlconform.certify.recording.shorten import error_text
from rlconform.certify.scenarios.labeled_rows import labeled_column, labeled_rows
from rlconform.certify.scenarios.partition import PartitionUnderTest
from rlconform.certify.threads import BackgroundCall

#: Rows of a put. Several, so that a put that finds room for some of its rows shows.
ROWS = 4


@dataclass(frozen=True)
class Filled:
    """How a plane took the rows until it was full.

    ``accepted`` are the ids of puts that returned; ``last`` those of the put that did not, which
    is ``waiting`` or raised ``error``. Without a last put the plane never was full.
    """

    accepted: list[str]
    last: list[str]
    error: str = ""
    waiting: BackgroundCall | None = None


def put_wide(part: PartitionUnderTest, ids: Sequence[str], row_bytes: int) -> None:
    """Put labelled rows of ``row_bytes`` bytes."""
    part.put(ids, x=labeled_column(part.id, ids, "x", width=row_bytes))


def expect_wide(part: PartitionUnderTest, ids: Sequence[str], row_bytes: int) -> None:
    """Expect the rows to be there with the bytes that ``put_wide`` put."""
    for start in range(0, len(ids), ROWS):
        some = ids[start : start + ROWS]
        part.expect_rows(some, x=labeled_rows(part.id, some, "x", width=row_bytes))


def fill(part: PartitionUnderTest, row_bytes: int, most: int) -> Filled:
    """Put rows until a put raises or waits, or ``most`` rows were accepted."""
    accepted: list[str] = []
    while len(accepted) < most:
        ids = [f"f{len(accepted) + n}" for n in range(ROWS)]
        put = BackgroundCall(partial(put_wide, part, ids, row_bytes), "a put")
        try:
            if not put.returned_within(part.timeouts.operation):
                return Filled(accepted, ids, waiting=put)
        except Exception as error:  # noqa: BLE001 - a full plane may raise anything
            return Filled(accepted, ids, error=error_text(error))
        accepted += ids
    return Filled(accepted, [])
