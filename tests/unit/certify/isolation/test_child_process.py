"""What a test process prints is bounded, and its last lines are kept."""

from __future__ import annotations

import queue
from pathlib import Path

import pytest

from rlconform.certify.isolation import child_process
from rlconform.certify.isolation.events import Event, PlaneOpening


@pytest.fixture
def events() -> queue.Queue[Event]:
    """The events of the process."""
    return queue.Queue()


def test_a_large_log_is_shortened_to_its_end(
    tmp_path: Path, events: queue.Queue[Event], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(child_process, "LARGEST_LOG", 1 << 20)
    log = tmp_path / "log"
    with log.open("ab") as printed:
        printed.write((b"x" * 1000 + b"\n") * 2000 + b"the last line\n")
        printed.flush()
        process = child_process.TestProcess(events, 1, log, log)
        events.put(PlaneOpening())
        assert process.next_event(0.0) == PlaneOpening()
        assert log.stat().st_size < 1 << 17
        assert process.tail().splitlines()[-1] == "the last line"
        before = log.stat().st_size
        printed.write(b"and one more\n")  # its descriptor appends at the new end
        printed.flush()
    assert log.stat().st_size == before + len(b"and one more\n")
    assert process.tail(since=before) == "and one more"
    assert process.tail(since=1 << 30).splitlines()[-1] == "and one more"  # it was shortened


def test_a_tail_reads_the_end_of_a_large_log_alone(
    tmp_path: Path, events: queue.Queue[Event]
) -> None:
    log = tmp_path / "log"
    with log.open("wb") as printed:
        printed.truncate(1 << 40)  # sparse; reading it all would not end
        printed.seek(0, 2)
        printed.write(b"\nthe last line\n")
    assert child_process.TestProcess(events, 1, log, log).tail().splitlines()[-1] == "the last line"
