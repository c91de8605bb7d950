"""LOAD-02 and LOAD-04: a plane that is filled to the brim, and rows of gigabytes."""

from __future__ import annotations

import time
from collections.abc import Iterator

import psutil
import pytest
import torch

from rlconform.certify.assertions.expect import (
    ContractViolation,
    expect,
    expect_equal,
    tensors_equal,
)
from rlconform.certify.durability.fault_verdict import Indeterminate
from rlconform.certify.durability.fill import ROWS, Filled, expect_wide, fill, put_wide
from rlconform.certify.plugin.markers import requirement
from rlconform.certify.plugin.plane_session import PlaneSession
from rlconform.certify.recording.recorder import Recording
from rlconform.certify.recording.shorten import error_text
from rlconform.certify.scenarios.partition import PartitionUnderTest
from rlconform.certify.threads import BackgroundCall
from rlconform.contract import SmallPlane, Target

#: Seconds between two tries to put into a plane that makes room.
AGAIN_S = 0.05
#: A row's size beyond which 32-bit lengths overflow, signed and unsigned.
BEYOND = {"2 GiB": (2 << 30) + 64, "4 GiB": (4 << 30) + 64}


@pytest.fixture
def small(plane: PlaneSession, target: Target) -> Iterator[SmallPlane]:
    """Yield the description of the plane with little room, which is open meanwhile."""
    if target.small is None:
        pytest.skip("the target says nowhere how to start its plane with little room: Target.small")
    if target.declares("restart") is not True:
        pytest.skip("the plane can't be opened again in one process (no capability restart)")
    with plane.reopened(target.small.config):
        yield target.small


@requirement("LOAD-02", ends_plane=True, patience=300)
def test_a_full_plane_refuses_or_waits_and_keeps_what_it_accepted(
    small: SmallPlane, plane: PlaneSession, recording: Recording
) -> None:
    part = PartitionUnderTest(plane.recorded(recording), "full", plane.target.timeouts)
    part.register(num_samples=small.rows)
    filled = fill(part, small.row_bytes, 2 * small.rows)
    expect_wide(part, filled.accepted, small.row_bytes)
    if not filled.last:
        raise Indeterminate(
            f"indeterminate: the plane took {len(filled.accepted)} rows, and is said to be full "
            f"with {small.rows}"
        )
    expect(bool(filled.accepted), "an empty plane to accept rows", filled.error or "a wait")
    kept, cleared = filled.accepted[1::2], filled.accepted[::2]
    clearing = BackgroundCall(lambda: part.clear(cleared), "a clear in a full plane")
    clearing.result(part.timeouts.operation)
    put_into_the_room(part, filled, small.row_bytes)
    expect_wide(part, [*kept, *filled.last], small.row_bytes)
    claimed = part.claim_all(batch_size=ROWS)
    expect_equal(sorted(claimed), sorted([*kept, *filled.last]), "rows claimable, each once")


def put_into_the_room(part: PartitionUnderTest, filled: Filled, row_bytes: int) -> None:
    """Expect the put that found the plane full to work once rows are cleared."""
    timeouts = part.timeouts
    if filled.waiting is not None:
        filled.waiting.result(timeouts.operation + timeouts.settle)
        return
    due = time.monotonic() + timeouts.settle
    while True:
        put = BackgroundCall(lambda: put_wide(part, filled.last, row_bytes), "a put with room")
        try:
            put.result(timeouts.operation)
            return
        except ContractViolation:
            raise
        except Exception as error:  # a plane may raise anything
            if time.monotonic() > due:
                wanted = f"a put to work after {len(filled.accepted) // 2} rows were cleared"
                raise ContractViolation(wanted, error_text(error)) from error
        time.sleep(AGAIN_S)


@requirement("LOAD-04", patience=1200, scattered=False)
@pytest.mark.parametrize("size", BEYOND)
def test_a_row_of_gigabytes_leaves_its_neighbours_intact(
    part: PartitionUnderTest, request: pytest.FixtureRequest, size: str
) -> None:
    if not request.config.getoption("--rlconform-large-rows"):
        pytest.skip("rows of gigabytes are tried on request: rlconform certify --large-rows")
    count = BEYOND[size]
    free = psutil.virtual_memory().available
    if free < 4 * count:
        pytest.skip(f"it needs {4 * count >> 30} GiB of free memory, and {free >> 30} GiB are")
    part.put_labeled(["before"])
    row = torch.zeros(1, count, dtype=torch.uint8)
    for place in (0, (1 << 31) - 1, 1 << 31, count - 1):
        row[0, place] = 1 + place % 250
    carried = True
    try:
        part.put(["large"], x=row)
    except Exception:  # noqa: BLE001 - a plane may reject such a row with any error
        carried = False
    part.put_labeled(["after"])
    part.expect_labeled(["before", "after"])
    if carried:
        got = part.get(["large"], "x")["x"]
        same = got.numel() == count and tensors_equal(got.reshape(-1), row.reshape(-1))
        expect(same, f"the row of {count} bytes as it was put", f"{got.numel()} other bytes")
    part.clear(["large"])
    part.expect_labeled(["before", "after"])
