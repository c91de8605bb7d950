"""A check has its time, whatever its process reports meanwhile."""

from __future__ import annotations

import queue
from collections.abc import Sequence
from dataclasses import replace
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


class _Server(ForkServer):
    """A fork server that starts nothing, but returns these processes one after another."""

    def __init__(self, *processes: child_process.TestProcess) -> None:
        super().__init__()
        self._next = iter(processes)
        self.attaches: list[bool] = []

    def start(
        self, options: Sequence[str], files: Sequence[str], attached_clients: bool
    ) -> child_process.TestProcess:
        self.attaches.append(attached_clients)
        assert list(options)
        assert list(files)
        return next(self._next)


def test_a_check_that_hangs_after_a_remark_has_its_own_time_and_calls(tmp_path: Path) -> None:
    calls = CallsFile(str(tmp_path / "calls"))
    calls.restart(CHECK.id)
    calls.write(CALL)
    options = CertifyOptions("memory", check_timeout=0.2)
    state, server = RunState(options), _Server(_Hangs(BEGUN, tmp_path))
    try:
        assert ShareRunner(state, options, server, Share()).run()
    finally:
        server.close()
    assert server.attaches == [False]  # memory runs in one process
    lost = state.run.results[CHECK.id]
    assert lost.outcome is Outcome.TIMEOUT
    assert lost.evidence == "the check did not end within 0.2 s"
    assert lost.steps == [CALL.text]
    assert lost.seconds < 60.0  # not what an event of no check may take


def test_clients_attach_until_the_target_is_known_to_have_one_process(tmp_path: Path) -> None:
    (tmp_path / "calls").touch()
    checks = [replace(CHECK, id=f"{CHECK.id}{n}") for n in range(2)]
    opening, began = BEGUN[:4], [events.CheckBegan(check.id) for check in checks]
    first = _Hangs([*opening, events.ChecksCollected(checks), began[0]], tmp_path)
    second = _Hangs([*opening, began[1]], tmp_path)
    options = CertifyOptions("acme:TARGET", check_timeout=0.2)
    state = RunState(options)
    server = _Server(first, second)
    try:
        assert ShareRunner(state, options, server, Share()).run()
    finally:
        server.close()
    assert [result.outcome for result in state.run.results.values()] == [Outcome.TIMEOUT] * 2
    assert server.attaches == [True, False]
