"""Changes of arguments and results are noticed, whichever check makes the calls."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from tensordict import TensorDict

from rlconform.backends.memory import MemoryClient
from rlconform.certify.recording.recorder import MAX_CALLS, Recording
from rlconform.certify.recording.recording_client import RecordingClient
from rlconform.contract import KVBatchMeta


class NarrowsMetas(MemoryClient):
    """Narrows the meta to the selected fields, and returns the same tags from every claim."""

    _tags: list[Any] | None = None

    def get_data(self, meta: KVBatchMeta, select_fields: Any = None) -> TensorDict:
        if meta.fields is not None and select_fields is not None:
            meta.fields[:] = select_fields
        return super().get_data(meta, select_fields)

    def claim_meta(self, *args: Any, **kwargs: Any) -> KVBatchMeta:
        meta = super().claim_meta(*args, **kwargs)
        if self._tags is None:
            self._tags = list(meta.tags or [])
        self._tags[:] = meta.tags or []
        return replace(meta, tags=self._tags)


def recorded(client: MemoryClient) -> tuple[Any, Recording]:
    recording = Recording()
    client.register_partition("p", ["x", "y"], 4, ["train", "prev"])
    columns = TensorDict({"x": torch.zeros(2), "y": torch.zeros(2)}, batch_size=[2])
    client.put_samples(["a", "b"], "p", columns, [{"n": 1}, {"n": 2}])
    return RecordingClient(client, recording), recording


def test_a_right_plane_changes_nothing() -> None:
    client, recording = recorded(MemoryClient())
    meta = client.claim_meta("p", "train", ["x"], 2)
    client.get_data(meta, ["x"])
    assert recording.changes.changes() == []


def test_a_changed_argument_is_named_with_its_call() -> None:
    client, recording = recorded(NarrowsMetas())
    client.get_data(KVBatchMeta("p", None, ["a"], fields=["x", "y"]), ["x"])
    (change,) = recording.changes.changes()
    assert change.requirement == "LIFE-09"
    assert change.text.startswith("expected the arguments of client.get_data(")
    assert "; got client.get_data(" in change.text


def test_a_result_that_a_later_call_changes_is_named() -> None:
    client, recording = recorded(NarrowsMetas())
    client.claim_meta("p", "train", ["x"], 2)
    client.claim_meta("p", "prev", ["x"], 1)
    (change,) = recording.changes.changes()
    assert change.requirement == "GET-13"
    assert change.text.startswith("expected the result of client.claim_meta(")


def test_results_that_the_check_changes_are_forgotten() -> None:
    client, recording = recorded(MemoryClient())
    client.get_samples(["a"], "p", ["x"])["x"].fill_(9)
    recording.changes.forget_results()
    assert recording.changes.changes() == []


def test_only_the_first_calls_of_a_check_are_watched() -> None:
    client, recording = recorded(NarrowsMetas())
    for _ in range(MAX_CALLS):
        client.check_consumption_status("p", ["train"])
    client.get_data(KVBatchMeta("p", None, ["a"], fields=["x", "y"]), ["x"])
    assert recording.changes.changes() == []
