"""A writer that overwrites a large and a small column together, and a reader beside it.

check's thread   BackgroundCall(overwrite) ──▶ puts x (large) and y (small) of one version
                 reads x and y until the writer has ended; each row's values must be of one version
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from rlconform.certify.assertions.expect import expect
from rlconform.certify.scenarios.partition import PartitionUnderTest
from rlconform.certify.threads import BackgroundCall

IDS = ["r0", "r1", "r2"]

#: Elements of a row of ``x``: three rows take 3 MiB, which transports send apart from the rest.
WIDE = 1 << 18

#: Puts of the writer.
VERSIONS = 16


def expect_no_torn_read(
    writer: PartitionUnderTest, reader: PartitionUnderTest, fields: Sequence[str]
) -> None:
    """Expect each read of the fields, in this order, to return the columns of one put."""

    def put(version: int) -> None:
        columns = {
            "x": torch.full((len(IDS), WIDE), version, dtype=torch.int32),
            "y": torch.full((len(IDS),), version),
        }
        writer.put(IDS, **{field: columns[field] for field in fields})

    put(0)
    writing = BackgroundCall(lambda: [put(n) for n in range(1, VERSIONS)], "the writer")
    over = False
    while not over:
        over = writing.finished.is_set()
        batch = reader.get(IDS, *fields)
        rows = zip(batch["x"], batch["y"].tolist(), strict=True)
        seen = [{int(wide.min()), int(wide.max()), small} for wide, small in rows]
        torn = {i: sorted(versions) for i, versions in zip(IDS, seen, strict=True)}
        expect(all(len(versions) == 1 for versions in seen), "x and y of each row of one put", torn)
        writing.wait_briefly()
    writing.result(reader.timeouts.operation)
