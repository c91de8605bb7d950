"""A writer that overwrites the columns of a large put together, and a reader beside it.

check's thread   BackgroundCall(write) ──▶ puts all columns in one version, until its time is over
                 reads all, or the first and the last, until the writer has ended: the values of a
                 row are of one version
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from itertools import cycle
from typing import Any

import torch

from rlconform.certify.assertions.expect import expect, rows_in
from rlconform.certify.scenarios.partition import PartitionUnderTest
from rlconform.certify.threads import BackgroundCall

IDS = ["r0", "r1", "r2"]

#: Elements of a row of a large column, of which a column takes 1.5 MiB: more than a message of most
#: transports, and its copy takes long enough for a put to come between it and the next one.
WIDE = 1 << 17

#: Columns of a put, with the elements of a row: large ones; more in all than a message holds where
#: its limit is 4, 8, 16 or 32 MiB; more than the columns that a statement or a batch holds.
PUTS: dict[str, dict[str, int]] = {
    "large": {"a": 1, "x": WIDE, "y": WIDE, "z": 1},
    "very_large": {"a": 1, "x": 12 * WIDE, "y": 12 * WIDE, "z": 1},
    "of_many_columns": {f"c{n:03}": 1 for n in range(300)},
}

#: Time of the writer, in seconds.
WRITES_S = 0.3

#: The writer puts so often at least.
LEAST_PUTS = 3


def expect_no_torn_read(
    writer: PartitionUnderTest, reader: PartitionUnderTest, widths: Mapping[str, int]
) -> None:
    """Expect each read beside the writer to return the columns of one put of these columns."""
    names = sorted(widths)
    ends = [names[0], names[-1]]  # small, so that many reads fit into the time of one put
    looks = cycle([names, ends, ends, ends, ends])
    reader.register(fields=names)

    def put(version: int) -> None:
        columns: dict[str, Any] = {
            name: torch.full((len(IDS), widths[name]), version, dtype=torch.int32)
            for name in sorted(names, reverse=version % 2 == 1)  # planes may store them in order
        }
        writer.put(IDS, **columns)

    def write() -> None:
        version, end = 0, time.monotonic() + WRITES_S
        while version < LEAST_PUTS or time.monotonic() < end:
            version += 1
            put(version)

    put(0)
    writing = BackgroundCall(write, "the writer")
    over = False
    while not over:
        over = writing.finished.is_set()
        some = next(looks)
        batch = reader.get(IDS, *some)
        rows = zip(*(rows_in(batch, name) for name in some), strict=True)
        seen = [[int(end) for row in columns for end in (row[0], row[-1])] for columns in rows]
        torn = {i: {*puts} for i, puts in zip(IDS, seen, strict=True) if len({*puts}) > 1}
        expect(not torn, f"the {len(some)} fields of each row of one put", f"of puts {torn}")
    writing.result(reader.call_s)
