"""The fixtures of checks: the plane, its client, a fresh partition, other processes."""

from __future__ import annotations

import uuid
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from rlconform.certify.assertions.expect import ContractViolation
from rlconform.certify.concurrency.operation import Operation
from rlconform.certify.concurrency.workload_runner import WorkloadHandle, WorkloadRunner
from rlconform.certify.concurrency.workload_thread import WorkloadThread
from rlconform.certify.isolation.refused_calls import RefusedCalls
from rlconform.certify.isolation.remote_client import RemoteClient, RemoteWorkload
from rlconform.certify.isolation.scattering_client import (
    ATTACHED,
    PicklingClient,
    ScatteringClient,
)
from rlconform.certify.plugin.blocks import in_blocks
from rlconform.certify.plugin.check_result import (
    HISTORY,
    RECORDING,
    RUNS,
    CleanUpFailed,
    check_id,
    ends_plane,
    is_in_blocks,
    is_scattered,
    scattering_policy,
)
from rlconform.certify.plugin.plane_session import PlaneSession
from rlconform.certify.plugin.used_plane import Beginning, take_steps
from rlconform.certify.recording.recorder import TRANSPORT_S, Recording
from rlconform.certify.recording.recording_client import RecordingClient
from rlconform.certify.recording.shorten import error_text
from rlconform.certify.scenarios.partition import PartitionUnderTest
from rlconform.certify.threads import BackgroundCall
from rlconform.contract import Target
from rlconform.contract.target import LONGEST_SETTLE_S

if TYPE_CHECKING:
    from rlconform.certify.scenarios.run_logs import RunLogs
    from rlconform.certify.scenarios.training_actors import TrainingActors
    from rlconform.certify.scenarios.training_async import AsyncRuns
    from rlconform.certify.scenarios.training_parity import ParityRuns


def _checks(request: pytest.FixtureRequest) -> Any:
    return request.config.pluginmanager.getplugin("rlconform-checks")


@pytest.fixture
def plane(request: pytest.FixtureRequest) -> Iterator[PlaneSession]:
    """Yield the plane under test; close it after the check if its isolation is ``test``."""
    session: PlaneSession = _checks(request).session
    yield session
    if session.target.isolation == "test":
        try:
            session.renew()
        except ContractViolation as error:  # LIFE-01 judges it, and the check before it is over
            warnings.warn(f"after a check: {error}", CleanUpFailed, stacklevel=1)


@pytest.fixture(scope="session")
def training_actors(request: pytest.FixtureRequest) -> Iterator[TrainingActors]:
    """Yield the actors that make all training runs, in memory and through the plane under test."""
    session: PlaneSession = _checks(request).session
    with session.starting.running():
        from rlconform.certify.scenarios.training_actors import (  # noqa: PLC0415 - see there
            start_training_actors,
        )
    with start_training_actors(session) as actors:
        yield actors


@pytest.fixture
def run_logs(request: pytest.FixtureRequest, tmp_path: Path) -> RunLogs:
    """Return where this check's runs write their events; its result has what they say."""
    from rlconform.certify.scenarios.run_logs import RunLogs  # noqa: PLC0415 - as above

    return RunLogs(tmp_path / "events", request.node.stash.setdefault(RUNS, []))


@pytest.fixture
def parity_runs(training_actors: TrainingActors, run_logs: RunLogs) -> ParityRuns:
    """Return synchronous runs, in memory and through the plane under test."""
    from rlconform.certify.scenarios.training_parity import ParityRuns  # noqa: PLC0415 - as above

    return ParityRuns(training_actors, run_logs)


@pytest.fixture
def async_runs(training_actors: TrainingActors, run_logs: RunLogs) -> AsyncRuns:
    """Return asynchronous runs through the plane under test."""
    from rlconform.certify.scenarios.training_async import AsyncRuns  # noqa: PLC0415 - as above

    return AsyncRuns(training_actors, run_logs)


@pytest.fixture
def target(plane: PlaneSession) -> Target:
    """Return the target, which describes the plane under test."""
    return plane.target


@pytest.fixture
def recording(request: pytest.FixtureRequest) -> Recording:
    """Return the recording of this check's client calls."""
    in_detail = not is_in_blocks(request.node)  # the check's usual run has the details
    recording: Recording = _checks(request).new_recording(in_detail)
    request.node.stash[RECORDING] = recording
    return recording


@pytest.fixture
def client(request: pytest.FixtureRequest, plane: PlaneSession, recording: Recording) -> Any:
    """Return the owner's client; in a scattered run, one whose calls several processes make."""
    if not is_scattered(request.node):
        return in_blocks(request.node, plane, plane.recorded(recording))
    seed = int(request.config.getoption("--rlconform-seed"))
    pool = plane.actors()
    attached = pool.take(ATTACHED)
    if request.config.getoption("rlconform_at_scale"):
        take_steps(plane, attached)
    owner = RecordingClient(PicklingClient(plane.owner()), recording)  # type: ignore[arg-type]
    refused = RefusedCalls(
        [plane.owner(), *attached],  # type: ignore[list-item]
        f"{seed} {check_id(request.node)}",
    )
    return ScatteringClient(
        [owner, *(_recorded(each, recording) for each in attached)],
        scattering_policy(request.node),
        seed,
        lambda place: pool.attach_again(attached[place - 1]),
        refused.make,
    )


@pytest.fixture
def new_partition(
    request: pytest.FixtureRequest, client: Any, plane: PlaneSession
) -> Iterator[Callable[..., PartitionUnderTest]]:
    """Yield a function that creates partitions with fresh names; clear their rows at the end."""
    made: list[PartitionUnderTest] = []
    seed = int(request.config.getoption("--rlconform-seed"))
    scattered = is_scattered(request.node)
    beginning = Beginning()
    if scattered:
        beginning = Beginning.of(check_id(request.node), seed, client, plane.earlier_rows)

    def make(
        register: bool = True, exact: str = "", earlier_rows: bool = True, **options: Any
    ) -> PartitionUnderTest:
        timeouts = plane.target.timeouts
        if scattered:  # the calls travel; other checks judge how long they take
            timeouts = replace(
                timeouts, operation=timeouts.operation + TRANSPORT_S, settle=LONGEST_SETTLE_S
            )
        part = PartitionUnderTest(client, exact or f"p-{uuid.uuid4().hex[:8]}", timeouts)
        made.append(part)
        if register:
            begins = beginning.of_partition(len(made) - 1)
            begins = begins if earlier_rows else replace(begins, rows=None)
            begins.register(part, options)
        if scattered:
            client.refuse_in_each()
        return part

    yield make
    history = request.node.stash.get(HISTORY, [])
    for part in made:
        part.note_ids(i for event in history if event.op == "put" for i in event.ids)
    for part in () if ends_plane(request.node) else made:
        owner = in_blocks(request.node, plane, plane.owner())
        clean_up(part.via(owner))  # not recorded: the check is over


def clean_up(part: PartitionUnderTest) -> None:
    """Clear the rows of a check; the report notes a failure, which does not fail the check."""
    if not part.ids:
        return
    clearing = BackgroundCall(lambda: part.clear(sorted(part.ids)), "clearing its rows")
    try:
        clearing.result(part.timeouts.operation)
    except Exception as error:  # noqa: BLE001 - CLEAR-02 and CLEAR-05 judge it
        text = f"rows of {part.id} stay behind, clear_samples raised {error_text(error)}"
        warnings.warn(text, CleanUpFailed, stacklevel=1)


@pytest.fixture
def part(new_partition: Callable[..., PartitionUnderTest]) -> PartitionUnderTest:
    """Return a fresh partition with fields x, y, z and tasks train, prev_lp."""
    return new_partition()


@pytest.fixture
def actors(
    request: pytest.FixtureRequest, plane: PlaneSession, recording: Recording
) -> Callable[[int], list[Any]]:
    """Return ``actors(n)``, which returns n clients, each attached in a process of the pool."""
    return lambda count: [
        in_blocks(request.node, plane, _recorded(client, recording))
        for client in plane.actors().take(count)
    ]


@pytest.fixture
def new_actor(
    request: pytest.FixtureRequest, plane: PlaneSession, recording: Recording
) -> Callable[[], Any]:
    """Return ``new_actor()``, which returns a client that attaches in a new process."""
    return lambda: in_blocks(request.node, plane, _recorded(plane.actors().start(1)[0], recording))


def _recorded(client: RemoteClient, recording: Recording) -> RecordingClient:
    """Wrap the client of another process, to record its calls and time them in that process."""
    return RecordingClient(client, recording, client.name, client.measuring)  # type: ignore[arg-type]


@pytest.fixture
def processes(
    request: pytest.FixtureRequest, plane: PlaneSession, part: PartitionUnderTest
) -> WorkloadRunner:
    """Return a runner of workloads on ``part``, each in a process, which other checks reuse."""
    return _workload_runner(
        request, part, lambda count: list(map(RemoteWorkload, plane.actors().take(count)))
    )


@pytest.fixture
def attached_threads(
    request: pytest.FixtureRequest, plane: PlaneSession, part: PartitionUnderTest
) -> WorkloadRunner:
    """Return a runner of workloads on ``part``, in threads of one other process with one client."""

    def take(count: int) -> list[RemoteWorkload]:
        (client,) = plane.actors().take(1)
        return [RemoteWorkload(client) for _ in range(count)]

    return _workload_runner(request, part, take)


@pytest.fixture
def threads(request: pytest.FixtureRequest, part: PartitionUnderTest) -> WorkloadRunner:
    """Return a runner of workloads on ``part``, each in a thread, all with the owner's client."""
    return _workload_runner(
        request, part, lambda count: [WorkloadThread(part.client) for _ in range(count)], False
    )


def _workload_runner(
    request: pytest.FixtureRequest,
    part: PartitionUnderTest,
    take: Callable[[int], Sequence[WorkloadHandle]],
    remote: bool = True,
) -> WorkloadRunner:
    """Return a runner that keeps the operations; remote operations count as the plane's time."""
    recording: Recording = request.getfixturevalue("recording")

    def keep(operations: list[Operation]) -> None:
        request.node.stash.setdefault(HISTORY, []).extend(operations)
        if remote:
            spans = [(each.start, each.end) for each in operations if each.end is not None]
            recording.plane_time.add(spans)

    seed = str(request.config.getoption("--rlconform-seed"))
    return WorkloadRunner(take, part.id, part.timeouts, seed, keep, recording.given_up)
