"""What a check asks for by name: the plane, its client, a fresh partition, other processes."""

from __future__ import annotations

import uuid
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from rlconform.certify.evidence.expect import ContractViolation
from rlconform.certify.evidence.recorder import Recording, RecordingClient, shorten
from rlconform.certify.evidence.together import Background
from rlconform.certify.history.crowd import Player, Stage
from rlconform.certify.history.events import Event
from rlconform.certify.history.performer import Performer
from rlconform.certify.process.actors import RemoteClient, Seat
from rlconform.certify.process.checked import HISTORY, RECORDING, CleanUpFailed, ends_plane
from rlconform.certify.process.session import PlaneSession
from rlconform.certify.process.training import Trainings, trainings_on
from rlconform.certify.scenes.partition import Partition
from rlconform.contract import DataPlaneClient, Target


def _checks(request: pytest.FixtureRequest) -> Any:
    return request.config.pluginmanager.getplugin("rlconform-checks")


@pytest.fixture
def plane(request: pytest.FixtureRequest) -> Iterator[PlaneSession]:
    """The plane under test; closed after the check where the target asks for a fresh one each."""
    session: PlaneSession = _checks(request).session
    yield session
    if session.target.isolation == "test":
        try:
            session.renew()
        except ContractViolation as error:  # LIFE-01 judges it, and the check before it is over
            warnings.warn(f"after a check: {error}", CleanUpFailed, stacklevel=1)


@pytest.fixture(scope="module")
def trainings(request: pytest.FixtureRequest) -> Iterator[Trainings]:
    """Whole runs of the reference GRPO, in memory and through the plane under test."""
    with trainings_on(_checks(request).session) as trainings:
        yield trainings


@pytest.fixture
def target(plane: PlaneSession) -> Target:
    """What the plane under test says of itself."""
    return plane.target


@pytest.fixture
def recording(request: pytest.FixtureRequest) -> Recording:
    """The client calls of this check."""
    recording: Recording = _checks(request).new_recording()
    request.node.stash[RECORDING] = recording
    return recording


@pytest.fixture
def client(plane: PlaneSession, recording: Recording) -> RecordingClient:
    """The owner's client."""
    return plane.recorded(recording)


@pytest.fixture
def new_partition(
    request: pytest.FixtureRequest, client: DataPlaneClient, plane: PlaneSession
) -> Iterator[Callable[..., Partition]]:
    """Makes partitions with fresh names; their rows are cleared after the check, loudly."""
    made: list[Partition] = []

    def make(register: bool = True, exact: str = "", **options: Any) -> Partition:
        part = Partition(client, exact or f"p-{uuid.uuid4().hex[:8]}", plane.target.timeouts)
        if register:
            part.register(**options)
        made.append(part)
        return part

    yield make
    history = request.node.stash.get(HISTORY, [])
    for part in made:
        part.will_hold(i for event in history if event.op == "put" for i in event.ids)
    for part in () if ends_plane(request.node) else made:
        clean_up(part.via(plane.owner()))  # a call that is not the check's


def clean_up(part: Partition) -> None:
    """Clear what the check put; a plane that can't is told of, the next check has its own names.

    A clear that hangs is given up: the check itself is over, and its outcome stands.
    """
    if not part.ids:
        return
    clearing = Background(lambda: part.clear(sorted(part.ids)), "clearing what the check put")
    try:
        clearing.result(part.timeouts.operation)
    except Exception as error:  # noqa: BLE001 - CLEAR-02 and CLEAR-05 judge it, here it is told
        warnings.warn(
            f"rows of {part.id} stay behind, clear_samples raised {type(error).__name__}: "
            f"{shorten(str(error))}",
            CleanUpFailed,
            stacklevel=1,
        )


@pytest.fixture
def part(new_partition: Callable[..., Partition]) -> Partition:
    """A fresh partition with fields x, y, z and tasks train, prev_lp."""
    return new_partition()


@pytest.fixture
def actors(plane: PlaneSession, recording: Recording) -> Callable[[int], list[RecordingClient]]:
    """``actors(n)``: clients attached in n processes, shared with other checks."""

    def take(count: int) -> list[RecordingClient]:
        return [_recorded(client, recording) for client in plane.actors().take(count)]

    return take


@pytest.fixture
def new_actor(plane: PlaneSession, recording: Recording) -> Callable[[], RecordingClient]:
    """``new_actor()``: a client that attaches now, in a process of its own."""

    def start() -> RecordingClient:
        (client,) = plane.actors().start(1)
        return _recorded(client, recording)

    return start


def _recorded(client: RemoteClient, recording: Recording) -> RecordingClient:
    """The client of another process, its calls measured where they are made."""
    return RecordingClient(client, recording, client.name, client.measuring)  # type: ignore[arg-type]


@pytest.fixture
def stage(
    request: pytest.FixtureRequest, plane: PlaneSession, part: Partition, recording: Recording
) -> Stage:
    """Plays roles on ``part``, each in a process of its own that other checks use too."""

    def take(count: int) -> list[Seat]:
        return [Seat(client) for client in plane.actors().take(count)]

    return _stage(request, part, take, _heard_from_afar(request, recording))


@pytest.fixture
def attached_threads(
    request: pytest.FixtureRequest, plane: PlaneSession, part: Partition, recording: Recording
) -> Stage:
    """Plays roles on ``part``, each in a thread of one other process, all on its client."""

    def take(count: int) -> list[Seat]:
        (client,) = plane.actors().take(1)
        return [Seat(client) for _ in range(count)]

    return _stage(request, part, take, _heard_from_afar(request, recording))


@pytest.fixture
def threads(request: pytest.FixtureRequest, part: Partition) -> Stage:
    """Plays roles on ``part``, each in a thread, all on the owner's client."""

    def take(count: int) -> list[Performer]:
        return [Performer(part.client) for _ in range(count)]

    return _stage(request, part, take, lambda events: note_history(request.node, events))


def _heard_from_afar(
    request: pytest.FixtureRequest, recording: Recording
) -> Callable[[list[Event]], None]:
    """Keeps the events of other processes, and counts their calls as the plane's time."""

    def heard(events: list[Event]) -> None:
        note_history(request.node, events)
        recording.inside.add((event.start, event.end) for event in events if event.end is not None)

    return heard


def note_history(item: pytest.Item, events: list[Event]) -> None:
    """Keep the events beside those of the check's earlier plays."""
    item.stash[HISTORY] = [*item.stash.get(HISTORY, []), *events]


def _stage(
    request: pytest.FixtureRequest,
    part: Partition,
    take: Callable[[int], Sequence[Player]],
    heard: Callable[[list[Event]], None],
) -> Stage:
    seed = str(request.config.getoption("--seed"))
    given_up = request.getfixturevalue("recording").given_up
    return Stage(take, part.id, part.timeouts, seed, heard, given_up)
