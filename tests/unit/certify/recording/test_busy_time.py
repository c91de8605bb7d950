"""Busy time counts concurrent operations once, including those of another process."""

from __future__ import annotations

import time

import pytest

from rlconform.certify.isolation.remote_client import RemoteClient
from rlconform.certify.recording.busy_time import BusyTime, merged_seconds
from rlconform.certify.recording.recorder import Recording
from rlconform.certify.recording.recording_client import RecordingClient
from rlconform.contract import Timeouts

PAUSE_S = 0.02


def test_blocks_within_blocks_count_once() -> None:
    heard: list[float] = []
    busy = BusyTime(heard.append)
    with busy.running(), busy.running():
        time.sleep(PAUSE_S)
    assert heard == [0.0, busy.seconds]
    assert busy.seconds >= PAUSE_S


def test_what_ran_elsewhere_at_the_same_time_counts_once() -> None:
    busy = BusyTime()
    start = time.monotonic()
    with busy.running():
        time.sleep(PAUSE_S)
    end = time.monotonic()
    own = busy.seconds
    busy.add([(start, end), (start, end)])
    assert own <= busy.seconds == pytest.approx(end - start)
    busy.add([(end + 1.0, end + 3.0)])
    assert busy.seconds == pytest.approx(end - start + 2.0)


def test_spans_that_overlap_are_merged() -> None:
    assert merged_seconds([(4.0, 5.0), (0.0, 2.0), (1.0, 3.0), (1.5, 2.5)]) == 4.0
    assert merged_seconds([]) == 0.0


class FakeRemoteClient(RemoteClient):
    """A client whose process reports that a call took 0.25 s, or doesn't answer."""

    def __init__(self, answers: bool) -> None:
        super().__init__(None, "actor1", Timeouts())
        self.close = self._answer if answers else self._hang

    def _answer(self) -> None:
        self._calls.span = (100.0, 100.25)

    def _hang(self) -> None:
        time.sleep(PAUSE_S)
        raise TimeoutError


@pytest.mark.parametrize("answers", [True, False])
def test_the_way_to_another_process_is_not_the_planes_time(answers: bool) -> None:
    recording, remote = Recording(), FakeRemoteClient(answers)
    client = RecordingClient(remote, recording, remote.name, remote.measuring)  # type: ignore[arg-type]
    if answers:
        client.close()
        assert recording.plane_seconds == 0.25
    else:
        with pytest.raises(TimeoutError):
            client.close()
        assert PAUSE_S <= recording.plane_seconds < 1000 * PAUSE_S
