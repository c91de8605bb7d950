"""The fixtures of level ``durability``: callers that can be killed, and the plane's processes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rlconform.certify.concurrency.operation import Operation
from rlconform.certify.durability.fault_run import FaultRun
from rlconform.certify.plugin.check_result import HISTORY
from rlconform.certify.plugin.plane_session import PlaneSession
from rlconform.certify.recording.recorder import Recording
from rlconform.certify.scenarios.partition import PartitionUnderTest
from rlconform.contract import PlaneControl


@pytest.fixture
def faults(
    request: pytest.FixtureRequest,
    plane: PlaneSession,
    part: PartitionUnderTest,
    recording: Recording,
    tmp_path: Path,
) -> Iterator[FaultRun]:
    """Yield a run on ``part`` whose processes may be killed; the report keeps its history."""
    kept: list[Operation] = request.node.stash.setdefault(HISTORY, [])

    def keep(operations: list[Operation]) -> None:
        kept[:] = operations
        spans = [(each.start, each.end) for each in operations if each.end is not None]
        recording.plane_time.add(spans)

    run = FaultRun(
        plane.actors,
        plane.owner(),
        part.id,
        part.timeouts,
        str(request.config.getoption("--rlconform-seed")),
        tmp_path,
        keep,
    )
    yield run
    run.end()


@pytest.fixture
def control(plane: PlaneSession) -> Callable[[], PlaneControl]:
    """Return ``control()``, which names the plane's processes; a skip if the target can't."""

    def of_the_open_plane() -> PlaneControl:
        if plane.target.control is None:
            pytest.skip("the target declares control and has none: Target.control is None")
        return plane.target.control(plane.owner())

    return of_the_open_plane
