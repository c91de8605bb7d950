"""A target's deadlines count the time of the plane, but not the time of rlconform."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pytest
import ray
from ray._private.state import actors as known_actors

from rlconform.backends.ray_runtime import ensure_ray
from rlconform.backends.ray_store import TARGET as RAY_STORE
from rlconform.certify.assertions.expect import ContractViolation
from rlconform.certify.isolation import actor_pool
from rlconform.certify.isolation.actor_pool import ActorPool, ActorsLate, ActorsLateWarning
from rlconform.certify.isolation.client_actor import ClientActor
from rlconform.certify.isolation.remote_client import RemoteClient, remote_actor
from rlconform.certify.recording.busy_time import BusyTime
from rlconform.certify.recording.recorder import Recording
from rlconform.certify.recording.recording_client import RecordingClient
from rlconform.certify.scenarios.consumers import KitWasLate, expect_woken, start_blocking_claim
from rlconform.certify.scenarios.partition import PartitionUnderTest
from rlconform.contract import Timeouts
from rlconform.wire.serialization import RayArgument

pytestmark = pytest.mark.xdist_group("deadlines")

#: Two checks that attach from other processes.
SELECTED = "test_every_process_gets_the_same_status or test_a_late_client_sees_what_was_put_before"


@pytest.mark.timeout(300)
def test_a_slow_import_in_other_processes_is_not_the_planes(certify: Callable[..., Any]) -> None:
    done = certify("slow_to_import:PROMPT", "-k", SELECTED)  # its start is 5 s, the import takes 6
    came = {c["requirement"]: c["outcome"] for c in done.report["checks"] if "seconds" in c}
    assert came == {"STAT-02": "PASS", "LIFE-06": "PASS"}, done.stdout


@pytest.mark.timeout(300)
def test_a_slow_attach_is_the_planes(certify: Callable[..., Any]) -> None:
    done = certify("slow_to_import:LATE", "-k", "test_every_process_gets_the_same_status")
    (row,) = [r for r in done.report["requirements"] if r["id"] == "STAT-02"]
    assert row["outcome"] == "FAIL"
    assert "to attach with bootstrap=False within 5 s" in row["reason"]


@pytest.fixture(scope="module")
def ray_session() -> Iterator[None]:
    with ensure_ray():
        yield


def pool_of(spec: str, timeouts: Timeouts = Timeouts()) -> ActorPool:  # noqa: B008 - it is frozen
    return ActorPool(spec, {}, timeouts, BusyTime())


def living_actors() -> list[str]:
    return [name for name, held in known_actors().items() if held["State"] not in {"DEAD"}]


def wait_until_none_lives(before: set[str]) -> None:
    """Wait until no actor runs that is not in ``before``; pytest's timeout limits the wait."""
    while set(living_actors()) - before:
        pass


@pytest.mark.timeout(120)
@pytest.mark.usefixtures("ray_session")
def test_actors_that_fail_to_attach_are_ended() -> None:
    before = set(living_actors())
    with pytest.raises(ContractViolation, match=r"to attach with bootstrap=False"):
        pool_of("memory").start(3)  # no plane was opened in their processes
    wait_until_none_lives(before)


@pytest.mark.timeout(120)
@pytest.mark.usefixtures("ray_session")
def test_late_actors_are_ended_and_nothing_is_said_of_the_plane(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(actor_pool, "ACTOR_START_S", 0.0)
    before, pool = set(living_actors()), pool_of("memory")
    with pytest.warns(ActorsLateWarning, match="did not start within"), pytest.raises(ActorsLate):
        pool.start(2)
    with pytest.raises(ActorsLate, match="the plane was not asked"):
        pool.start(1)  # immediately: further checks do not wait again
    wait_until_none_lives(before)


@ray.remote
class Answers:
    """A fake actor whose plane took 4 seconds for a call."""

    def call(self, *_: object) -> Any:
        return (True, "answer"), (0.0, 4.0)


@pytest.mark.timeout(120)
@pytest.mark.usefixtures("ray_session")
@pytest.mark.parametrize(("operation", "right"), [(5.0, True), (3.0, False)])
def test_a_remote_call_is_judged_by_what_the_plane_took_of_it(
    operation: float, right: bool
) -> None:
    actor = Answers.remote()
    ray.get(actor.call.remote(RayArgument(())))  # its process has imported what an argument needs
    client = RemoteClient(actor, "actor", Timeouts(operation=operation))
    if right:
        assert client.close() == "answer"  # type: ignore[attr-defined]
    else:
        with pytest.raises(ContractViolation, match=r"within 3 s.*after 4.0 s"):
            client.close()  # type: ignore[attr-defined]


#: Longer than the ``settle`` of the part below.
WAY_S = 1.5


class FarAway(ClientActor):
    """An actor of rlconform whose answers arrive late."""

    def call(self, *asked: Any) -> Any:
        answer = super().call(*asked)
        time.sleep(WAY_S)
        return answer


@pytest.fixture
def near_and_far(ray_session: None) -> Iterator[tuple[PartitionUnderTest, PartitionUnderTest]]:  # noqa: ARG001
    """One partition, used by the owner and by an attached client whose answers arrive late."""
    timeouts, recording = Timeouts(settle=1.0), Recording()
    actor = remote_actor(FarAway).options(num_cpus=0).remote()
    with closing(RAY_STORE.open(RAY_STORE.config, True)) as owner:
        assert ray.get(actor.get_ready.remote("ray_store")) == (True, None)
        answer, _ = ray.get(actor.attach.remote(dict(RAY_STORE.config)))
        assert answer == (True, None)
        remote = RemoteClient(actor, "far", timeouts)
        near = PartitionUnderTest(RecordingClient(owner, recording), "p", timeouts)
        near.register()
        yield (
            near,
            near.via(RecordingClient(remote, recording, remote.name, remote.measuring)),  # type: ignore[arg-type]
        )
        remote.end()


@pytest.mark.timeout(120)
def test_the_way_back_of_a_woken_claim_is_not_the_planes(
    near_and_far: tuple[PartitionUnderTest, PartitionUnderTest],
) -> None:
    near, far = near_and_far
    waiting = start_blocking_claim(far, 1, timeout_s=10.0)
    assert not waiting.returned_within(near.timeouts.quiet)
    near.put_labeled(["a"])
    assert expect_woken(waiting, far, near).sample_ids == ["a"]


@pytest.mark.timeout(120)
def test_a_claim_that_had_no_time_left_says_nothing_of_the_plane(
    near_and_far: tuple[PartitionUnderTest, PartitionUnderTest],
) -> None:
    near, far = near_and_far
    waiting = start_blocking_claim(near, 2, timeout_s=0.5)
    far.put_labeled(["a"])  # its answer arrives after the claim's timeout
    with pytest.raises(KitWasLate):
        expect_woken(waiting, near, far)


@pytest.mark.timeout(120)
def test_a_claim_that_sleeps_through_its_rows_is_the_planes(
    near_and_far: tuple[PartitionUnderTest, PartitionUnderTest],
) -> None:
    near, _ = near_and_far
    near.put_labeled(["a"])
    waiting = start_blocking_claim(near, 2, timeout_s=1.2)  # two rows: acts like one not woken
    with pytest.raises(ContractViolation, match=r"within 1 s of the put.*TimeoutError after \d"):
        expect_woken(waiting, near, near)
