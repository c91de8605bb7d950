"""A writer that overwrites the columns of a large put together, and a reader beside it.

check's thread   BackgroundCall(write) ──▶ puts all columns in one version, until its time is over
                 reads all, or the first and the last, until the writer has ended: the values of a
                 row are of one version
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import cycle
from typing import Any

import torch
from tensordict import TensorDictBase

from rlconform.certify.assertions.expect import expect, rows_in
from rlconform.certify.scenarios.partition import PartitionUnderTest
from rlconform.certify.threads import BackgroundCall

#: Elements of a row of a large column, of which a column takes 1.5 MiB: more than a message of most
#: transports, and its copy takes long enough for a put to come between it and the next one.
WIDE = 1 << 17


@dataclass(frozen=True)
class LargePut:
    """The shape of a large put, and how often the writer puts it at least."""

    rows: int
    widths: Mapping[str, int]  # elements of a row, by column
    least_puts: int = 3


#: Large columns; more in all than a message holds where its limit is 4, 8, 16 or 32 MiB; more than
#: the columns that a statement or a batch holds; more rows than a page, of which a read that takes
#: one column after the other lasts long.
PUTS = {
    "large": LargePut(3, {"a": 1, "x": WIDE, "y": WIDE, "z": 1}),
    "very_large": LargePut(3, {"a": 1, "x": 12 * WIDE, "y": 12 * WIDE, "z": 1}),
    "of_many_columns": LargePut(3, {f"c{n:03}": 1 for n in range(300)}),
    "of_many_rows": LargePut(4100, {"a": 1, "b": 1, "c": 1}, least_puts=10),
}

#: Time of the writer, in seconds.
WRITES_S = 0.3


def expect_no_torn_read(
    writer: PartitionUnderTest, reader: PartitionUnderTest, shape: LargePut
) -> None:
    """Expect each read beside the writer to return the columns of one put of this shape."""
    ids = [f"r{n}" for n in range(shape.rows)]
    names = sorted(shape.widths)
    ends = [names[0], names[-1]]  # small, so that many reads fit into the time of one put
    looks = cycle([names, ends, ends, ends, ends])
    reader.register(fields=names, num_samples=len(ids))

    def put(version: int) -> None:
        columns: dict[str, Any] = {
            name: torch.full((len(ids), shape.widths[name]), version, dtype=torch.int32)
            for name in sorted(names, reverse=version % 2 == 1)  # planes may store them in order
        }
        writer.put(ids, **columns)

    def write() -> None:
        version, end = 0, time.monotonic() + WRITES_S
        while version < shape.least_puts or time.monotonic() < end:
            version += 1
            put(version)

    put(0)
    writing = BackgroundCall(write, "the writer")
    over = False
    while not over:
        over = writing.finished.is_set()
        some = next(looks)
        batch = reader.get(ids, *some)
        seen = torch.stack([_ends_of_rows(batch, name) for name in some])
        least, most = seen.amin((0, 2)), seen.amax((0, 2))
        torn = {ids[at]: (int(least[at]), int(most[at])) for at in (least != most).nonzero()[:8, 0]}
        expect(not torn, f"the {len(some)} fields of each row of one put", f"of puts {torn}")
    writing.result(reader.call_s)


def _ends_of_rows(batch: TensorDictBase, name: str) -> torch.Tensor:
    """Return the first and the last element of each row of a column: (R, 2)."""
    leaf = batch.get(name)
    if isinstance(leaf, torch.Tensor) and not leaf.is_nested and leaf.dim() == 2:
        return leaf[:, [0, -1]]
    return torch.stack([row[[0, -1]] for row in rows_in(batch, name)])
