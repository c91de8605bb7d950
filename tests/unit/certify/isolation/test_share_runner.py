"""A check has its time, whatever its process reports meanwhile."""

from __future__ import annotations

import queue
from collections.abc import Sequence
from pathlib import Path

from rlconform.certify.isolation import child_process, events
from rlconform.certify.isolation.calls_file import CallsFile
from rlconform.certify.isolation.events import Event
from rlconform.certify.isolation.forkserver import ForkServer
from rlconform.certify.isolation.run_state import RunState
from rlconform.certify.isolation.share_runner import ShareRunner
from rlconform.certify.isolation.shares import Share
from rlconform.certify.options import CertifyOptions
from rlconform.certify.reproduce.render import Call
from rlconform.certify.results import Outcome, PlannedCheck

CHECK = PlannedCheck("unit/contract/test_get.py::a", "GET-04")
CALL = Call("client", "client.get_samples()", "r0 = attempt(client.get_samples())")
BEGUN = [
    events.TargetDescribed({"level": "unit", "capabilities": {}}),
    events.PlaneOpening(),
    events.PlaneOpened(),
    events.HealthNoted(),
    events.ChecksCollected([CHECK]),
    events.CheckBegan(CHECK.id),
    events.RemarkMade("a remark of the check"),
]


class _Hangs(child_process.TestProcess):
    """A test process that has sent events, and sends no more."""

    def __init__(self, sent: Sequence[Event], folder: Path) -> None:
        waiting: queue.Queue[Event] = queue.Queue()
        for event in sent:
            waiting.put(event)
        log = folder / "log"
        log.touch()
        super().__init__(waiting, 1, log, folder / "calls")

    def end(self, grace_s: float) -> None:
        """Do nothing: there is no process."""


class _HangingServer(ForkServer):
    """A fork server of which the only process hangs in a check."""

    def __init__(self, process: child_process.TestProcess) -> None:
        super().__init__()
        self._only = process

    def start(
        self, options: Sequence[str], files: Sequence[str], attached_clients: bool
    ) -> child_process.TestProcess:
        assert not attached_clients  # memory runs in one process
        assert list(options)
        assert list(files)
        return self._only


def test_a_check_that_hangs_after_a_remark_has_its_own_time_and_calls(tmp_path: Path) -> None:
    calls = CallsFile(str(tmp_path / "calls"))
    calls.restart(CHECK.id)
    calls.write(CALL)
    options = CertifyOptions("memory", check_timeout=0.2)
    state, server = RunState(options), _HangingServer(_Hangs(BEGUN, tmp_path))
    try:
        assert ShareRunner(state, options, server, Share()).run()
    finally:
        server.close()
    lost = state.run.results[CHECK.id]
    assert lost.outcome is Outcome.TIMEOUT
    assert lost.evidence == "the check did not end within 0.2 s"
    assert lost.steps == [CALL.text]
    assert lost.seconds < 60.0  # not what an event of no check may take
