"""Events that a test process sends to the runner are restored exactly."""

from __future__ import annotations

import os
from dataclasses import fields
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
