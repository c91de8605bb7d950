"""CLEAR-06 at length: a leak too small for 50 cycles shows in the slope of hundreds."""

from __future__ import annotations

import torch

from rlconform.certify.assertions.expect import expect
from rlconform.certify.durability.cost_growth import growth
from rlconform.certify.durability.fault_verdict import Indeterminate
from rlconform.certify.memory_usage import plane_bytes
from rlconform.certify.plugin.markers import requirement
from rlconform.certify.scenarios.partition import PartitionUnderTest, expect_ids

#: Cycles, those between two looks, and the bytes that a cycle puts.
CYCLES, EACH, CYCLE_BYTES = 300, 10, 4 << 20


@requirement("CLEAR-06", patience=300)
def test_memory_stays_bounded_over_many_cycles(part: PartitionUnderTest) -> None:
    rows = torch.ones(16, CYCLE_BYTES // 16, dtype=torch.uint8)
    cycles: list[float] = []
    held: list[float] = []
    for number in part.rounds(CYCLES):
        ids = [f"c{number}_{row}" for row in range(len(rows))]
        part.put(ids, x=rows)
        expect_ids(part.claim(batch_size=len(ids)), ids, "rows of the cycle")
        part.clear(ids)
        if number % EACH == 0:
            cycles.append(number)
            held.append(plane_bytes())
    found = growth(cycles, held)
    if found is None:
        raise Indeterminate(f"indeterminate: time for {len(cycles) * EACH} cycles only")
    expect(
        found.over(50) < 2 * CYCLE_BYTES,
        f"50 cycles of {CYCLE_BYTES >> 20} MiB to grow the plane by less than "
        f"{2 * CYCLE_BYTES >> 20} MiB",
        f"{found.over(50) / (1 << 20):.1f} MiB, from the slope over {cycles[-1]:.0f} cycles",
    )
