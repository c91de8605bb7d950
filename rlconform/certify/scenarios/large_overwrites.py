"""A writer that overwrites large and small columns together, and a reader beside it.

check's thread   BackgroundCall(write) ──▶ puts x, y (large) and z (small) of one version,
                                           until its time is over
                 reads the three until the writer has ended: a row's values are of one version
"""

from __future__ import annotations

import time
from typing import Any

import torch

from rlconform.certify.assertions.expect import expect
from rlconform.certify.scenarios.partition import PartitionUnderTest
from rlconform.certify.threads import BackgroundCall

IDS = ["r0", "r1", "r2"]

#: Elements of a row of ``x`` and ``y``: a column takes 1.5 MiB, more than a message of most
#: transports, and its copy takes long enough for a put to come between it and the next one.
WIDE = 1 << 17

#: Time of the writer, in seconds.
WRITES_S = 0.3


def expect_no_torn_read(writer: PartitionUnderTest, reader: PartitionUnderTest) -> None:
    """Expect each read beside the writer to return the columns of one put."""

    def put(version: int) -> None:
        columns: dict[str, Any] = {
            "x": torch.full((len(IDS), WIDE), version, dtype=torch.int32),
            "y": torch.full((len(IDS), WIDE), version, dtype=torch.int32),
            "z": torch.full((len(IDS),), version),
        }
        names = sorted(columns, reverse=version % 2 == 1)  # planes may store them in this order
        writer.put(IDS, **{name: columns[name] for name in names})

    def write() -> None:
        version, end = 0, time.monotonic() + WRITES_S
        while version < 4 or time.monotonic() < end:
            version += 1
            put(version)

    put(0)
    writing = BackgroundCall(write, "the writer")
    over = False
    while not over:
        over = writing.finished.is_set()
        batch = reader.get(IDS, "x", "y", "z")
        ends = [batch[name][:, [0, -1]] for name in ("x", "y")]
        rows = torch.cat([*ends, batch["z"][:, None]], dim=1).tolist()
        torn = {i: row for i, row in zip(IDS, rows, strict=True) if len(set(row)) > 1}
        expect(not torn, "x, y and z of each row of one put", torn)
    writing.result(reader.call_s)
