"""Ctrl-C at any point leaves a report that says it is partial, or none, and no process."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from typing import Any

import pytest

#: Runs the command, and interrupts it where a function is called, or an event arrives.
PROGRAM = """
import os, signal, sys, threading, time
from importlib import import_module
from rlconform.cli import main

point, sent, again, *arguments = sys.argv[1:]
module, _, name = point.partition(":")
owner = import_module(module)
*path, last = name.split(".")
for part in path:
    owner = getattr(owner, part)
original = getattr(owner, last)

def interrupt_often(handler):
    while signal.getsignal(int(sent)) == handler:  # until the command is over
        os.kill(os.getpid(), int(sent))
        time.sleep(0.005)

def interrupted(*args, **kwargs):
    setattr(owner, last, original)
    if again == "again":
        handler = signal.getsignal(int(sent))
        threading.Thread(target=interrupt_often, args=(handler,), daemon=True).start()
    os.kill(os.getpid(), int(sent))
    return original(*args, **kwargs)

setattr(owner, last, interrupted)
sys.argv[1:] = arguments
main()
"""
CERTIFY = "rlconform.certify."
#: Where the signal arrives, and whether checks have run by then: None if it is too late to stop.
POINTS: dict[str, bool | None] = {
    "rlconform.cli.certify:check_writable": False,
    f"{CERTIFY}isolation.runner:Runner.certify": False,
    f"{CERTIFY}isolation.forkserver:ForkServer._open": False,
    f"{CERTIFY}isolation.child_process:TestProcess.next_event": False,
    f"{CERTIFY}isolation.check_in_flight:CheckInFlight.__post_init__": True,
    f"{CERTIFY}isolation.run_state:RunState._note": True,
    f"{CERTIFY}isolation.workspace:Workspace.close": None,
    f"{CERTIFY}certify:judge": None,
    f"{CERTIFY}report.report_folder:render_certificate": None,
    f"{CERTIFY}report.report_folder:_write": None,
    "rlconform.cli.certify:print_summary": None,
}


@pytest.mark.timeout(300)
@pytest.mark.usefixtures("heeding_interrupts")
@pytest.mark.parametrize("again", ["once", "again"])
@pytest.mark.parametrize("point", POINTS, ids=lambda point: point.rpartition(":")[2])
def test_what_was_found_is_reported(
    user: Any, left_behind: Callable[[], list[str]], point: str, again: str
) -> None:
    ran = POINTS[point]
    sent = str(int(signal.SIGINT))
    arguments = ["certify", "memory", "-k", "test_stat.py", "--out", str(user.out)]
    done = user.start(["-c", PROGRAM, point, sent, again, *arguments])
    stdout, stderr = done.communicate(timeout=200)
    assert "Traceback" not in stderr + stdout, stderr
    if ran is False:
        assert done.returncode == 2, stdout + stderr
        assert "interrupted before the first check" in stderr
        assert not user.out.exists()
    else:
        assert done.returncode in {1, 3}, stdout + stderr  # 3: no check was over
        report = json.loads((user.out / "report.json").read_text("utf-8"))
        assert report["footer"]["complete"] is (ran is None)
        said = [note for note in report["notes"] if "interrupted: the report is partial" in note]
        assert bool(said) is bool(ran)
        assert (user.out / "report.html").is_file()
    assert left_behind() == []


@pytest.mark.timeout(300)
@pytest.mark.usefixtures("heeding_interrupts")
def test_planes_at_the_same_time_are_all_ended(
    user: Any, left_behind: Callable[[], list[str]]
) -> None:
    point = f"{CERTIFY}isolation.check_in_flight:CheckInFlight.__post_init__"
    arguments = ["certify", "memory", "--jobs", "3", "--out", str(user.out)]
    done = user.start(["-c", PROGRAM, point, str(int(signal.SIGINT)), "once", *arguments])
    stdout, stderr = done.communicate(timeout=200)
    assert "Traceback" not in stderr + stdout, stderr
    assert done.returncode in {1, 3}, stdout + stderr
    report = json.loads((user.out / "report.json").read_text("utf-8"))
    assert not report["footer"]["complete"]
    assert "interrupted: the report is partial" in report["notes"]
    assert left_behind() == []


@pytest.mark.timeout(300)
def test_two_certifications_at_once_never_meet(
    user: Any, left_behind: Callable[[], list[str]]
) -> None:
    first = user.certify("memory", "-v", "-k", "test_get.py or test_stat.py")
    while not user.out.exists():  # it holds the folder from then on
        assert first.poll() is None
    beside = user.certify("memory", "-k", "test_stat.py", out=user.path / "beside")
    same = user.certify("memory", "-k", "test_stat.py")
    _, refused = same.communicate(timeout=200)
    assert same.returncode == 2
    assert "another certification is about to write its report there" in refused
    outputs = [one.communicate(timeout=200) for one in (first, beside)]
    for out in (user.out, user.path / "beside"):
        report = json.loads((out / "report.json").read_text("utf-8"))
        assert report["footer"]["complete"], outputs
        assert {c["outcome"] for c in report["checks"] if c["ran"]} == {"PASS"}
    assert left_behind() == []
