"""Reproducers: the script of a check's calls, its messages and its exit.

``tests/functional/test_reproducers.py`` checks the exit codes with real certifications: 1 on a
broken plane, 0 on a correct one.
"""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from tensordict import TensorDict

from rlconform.certify.assertions.expect import (
    ContractViolation,
    expect,
    expect_column,
    expect_equal,
    expect_objects,
    expect_rejection,
)
from rlconform.certify.recording.recorder import Recording
from rlconform.certify.recording.recording_client import RecordingClient
from rlconform.certify.reproduce.expectations import ScriptExpectation
from rlconform.certify.reproduce.render import (
    MAX_LINES,
    MAX_ROWS,
    Call,
    Origin,
    render_script,
    show,
)
from rlconform.certify.reproduce.supervisor import EVENTS
from rlconform.certify.reproduce.verdict import split_evidence
from rlconform.certify.scenarios.normalize_metas import tags_by_id
from rlconform.certify.scenarios.partition import expect_ids
from rlconform.certify.target import open_target
from rlconform.certify.threads import BackgroundCall
from rlconform.contract import load_requirements
from rlconform.wire import object_array

IDS = ["a", "b", "c"]
ORIGIN = Origin("GET-04", "unit/contract/test_get.py::test_an_unknown_id_raises", "memory", {})


def jagged(rows: list[torch.Tensor]) -> torch.Tensor:
    return torch.nested.nested_tensor(rows, layout=torch.jagged)


@pytest.fixture(scope="module")
def recording() -> Iterator[Recording]:
    """The calls of a check: columns of every kind, a claim, its rows, and two errors."""
    recording, plane = Recording(), open_target("memory")
    client = RecordingClient(plane, recording)
    client.register_partition(
        partition_id="p", fields=["x", "y", "m"], num_samples=3, consumer_tasks=["t"]
    )
    fields = TensorDict(
        {
            "x": torch.tensor([1.5, float("nan"), -0.0]),
            "y": jagged([torch.arange(2), torch.arange(0), torch.arange(3)]),
            "m": object_array(["it's", None, {"k": [1]}]),
        },
        batch_size=[3],
    )
    client.put_samples(
        sample_ids=IDS, partition_id="p", fields=fields, tags=[{"v": n} for n in range(3)]
    )
    assert client.check_consumption_status(partition_id="p", task_names=["t"]) is False
    meta = client.claim_meta(
        partition_id="p", task_name="t", required_fields=["x", "y"], batch_size=3, blocking=False
    )
    client.get_data(meta)
    for missing in ("ghost", None):
        with pytest.raises((LookupError, TypeError)):
            client.get_samples(sample_ids=[missing], partition_id="p", select_fields=["x"])
    yield recording
    plane.close()


EVIDENCE = 'expected """row a"""; got C:\\new\\row \x1b[31m\ud800'


@pytest.fixture(scope="module")
def script(recording: Recording, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("reproducers") / "GET-04.py"
    text = render_script(ORIGIN, EVIDENCE, recording.calls)
    path.write_text(text, encoding="utf-8", errors="backslashreplace")
    return path


def run_child(script: Path) -> tuple[str, dict[str, Any]]:
    """The output of a script's child, and the last event that it sends to its supervisor."""
    reading, writing = os.pipe()
    with os.fdopen(writing, "w"):
        ran = subprocess.run(
            [sys.executable, str(script)], cwd=script.parent, capture_output=True, text=True,
            timeout=60, check=False, env=os.environ | {EVENTS: str(writing)}, pass_fds=[writing],
        )  # fmt: skip
    with os.fdopen(reading) as lines:
        events = [json.loads(line) for line in lines]
    assert events, ran.stderr
    return ran.stdout, events[-1]


@pytest.fixture(scope="module")
def printed(script: Path) -> str:
    text, last = run_child(script)
    assert last == {"event": "nothing", "expected": ""}
    return text


def test_the_script_prints_the_results(printed: str) -> None:
    assert "register_partition -> None" in printed
    assert "check_consumption_status -> False" in printed
    assert "sample_ids=['a', 'b', 'c']" in printed
    assert "get_data -> batch of (3,)" in printed
    assert "    x: [1.5], [nan], [-0.0]" in printed
    assert "    y: [0, 1], [], [0, 1, 2]" in printed
    assert "get_samples raised UnknownSample" in printed
    assert "get_samples raised TypeError" in printed


def test_the_script_makes_the_same_calls_in_order(script: Path, recording: Recording) -> None:
    calls = [line for line in script.read_text().splitlines() if " = attempt(" in line]
    assert calls == [call.source for call in recording.calls]
    names = [line.partition("client.")[2].partition(",")[0] for line in calls]
    assert names == [call.text.partition(".")[2].partition("(")[0] for call in recording.calls]


def test_the_script_hands_the_claimed_meta_on(script: Path) -> None:
    assert "r4 = attempt(client.get_data, r3)" in script.read_text()
    assert "blocking=False" in script.read_text()


def test_the_script_opens_with_the_requirement(script: Path) -> None:
    said = ast.get_docstring(ast.parse(script.read_text())) or ""
    assert said.startswith("GET-04: ")
    assert " ".join(load_requirements()["GET-04"].sentence.split()) in " ".join(said.split())
    assert "C:\\new\\row" in said
    assert "Why it matters: " in said
    assert " ".join(load_requirements()["GET-04"].why.split()) in " ".join(said.split())


def test_the_script_imports_what_it_uses_and_no_more(script: Path) -> None:
    imported = {
        alias.asname or alias.name
        for node in ast.walk(ast.parse(script.read_text()))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
    }
    assert imported == {"Reproducer", "torch", "TensorDict", "object_array"}


@pytest.mark.parametrize("evidence", ['ends in "', "a\x00b", "\\", "'''", '"""', "\ud800", "a\rb"])
def test_no_evidence_breaks_the_script(evidence: str) -> None:
    expectation = ScriptExpectation("expect_equal(r0, 1, 'what')", 0, {})
    script = render_script(ORIGIN, evidence, [Call("client", "", "r0 = attempt(f)")], expectation)
    text = script.encode("utf-8", "backslashreplace").decode()
    assert ast.get_docstring(ast.parse(text))


def test_a_call_of_another_process_attaches_in_the_script() -> None:
    calls = [
        Call("client", "", "r0 = attempt(client.close)"),
        Call("actor1", "", "r1 = attempt(actor1.close)", number=1),
        Call("actor1", "", "r2 = attempt(actor1.close)", number=2),
    ]
    origin = replace(ORIGIN, spec="acme:PLANE", config={"port": 1})
    script = render_script(origin, "why", calls)
    assert "    'acme:PLANE',\n    {'port': 1},\n" in script
    assert script.count("actor1 = plane.attach()") == 1
    assert script.index("actor1 = plane.attach()") < script.index("r1 = ")
    ast.parse(script)


@pytest.mark.parametrize("source", ["r9 = attempt(client.close)", "# r9 = attempt(client.x, ...)"])
def test_calls_that_can_not_all_be_made_are_comments(source: str) -> None:
    more = MAX_LINES if not source.startswith("#") else 0
    calls = [Call("client", "", f"r{n} = attempt(client.close)", number=n) for n in range(more + 1)]
    expectation = ScriptExpectation("expect_equal(r0, 1, 'what')", 0, {})
    script = render_script(
        ORIGIN, "why", [*calls, Call("client", "", source, number=99)], expectation
    )
    made = [line for line in script.splitlines() if not line.startswith("#")]
    assert not [line for line in made if "attempt(client" in line or "expect_equal" in line]
    assert made[-1] == "plane.end()"


# -- threads -------------------------------------------------------------------------------------


def test_calls_that_ran_beside_others_are_begun_in_threads() -> None:
    recording, plane = Recording(), open_target("memory")
    client = RecordingClient(plane, recording)
    client.register_partition(partition_id="p", fields=["x"], num_samples=1, consumer_tasks=["t"])
    waiting = BackgroundCall(
        lambda: client.claim_meta(
            partition_id="p", task_name="t", required_fields=["x"], batch_size=1, timeout_s=20.0
        ),
        "a claim",
    )
    while len(recording.calls) < 2:
        waiting.wait_briefly()
    batch = TensorDict({"x": torch.ones(1)}, batch_size=[1])
    client.put_samples(sample_ids=["a"], partition_id="p", fields=batch)
    waiting.result(20.0)
    client.clear_samples(sample_ids=["a"], partition_id="p")
    plane.close()
    made = render_script(ORIGIN, "why", recording.calls).splitlines()
    starts = [line.partition("(")[0] for line in made if line.startswith("r")]
    claim = made[next(n for n, line in enumerate(made) if line.startswith("r1 = "))]
    assert claim.startswith("r1 = begin(client.claim_meta, ")
    assert starts[:3] == ["r0 = attempt", "r1 = begin", "r2 = attempt"]
    assert starts[3:] == ["r1 = finish", "r3 = attempt"]
    assert "races=True" in "\n".join(made)


# -- expectations --------------------------------------------------------------------------------


class Meta:
    """The meta that a plane's claim returns."""

    def __init__(self, ids: list[str], tags: list[dict[str, int]]) -> None:
        self.sample_ids, self.tags = ids, tags


BATCH = TensorDict({"x": torch.zeros(2, 3), "m": object_array(["a", None])}, batch_size=[2])

VIOLATIONS: dict[str, tuple[object, Callable[[Any], object], str]] = {
    "column": (
        BATCH,
        lambda result: expect_column(result, "x", [torch.ones(1)] * 2),
        "expect_column(r0, 'x', [torch.tensor([1.0], dtype=torch.float32), ",
    ),
    "objects": (
        BATCH,
        lambda result: expect_objects(result, "m", ["a", "b"]),
        "expect_objects(r0, 'm', ['a', 'b'])",
    ),
    "rejected": (
        None,
        lambda result: expect_rejection(lambda: result, "an id"),
        "expect_rejection(lambda: plane.result_of(r0), 'an id')",
    ),
    "ids": (
        Meta(["b"], []),
        lambda result: expect_ids(result, ["a"], "rows"),
        "expect_ids(r0, ['a'], 'rows')",
    ),
    "part": (
        Meta(["b"], []),
        lambda result: expect_equal(result.sample_ids, ["a"], "rows"),
        "expect_equal(r0.sample_ids, ['a'], 'rows')",
    ),
    "tags": (
        Meta(["b"], [{"v": 2}]),
        lambda result: expect_equal(tags_by_id(result), {"b": {"v": 1}}, "tags"),
        "expect_equal(tags_by_id(r0), {'b': {'v': 1}}, 'tags')",
    ),
    "status": (
        True,
        lambda result: expect_equal(result, False, "status"),
        "expect_equal(r0, False, 'status')",
    ),
    "fields": (
        BATCH,
        lambda result: expect_equal(sorted(map(str, result.keys())), ["x"], "fields"),
        "expect_equal(sorted(map(str, r0.keys())), ['x'], 'fields')",
    ),
}


def expectation_by(result: object, check: Callable[[Any], object]) -> ScriptExpectation | None:
    """The script's expectation for a check that reads ``result`` from its plane."""

    class Plane:
        def __getattr__(self, name: str) -> Callable[..., object]:
            return lambda **_: result

    recording = Recording()
    client = RecordingClient(Plane(), recording)  # type: ignore[arg-type]
    read = client.get_samples()  # type: ignore[attr-defined]
    with pytest.raises(ContractViolation) as caught:
        check(read)
    return recording.script_expectation(caught.value)


@pytest.mark.parametrize(("result", "check", "source"), VIOLATIONS.values(), ids=VIOLATIONS)
def test_what_a_check_expected_of_a_result_is_said_of_it(
    result: object, check: Callable[[Any], object], source: str
) -> None:
    expectation = expectation_by(result, check)
    assert expectation is not None
    assert expectation.source.startswith(source)
    assert expectation.number == 0


@pytest.mark.parametrize(
    "check",
    [
        lambda result: expect(len(result.sample_ids) == 3, "three rows", "one"),
        lambda result: expect_equal([*result.sample_ids, "x"], ["a"], "rows of two claims"),
        lambda result: expect_equal(len(result.sample_ids) + 4, 1, "rows"),
    ],
)
def test_what_is_no_results_is_left_to_the_check(check: Callable[[Any], object]) -> None:
    assert expectation_by(Meta(["b"], []), check) is None


def test_an_error_that_was_not_due_is_expected_not_to_come() -> None:
    recording, plane = Recording(), open_target("memory")
    client = RecordingClient(plane, recording)
    with pytest.raises(LookupError) as caught:
        client.get_samples(sample_ids=["a"], partition_id="p", select_fields=["x"])
    expectation = recording.script_expectation(caught.value)
    plane.close()
    assert expectation is not None
    assert expectation.source == "plane.result_of(r0)"
    script = render_script(ORIGIN, "expected a; got b", recording.calls, expectation)
    assert script.endswith("with plane.expecting('a'):\n    plane.result_of(r0)\nplane.end()\n")


def test_what_may_follow_from_a_claim_is_judged_after_the_same_claim_only() -> None:
    calls = [
        Call("client", "client.claim_meta(...)", "r0 = attempt(client.claim_meta)"),
        Call("client", "client.get_data(...)", "r1 = attempt(client.get_data, r0)", number=1),
    ]
    expectation = ScriptExpectation("expect_column(r1, 'x', [])", 1, {0: ["a", "b"]})
    script = render_script(ORIGIN, "why", calls, expectation)
    assert "plane.expect_same_claim(r0, ['a', 'b'])\nwith plane.expecting(" in script
    assert ", returned=[r0]):" in script


@pytest.mark.parametrize("raised", [frozenset(), frozenset({0})], ids=["returned", "raised"])
def test_a_script_whose_calls_go_otherwise_leaves_the_verdict_to_the_check(
    tmp_path: Path, raised: frozenset[int]
) -> None:
    """A plane may refuse a call that another one accepts; the expected result then differs."""
    register = (
        "r0 = attempt(client.register_partition, 'p', ['x'], 1, ['t'])"
        if raised
        else "r0 = attempt(client.get_samples, ['a'], 'p', ['x'])"
    )
    calls = [
        Call("client", "", register),
        Call("client", "", "r1 = attempt(client.clear_samples, ['a'], 'p')", number=1),
    ]
    expectation = ScriptExpectation("expect_equal(r1, 'else', 'what')", 1, {}, raised)
    script = tmp_path / "script.py"
    script.write_text(render_script(ORIGIN, "expected a; got b", calls, expectation))
    assert run_child(script)[1] == {"event": "nothing", "expected": "a"}
    script.write_text(
        render_script(ORIGIN, "expected a; got b", calls, replace(expectation, raised={0} - raised))
    )
    assert run_child(script)[1]["event"] == "verdict"


@pytest.mark.parametrize(
    ("evidence", "expected", "got"),
    [
        ("expected a; got b; got c", "a", "b; got c"),
        ("of x: expected a; got b (found with --seed 0)", "of x: a", "b (found with --seed 0)"),
        (
            "the plane's get_samples raised KeyError",
            None,
            "the plane's get_samples raised KeyError",
        ),
    ],
)
def test_evidence_is_told_as_expected_and_got(
    evidence: str, expected: str | None, got: str
) -> None:
    said = split_evidence(evidence)
    assert said == (expected or "the plane to do what the requirement asks", got)


# -- how a script ends ---------------------------------------------------------------------------

SOON = """
from rlconform.backends.memory import MemoryClient
from rlconform.contract import Target, Timeouts

TARGET = Target(name="soon", open=MemoryClient, timeouts=Timeouts(operation=3, settle=2))
"""
ENDS: dict[str, tuple[str, int, str, str]] = {
    "crash": (
        "attempt(lambda: os._exit(3))",
        1,
        "expected the process that uses the plane to survive",
        "got it exited with status 3",
    ),
    "signal": (
        "attempt(lambda: os.kill(os.getpid(), 11))",
        1,
        "expected the process that uses the plane to survive",
        "got it was killed by SIGSEGV",
    ),
    "hang": (
        "attempt(threading.Event().wait)",
        1,
        "expected wait() to return within 5 s",
        "got nothing: it still runs",
    ),
    "hang_in_a_thread": (
        "r0 = begin(threading.Event().wait)\nattempt(client.clear_samples, ['a'], 'p')\nfinish(r0)",
        1,
        "expected wait() to return within 5 s",
        "got nothing: it still runs",
    ),
    "violation": (
        "with plane.expecting('x'):\n    expect_equal(1, 2, 'the number')",
        1,
        "expected the number 2",
        "got 1",
    ),
    "error": (
        "r0 = attempt(client.get_samples, ['a'], 'p', ['x'])\n"
        "with plane.expecting('rows'):\n    plane.result_of(r0)",
        1,
        "expected rows",
        "got UnknownPartition",
    ),
    "error_as_a_result": (
        "r0 = attempt(client.get_samples, ['a'], 'p', ['x'])\n"
        "with plane.expecting('rows'):\n    expect_column(r0, 'x', [])",
        1,
        "expected get_samples to return",
        "got it raised UnknownPartition",
    ),
    "own_fault": (
        "with plane.expecting('x'):\n    nobody()",
        2,
        "expected a plane that opens and calls that can be judged",
        "got it exited with status 1",
    ),
    "no_process_to_attach": (
        "plane.attach()",
        2,
        "expected a plane to attach to",
        "got soon:TARGET, which declares level unit",
    ),
}


@pytest.mark.parametrize(("body", "code", "expected", "got"), ENDS.values(), ids=ENDS)
def test_a_script_ends_with_what_was_expected_and_what_it_got(
    tmp_path: Path, body: str, code: int, expected: str, got: str
) -> None:
    script = tmp_path / "script.py"
    (tmp_path / "soon.py").write_text(SOON)
    script.write_text(
        "from rlconform.certify.reproduce import Reproducer\n"
        f"plane = Reproducer('soon:TARGET', requirement='GET-04', check={ORIGIN.check!r})\n"
        "attempt, begin, finish = plane.attempt, plane.begin, plane.finish\n"
        "import os, threading\n"
        "from rlconform.certify.assertions.expect import expect_column, expect_equal\n"
        f"client = plane.open()\n{body}\nplane.end()\n"
    )
    ran = subprocess.run(
        [sys.executable, str(script)], cwd=tmp_path, capture_output=True, text=True, timeout=100,
        check=False,
    )  # fmt: skip
    last = ran.stdout.splitlines()[-2:]
    assert (ran.returncode, last[0][: len(expected)]) == (code, expected), ran.stdout + ran.stderr
    assert last[1].startswith(got)


def test_a_long_column_shows_its_first_rows(capsys: pytest.CaptureFixture[str]) -> None:
    show(TensorDict({"x": torch.arange(MAX_ROWS + 5)}, batch_size=[MAX_ROWS + 5]))
    printed = capsys.readouterr().out
    assert "[7], and 5 more" in printed
    assert "[8]" not in printed


def test_objects_are_shown_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    show(TensorDict({"m": object_array(["it's", None, {"k": [1]}])}, batch_size=[3]))
    assert "    m: \"it's\", None, {'k': [1]}" in capsys.readouterr().out
