"""The recorder records every call exactly, and attributes errors to the plane or the check."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from tensordict import NonTensorData, TensorDict

from rlconform.certify.recording.recorder import (
    MAX_CALLS,
    CallRecord,
    CheckIsOver,
    MethodGivenUp,
    Recording,
)
from rlconform.certify.recording.recording_client import RecordingClient
from rlconform.certify.reproduce.render import Call
from rlconform.certify.target import open_target
from rlconform.certify.threads import BackgroundCall, run_concurrently
from rlconform.contract import DataPlaneClient, UnknownSample, missing_methods
from rlconform.wire import object_array

PATIENCE_S = 10.0


@pytest.fixture
def plane() -> Iterator[DataPlaneClient]:
    client = open_target("memory")
    yield client
    client.close()


@pytest.fixture
def recording() -> Recording:
    return Recording()


@pytest.fixture
def client(plane: DataPlaneClient, recording: Recording) -> RecordingClient:
    made = RecordingClient(plane, recording)
    made.register_partition(partition_id="p", fields=["x"], num_samples=4, consumer_tasks=["t"])
    return made


def batch(count: int) -> TensorDict:
    return TensorDict({"x": torch.zeros(count, 2)}, batch_size=[count])


def texts(recording: Recording) -> list[str]:
    """The recorded lines after the registration."""
    return recording.lines()[1:]


# -- calls ---------------------------------------------------------------------------------------


def test_a_recorded_client_is_a_client(client: RecordingClient) -> None:
    assert missing_methods(client) == []
    assert isinstance(client, DataPlaneClient)


def test_a_call_passes_through_unchanged(client: RecordingClient, plane: DataPlaneClient) -> None:
    receipt = client.put_samples(["a", "b"], "p", fields=batch(2), tags=[{"v": 1}, {"v": 2}])
    assert receipt.sample_ids == ["a", "b"]
    assert plane.get_samples(["b"], "p", ["x"])["x"].tolist() == [[0, 0]]
    assert client.claim_meta("p", "t", ["x"], 2).tags == [{"v": 1}, {"v": 2}]


def test_a_call_is_written_with_what_came(client: RecordingClient, recording: Recording) -> None:
    client.put_samples(["a", "b"], "p", fields=batch(2))
    client.check_consumption_status(partition_id="p", task_names=["t"])
    client.get_samples(["a"], "p", select_fields=["x"])
    assert texts(recording) == [
        "client.put_samples(['a', 'b'], 'p', fields={x: float32[2x2]} x (2,)) "
        "-> meta of ['a', 'b']",
        "client.check_consumption_status(partition_id='p', task_names=['t']) -> False",
        "client.get_samples(['a'], 'p', select_fields=['x']) -> {x: float32[1x2]} x (1,)",
    ]


def test_each_line_says_whose_call_it_was(plane: DataPlaneClient, recording: Recording) -> None:
    for name in ("client", "actor1"):
        RecordingClient(plane, recording, name).clear_samples([], "p")
    assert [line.partition(".")[0] for line in recording.lines()] == ["client", "actor1"]


def test_what_a_call_was_given_stands_as_it_was(
    client: RecordingClient, recording: Recording
) -> None:
    ids, tags = ["a"], [{"v": 1}]
    client.put_samples(ids, "p", fields=batch(1), tags=tags)
    ids.append("later")
    tags[0]["v"] = 9
    assert "later" not in texts(recording)[0]
    assert "{'v': 1}" in texts(recording)[0]


class SlottedMeta:
    """A vendor's meta without a ``__dict__``."""

    __slots__ = ("fields", "partition_id", "sample_ids")

    def __init__(self) -> None:
        self.partition_id, self.sample_ids, self.fields = "p", ["ghost"], ["x"]


ODD_ARGUMENTS: dict[str, tuple[str, Callable[[], Any]]] = {
    "no batch": ("put_samples", lambda: 42),
    "a thing of its own": ("put_samples", object),
    "a batch without rows": ("put_samples", lambda: TensorDict({"m": NonTensorData("a")}, [])),
    "half an object array": (
        "put_samples",
        lambda: TensorDict({"m": object_array([1, 2, 3])}, batch_size=[3])[:1],
    ),
    "a nested tensor of the old layout": (
        "put_samples",
        lambda: TensorDict({"x": torch.nested.nested_tensor([torch.zeros(1)])}, batch_size=[1]),
    ),
    "a meta without a dict": ("get_data", SlottedMeta),
}


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.parametrize(("method", "make"), ODD_ARGUMENTS.values(), ids=ODD_ARGUMENTS)
def test_whatever_is_passed_reaches_the_plane(
    client: RecordingClient, recording: Recording, method: str, make: Callable[[], Any]
) -> None:
    """The recorder must not raise on an argument before the plane gets it."""
    odd = make()
    arguments = {"meta": odd} if method == "get_data" else {
        "sample_ids": ["a"], "partition_id": "p", "fields": odd
    }  # fmt: skip
    with pytest.raises((TypeError, ValueError, LookupError)) as raised:
        getattr(client, method)(**arguments)
    assert recording.raised_by_plane(raised.value)
    assert f"{method}(" in texts(recording)[0]


def test_a_long_history_is_cut_and_counted(client: RecordingClient, recording: Recording) -> None:
    for _ in range(MAX_CALLS + 5):
        client.clear_samples([], "p")
    assert len(recording.calls) == MAX_CALLS
    assert recording.lines()[-1] == "... and 6 more calls"


def test_threads_lose_no_call(client: RecordingClient, recording: Recording) -> None:
    def work() -> None:
        for _ in range(50):
            client.clear_samples([], "p")

    run_concurrently([work] * 8, PATIENCE_S)
    assert recording.lines()[-1] == f"... and {8 * 50 + 1 - MAX_CALLS} more calls"
    assert all(line.endswith("-> None") for line in recording.lines()[:-1])


# -- calls under way -----------------------------------------------------------------------------


def test_the_listener_hears_of_a_call_before_it_is_made(plane: DataPlaneClient) -> None:
    heard: list[tuple[Call, bool]] = []

    def listen(call: Call) -> None:
        heard.append((call, _holds(plane, "a")))

    recording = Recording(listen)
    RecordingClient(plane, recording).put_samples(["a"], "p", fields=batch(1))
    assert heard == [(recording.calls[0], False)]
    assert _holds(plane, "a")


def _holds(plane: DataPlaneClient, sample_id: str) -> bool:
    try:
        plane.get_samples([sample_id], "p", ["x"])
    except LookupError:
        return False
    return True


def test_a_call_names_those_of_other_threads_beside_it(plane: DataPlaneClient) -> None:
    heard: list[Call] = []
    begun = threading.Event()

    def listen(call: Call) -> None:
        heard.append(call)
        begun.set()

    client = RecordingClient(plane, Recording(listen))
    plane.register_partition("p", ["x"], 1, ["t"])
    waiting = BackgroundCall(lambda: client.claim_meta("p", "t", ["x"], 1), "a claim")
    assert begun.wait(PATIENCE_S)
    client.put_samples(["a"], "p", fields=batch(1))
    waiting.result(PATIENCE_S)
    client.close()
    claim, put, close = heard
    assert (claim.concurrent, put.concurrent, close.concurrent) == ((), (claim.text,), ())
    assert put.describe() == f"{put.text}, beside {claim.text}"
    assert claim.describe() == claim.text


def test_calls_beyond_the_first_are_told_without_source(plane: DataPlaneClient) -> None:
    heard: list[Call] = []
    client = RecordingClient(plane, Recording(heard.append))
    for number in range(MAX_CALLS + 1):
        client.put_samples([str(number)], "p", fields=batch(1))
    assert [bool(call.source) for call in heard] == [True] * MAX_CALLS + [False]
    assert f"'{MAX_CALLS}'" in heard[-1].text


def test_a_call_under_way_is_written_and_becomes_overdue(plane: DataPlaneClient) -> None:
    begun = threading.Event()
    recording = Recording(lambda _call: begun.set())
    plane.register_partition("p", ["x"], 1, ["t"])
    waiting = BackgroundCall(
        lambda: RecordingClient(plane, recording).claim_meta("p", "t", ["x"], 1), "a claim"
    )
    assert begun.wait(PATIENCE_S)
    assert recording.lines() == ["client.claim_meta('p', 't', ['x'], 1) -> did not return"]
    assert recording.overdue(lambda _step: PATIENCE_S) is None
    late = recording.overdue(lambda _step: 0.0)
    assert late is not None
    assert late.kind == "claim_meta, blocking"
    assert late.text.startswith("client.claim_meta('p', 't'")
    plane.put_samples(["a"], "p", fields=batch(1))
    waiting.result(PATIENCE_S)
    assert recording.overdue(lambda _step: 0.0) is None
    assert recording.lines() == ["client.claim_meta('p', 't', ['x'], 1) -> meta of ['a']"]


def test_a_deadline_may_depend_on_the_call(recording: Recording) -> None:
    seen: list[CallRecord] = []

    def allowed(step: CallRecord) -> float:
        seen.append(step)
        return PATIENCE_S

    recording.begin(CallRecord("client", "close", (), {}))
    assert recording.overdue(allowed) is None
    assert {step.method for step in seen} == {"close"}


def test_the_planes_seconds_are_those_inside_its_calls(
    client: RecordingClient, recording: Recording
) -> None:
    before = recording.plane_seconds
    with pytest.raises(TimeoutError):
        client.claim_meta("p", "t", ["x"], 1, timeout_s=0.05)
    assert 0.05 <= recording.plane_seconds - before < PATIENCE_S


# -- origin of errors ----------------------------------------------------------------------------


def test_an_error_of_a_call_is_the_planes(client: RecordingClient, recording: Recording) -> None:
    with pytest.raises(LookupError) as raised:
        client.get_samples(["ghost"], "p", ["x"])
    assert isinstance(raised.value, UnknownSample)
    assert recording.raised_by_plane(raised.value)
    blamed = recording.error_origin(raised.value)
    assert blamed.startswith("the plane's get_samples raised UnknownSample: ")
    assert blamed.removeprefix("the plane's get_samples ") in texts(recording)[0]


def test_an_error_raised_from_the_planes_is_the_planes(
    client: RecordingClient, recording: Recording
) -> None:
    def check() -> None:
        try:
            client.get_samples(["ghost"], "p", ["x"])
        except LookupError as error:
            raise RuntimeError("seen by a check") from error

    with pytest.raises(RuntimeError) as raised:
        check()
    assert recording.raised_by_plane(raised.value)
    assert recording.error_origin(raised.value) == ""


def test_an_error_of_our_own_is_not_the_planes(
    client: RecordingClient, recording: Recording
) -> None:
    with pytest.raises(LookupError):
        client.get_samples(["ghost"], "p", ["x"])
    for error in (UnknownSample("ghost"), AssertionError(), None):
        assert not recording.raised_by_plane(error)
    assert recording.error_origin(UnknownSample("ghost")) == ""


def test_every_error_of_a_long_history_keeps_its_owner(
    client: RecordingClient, recording: Recording
) -> None:
    errors = []
    for _ in range(MAX_CALLS + 20):
        with pytest.raises(LookupError) as raised:
            client.get_samples(["ghost"], "p", ["x"])
        errors.append(raised.value)
    assert all(recording.raised_by_plane(error) for error in errors)
    assert all("get_samples" in recording.error_origin(error) for error in errors)


def test_a_restart_forgets_the_calls_and_keeps_the_time(plane: DataPlaneClient) -> None:
    heard: list[Call | None] = []
    recording = Recording(heard.append)
    client = RecordingClient(plane, recording)
    client.clear_samples(["before"], "p")
    spent = recording.plane_seconds
    recording.restart(writes_source=True)
    assert (recording.calls, recording.lines(), heard[-1]) == ([], [], None)
    client.clear_samples(["after"], "p")
    (line,) = recording.lines()
    assert "after" in line
    assert recording.plane_seconds > spent > 0


def test_a_recording_for_nobody_to_repeat_writes_no_source(plane: DataPlaneClient) -> None:
    recording = Recording(writes_source=False)
    client = RecordingClient(plane, recording)
    for _ in range(2):
        client.clear_samples(["a"], "p")
        (call,) = recording.calls
        assert call.source == f"# {call.text}"
        recording.restart(writes_source=True)


# -- after the check -----------------------------------------------------------------------------


def test_threads_that_a_check_left_behind_make_no_more_calls(
    client: RecordingClient, recording: Recording
) -> None:
    recording.finish(PATIENCE_S)
    left_behind = BackgroundCall(lambda: client.clear_samples(["a"], "p"), "a thread left behind")
    with pytest.raises(CheckIsOver):
        left_behind.result(PATIENCE_S)
    client.clear_samples(["a"], "p")  # the clean-up runs in the main thread


def test_the_end_of_a_check_awaits_calls_on_their_way(
    client: RecordingClient, recording: Recording, plane: DataPlaneClient
) -> None:
    claim = BackgroundCall(lambda: client.claim_meta("p", "t", ["x"], 1), "a claim")
    while not recording.overdue(lambda _step: 0.0):
        assert not claim.finished.is_set()
    end = BackgroundCall(lambda: recording.finish(PATIENCE_S), "the end of the check")
    assert not end.finished.wait(0.2)
    plane.put_samples(["a"], "p", fields=batch(1))
    end.result(PATIENCE_S)
    assert recording.overdue(lambda _step: 0.0) is None
    assert claim.result(PATIENCE_S).sample_ids == ["a"]


def test_a_call_that_was_given_up_is_not_made(plane: DataPlaneClient) -> None:
    recording = Recording(given_up={"claim_meta, blocking": "claims that block hung"})
    client = RecordingClient(plane, recording)
    client.register_partition("p", ["x"], 1, ["t"])
    with pytest.raises(MethodGivenUp, match="hung"):
        client.claim_meta("p", "t", ["x"], 1)
    assert client.claim_meta("p", "t", ["x"], 1, blocking=False).sample_ids == []
    assert [call.text.partition("(")[0] for call in recording.calls] == [
        "client.register_partition",
        "client.claim_meta",
    ]
