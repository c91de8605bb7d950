"""Events that a test process sends to the runner are restored exactly."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from rlconform.certify.isolation import events
from rlconform.certify.reproduce.render import Call
from rlconform.certify.results import CheckResult, Outcome, PlannedCheck

#: A value for each type of field.
VALUES: dict[str, Any] = {
    "list[str]": ["n1", "n2"],
    "int": 3,
    "int | None": None,
    "float": 0.5,
    "str": "\ud800 of a plane\n",
    "bool": True,
    "dict[str, Any]": {"name": "acme", "timeouts": {"start": 5.0}},
    "list[PlannedCheck]": [PlannedCheck("unit/contract/test_x.py::test_y", "GET-01")],
    "Call": Call(
        "client", "client.close()", "client.close()", concurrent=["a"], concurrent_numbers=[1]
    ),
    "CheckResult": CheckResult("id", "GET-01", Outcome.FAIL, warnings=["w"], leans_on=["PUT-01"]),
}


@pytest.mark.parametrize("kind", events.Event.__subclasses__(), ids=lambda kind: kind.__name__)
def test_every_event_arrives_as_it_was(kind: type[events.Event]) -> None:
    event = kind(**{field.name: VALUES[str(field.type)] for field in fields(kind)})
    line = events.encode(event).decode()
    assert line.count("\n") == 1
    assert events.decode(line) == event


def test_a_line_that_was_cut_short_is_no_event() -> None:
    line = events.encode(events.CheckBegan("unit/contract/test_x.py::test_y")).decode()
    assert events.decode(line[:-5]) is None
    assert events.decode("\n") is None


def test_a_pipe_writes_lines_and_nothing_where_no_runner_listens() -> None:
    reading, writing = os.pipe()
    pipe = events.EventPipe(writing)
    assert pipe.watched
    pipe.send(events.PlaneOpening())
    pipe.send(events.RemarkMade("done"))
    os.close(writing)
    with os.fdopen(reading) as lines:
        received = [one for line in lines if (one := events.decode(line))]
    assert received == [events.PlaneOpening(), events.RemarkMade("done")]
    silent = events.EventPipe(None)
    assert not silent.watched
    silent.send(events.PlaneOpening())


@pytest.mark.parametrize(
    "line",
    [b"", b"\n", b"[]", b"3", b"null", b'{"event": 3}', b'{"event": "None"}', b'{"a": 1}', b"\xff",
     b'{"event": "CheckEnded"}', b'{"event": "CheckBegan", "check": 3}', b"[" * 100_000],
)  # fmt: skip
def test_what_a_plane_writes_to_the_pipe_is_no_event(line: bytes) -> None:
    assert events.decode(line) is None


def test_what_a_plane_writes_to_the_pipe_loses_no_event() -> None:
    reading, writing = os.pipe()
    pipe = events.EventPipe(writing)
    os.write(writing, b'garbage without an end {"event":')
    pipe.send(events.PlaneOpening())
    os.close(writing)
    with os.fdopen(reading, "rb") as lines:
        assert [one for line in lines if (one := events.decode(line))] == [events.PlaneOpening()]


#: Closes the pipe as a plane would; its number is that of a file then.
CLOSING = """
import os, sys
from rlconform.certify.isolation import events
reading, writing = os.pipe()
pipe = events.EventPipe(writing)
os.close(writing)
assert sys.argv[1] == "closed" or os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT) == writing
pipe.send(events.PlaneOpening())
"""


@pytest.mark.parametrize("replaced", [True, False])
def test_a_process_whose_pipe_was_closed_ends_and_writes_to_no_other_file(
    tmp_path: Path, replaced: bool
) -> None:
    other = tmp_path / "file of the plane"
    command = [sys.executable, "-c", CLOSING, str(other) if replaced else "closed"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == events.PIPE_CLOSED
    assert "the plane closed the pipe to the runner" in done.stderr
    assert not replaced or other.read_bytes() == b""
