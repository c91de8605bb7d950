"""PUT-10: a view costs what it shows, not what lies behind it."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable

import pytest
import torch

from rlconform.certify.assertions.values import expect
from rlconform.certify.memory_usage import plane_bytes
from rlconform.certify.plugin.markers import requirement
from rlconform.certify.scenarios.partition import PartitionUnderTest

#: 1 MiB each of 512 MiB, whose other pages are never touched.
SLICES: dict[str, Callable[[], torch.Tensor]] = {
    "of_rows": lambda: torch.empty(512 * 16, 64 * 1024, dtype=torch.uint8)[:16],
    "of_columns": lambda: torch.empty(16, 512 * 64 * 1024, dtype=torch.uint8)[:, : 64 * 1024],
    "of_tokens": lambda: torch.nested.nested_tensor_from_jagged(
        torch.empty(512 << 20, dtype=torch.uint8)[: 1 << 20], torch.arange(17) * (64 * 1024)
    ),
}


@requirement("PUT-10")
@pytest.mark.parametrize("make", SLICES.values(), ids=SLICES)
def test_a_slice_costs_what_its_copy_costs(
    part: PartitionUnderTest, make: Callable[[], torch.Tensor]
) -> None:
    view = make()
    ids = [f"r{i}" for i in range(16)]
    # The copy is made within its turn, as a plane may have to make it too.
    columns = {"slice": lambda: view, "copy": view.clone}
    # The fastest of several turns each, since other load on the machine only ever adds to a time;
    # the first of a turn alternates, since it may be the one that pays for fresh memory. A slice
    # that seems dear gets more turns: its own cost stays, and what the machine added doesn't.
    fastest = dict.fromkeys(columns, math.inf)
    patience = time.monotonic() + part.timeouts.check / 4
    for turn in itertools.count():
        dear = fastest["slice"] > 5 * fastest["copy"]
        if turn >= 8 and not (dear and time.monotonic() < patience):
            break
        for name in sorted(columns, reverse=turn % 2 == 0):
            started = time.perf_counter()
            part.put(ids, x=columns[name]())
            fastest[name] = min(fastest[name], time.perf_counter() - started)
    of_slice, of_copy = fastest["slice"], fastest["copy"]
    expect(
        of_slice <= 5 * of_copy,
        f"putting a 1 MiB slice of 512 MiB within 5x of its copy ({of_copy * 1e3:.1f} ms)",
        f"{of_slice * 1e3:.1f} ms",
    )


#: Views of 2 MiB in 16 rows, of 64 MiB each, all of whose pages are in use.
BASE = 64 << 20
VIEWS: dict[str, Callable[[], torch.Tensor]] = {
    "of_rows": lambda: torch.ones(16 * 32, BASE // (16 * 32), dtype=torch.uint8)[:16],
    "of_columns": lambda: torch.ones(16, BASE // 16, dtype=torch.uint8)[:, : BASE // (16 * 32)],
    "of_tokens": lambda: torch.nested.nested_tensor_from_jagged(
        torch.ones(BASE, dtype=torch.uint8)[: BASE // 32], torch.arange(17) * (BASE // (16 * 32))
    ),
}


@requirement("PUT-10")
@pytest.mark.parametrize("make", VIEWS.values(), ids=VIEWS)
def test_a_view_keeps_nothing_of_what_lies_behind_it(
    part: PartitionUnderTest, make: Callable[[], torch.Tensor]
) -> None:
    views = 4

    def put(name: str) -> None:
        part.put([f"{name}_{n}" for n in range(16)], x=make())

    def run(name: str) -> int:
        """Put views, wait for memory that comes back late, and tell the growth in bytes."""
        before = plane_bytes()
        for turn in range(views):
            put(f"{name}_{turn}")
        deadline = time.monotonic() + part.timeouts.settle
        while (grown := plane_bytes() - before) >= limit and time.monotonic() < deadline:
            continue
        return grown

    limit = views * BASE // 2
    put("first")
    grown: list[int] = []
    # What is kept grows each time. Once, a process of the plane may come, or a pool widen.
    while len(grown) < 3 and (not grown or grown[-1] >= limit):
        grown.append(run(f"run{len(grown)}"))
    expect(
        grown[-1] < limit,
        f"{views} views of {BASE >> 25} MiB to make the plane hold less than half of the "
        f"{views * BASE >> 20} MiB behind them",
        " MiB, and again ".join(f"{each >> 20}" for each in grown) + " MiB",
    )
