"""``EventClient`` writes each call and its outcome, and changes nothing."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from tensordict import TensorDict

from rlconform.backends.memory import MemoryClient
from rlconform.certify.target import open_target
from rlconform.contract import PlaneUnavailable
from rlconform.events import EventWriter, LogReader
from rlconform.events.schema import PlaneOp
from rlconform.plane import EventClient
from rlconform.plane.event_client import outcome_of


def calls(folder: Path) -> list[tuple[Any, ...]]:
    """The calls in the log: operation, status, keys and error."""
    reader = LogReader(sorted(folder.glob("events-*.jsonl")))
    events = [record.event for batch in reader.batches() for record in batch]
    return [(one.op, one.status, one.keys, one.error) for one in events if isinstance(one, PlaneOp)]


def test_calls_and_outcomes_are_written(tmp_path: Path) -> None:
    with EventWriter(tmp_path, run="r", role="driver") as writer:
        client = EventClient(open_target("memory"), writer)
        client.register_partition("p", ["x"], 2, ["task"])
        fields = TensorDict({"x": torch.arange(2)}, batch_size=[2])
        client.put_samples(["a", "b"], "p", fields)
        meta = client.claim_meta("p", "task", ["x"], 2, blocking=False)
        assert client.get_data(meta, select_fields=["x"])["x"].tolist() == [0, 1]
        client.clear_samples(sample_ids=["a"], partition_id="p")
        with pytest.raises(LookupError):
            client.get_samples(["a"], "p", ["x"])
        client.close()
    both = ["a", "b"]
    assert calls(tmp_path) == [
        ("put", "invoked", both, None), ("put", "ok", None, None),
        ("claim", "invoked", None, None), ("claim", "ok", both, None),
        ("get", "invoked", both, None), ("get", "ok", None, None),
        ("clear", "invoked", ["a"], None), ("clear", "ok", None, None),
        ("get", "invoked", ["a"], None), ("get", "failed", None, "not_found"),
    ]  # fmt: skip


class StuckClient(MemoryClient):
    """A client whose clears wait until ``answered``."""

    def __init__(self) -> None:
        super().__init__()
        self.asked, self.answered = threading.Event(), threading.Event()

    def clear_samples(self, sample_ids: list[str] | None, partition_id: str) -> None:
        self.asked.set()
        assert self.answered.wait(60)
        super().clear_samples(sample_ids, partition_id)


def test_a_call_that_is_given_up_has_an_unknown_outcome_and_no_second_one(tmp_path: Path) -> None:
    with EventWriter(tmp_path, run="r", role="driver") as writer, ThreadPoolExecutor(1) as pool:
        stuck = StuckClient()
        client = EventClient(stuck, writer)
        client.register_partition("p", ["x"], 1, ["task"])
        call = pool.submit(client.clear_samples, sample_ids=[], partition_id="p")
        assert stuck.asked.wait(60)
        client.give_up_calls()
        stuck.answered.set()
        call.result(60)
        client.give_up_calls()
        client.close()
    assert calls(tmp_path) == [
        ("clear", "invoked", [], None), ("clear", "unknown", None, "timeout"),
    ]  # fmt: skip


def test_a_success_within_the_handling_of_another_error_is_a_success(tmp_path: Path) -> None:
    with EventWriter(tmp_path, run="r", role="driver") as writer:
        client = EventClient(open_target("memory"), writer)
        client.register_partition("p", ["x"], 1, ["task"])
        try:
            raise TimeoutError
        except TimeoutError:
            client.clear_samples(sample_ids=[], partition_id="p")
    assert [status for _, status, *_ in calls(tmp_path)] == ["invoked", "ok"]


@pytest.mark.parametrize(
    ("error", "status"),
    [(TimeoutError(), "unknown"), (PlaneUnavailable(), "unknown"), (KeyError("a"), "failed"),
     (ValueError(), "failed"), (RuntimeError(), "unknown")],
)  # fmt: skip
def test_only_a_refusal_has_no_effect(error: Exception, status: str) -> None:
    assert outcome_of(error).status == status
