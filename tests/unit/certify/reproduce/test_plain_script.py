"""Plain reproducers: they need the vendor's module alone, and decide as the check did."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from tensordict import TensorDict

from rlconform._resources import resource_dir
from rlconform.certify.assertions.expect import ContractViolation, expect_rejection
from rlconform.certify.recording.recorder import Recording
from rlconform.certify.recording.recording_client import RecordingClient
from rlconform.certify.reproduce import plain
from rlconform.certify.reproduce.expectations import ScriptExpectation
from rlconform.certify.reproduce.plain_script import plain_script
from rlconform.certify.reproduce.render import Origin
from rlconform.certify.scenarios.labeled_rows import labeled_column
from rlconform.certify.target import open_target
from rlconform.contract import DataPlaneClient

PLANES = resource_dir("fixtures") / "planes"
CHECK = "unit/contract/test_get.py::test_an_unknown_id_raises[ghost]"
ORIGIN = Origin("GET-04", CHECK, "hostile:drops_unknown_rows", {})
EVIDENCE = "expected an unknown id to be rejected with an error; got TensorDict(...)"


@pytest.fixture(scope="module")
def failed() -> Iterator[tuple[Recording, ScriptExpectation]]:
    """The calls of a check that reads an unknown row, and what it expected."""
    sys.path.insert(0, str(PLANES))
    recording, plane = Recording(), open_target(ORIGIN.spec)
    sys.path.remove(str(PLANES))
    with closing(plane):
        yield _failed(recording, plane)


def _failed(recording: Recording, plane: DataPlaneClient) -> tuple[Recording, ScriptExpectation]:
    client = RecordingClient(plane, recording)
    client.register_partition(
        partition_id="p", fields=["x"], num_samples=2, consumer_tasks=["train"]
    )
    rows = TensorDict({"x": labeled_column("p", ["a", "bb"], "x")}, batch_size=[2])
    client.put_samples(sample_ids=["a", "bb"], partition_id="p", fields=rows)
    client.claim_meta(
        partition_id="p", task_name="train", required_fields=["x"], batch_size=1, blocking=False
    )
    with pytest.raises(ContractViolation) as caught:
        expect_rejection(
            lambda: client.get_samples(sample_ids=["ghost"], partition_id="p", select_fields=["x"]),
            "an unknown id",
        )
    expected = recording.script_expectation(caught.value)
    assert expected is not None
    return recording, expected


@pytest.fixture(scope="module")
def script(failed: tuple[Recording, ScriptExpectation]) -> str:
    recording, expected = failed
    return plain_script(ORIGIN, EVIDENCE, recording.calls, expected)


def test_the_script_imports_the_vendors_module_and_nothing_of_rlconform(script: str) -> None:
    imported = {
        name
        for node in ast.walk(ast.parse(script))
        for name in (
            [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else [node.module or ""]
            if isinstance(node, ast.ImportFrom)
            else []
        )
    }
    assert "hostile" in imported
    assert imported <= {
        "hostile", "faulthandler", "sys", "os", "contextlib", "torch", "tensordict",
    }  # fmt: skip
    body = script.partition('\n"""\n')[2]
    assert "rlconform" not in body


@pytest.mark.parametrize(
    ("target", "code", "last"),
    [
        ("hostile import drops_unknown_rows", 1, "got TensorDict("),
        ("rlconform.backends.memory import TARGET as drops_unknown_rows", 0, "is gone"),
    ],
)
def test_the_script_shows_the_defect_until_it_is_gone(
    script: str, tmp_path: Path, target: str, code: int, last: str
) -> None:
    path = tmp_path / "GET-04_plain.py"
    path.write_text(script.replace("hostile import drops_unknown_rows", target), "utf-8")
    env = os.environ | {"PYTHONPATH": f"{PLANES.parents[1]}"}
    done = subprocess.run(
        [sys.executable, str(path)], cwd=PLANES, env=env, capture_output=True, text=True,
        timeout=100, check=False,
    )  # fmt: skip
    assert done.returncode == code, done.stdout + done.stderr
    assert last in done.stdout
    assert "get_samples -> " in done.stdout


@pytest.mark.parametrize(
    "changed",
    [
        {"concurrent": ("claim_meta",)},
        {"who": "client1"},
        {"after_reopen": True},
        {"source": "# r3 = attempt(client.get_samples, ...)"},
        {"source": "r3 = attempt(client.put_samples, fields=tensorclass_like('A', {}))"},
    ],
    ids=str,
)
def test_calls_that_no_plain_script_can_make_give_none(
    failed: tuple[Recording, ScriptExpectation], changed: dict[str, Any]
) -> None:
    recording, expected = failed
    calls = [*recording.calls[:-1], replace(recording.calls[-1], **changed)]
    assert plain_script(ORIGIN, EVIDENCE, calls, expected) == ""


def test_a_check_without_an_expectation_gives_none_unless_the_last_call_was_lost(
    failed: tuple[Recording, ScriptExpectation],
) -> None:
    recording, _ = failed
    assert plain_script(ORIGIN, EVIDENCE, recording.calls, None) == ""
    lost = plain_script(ORIGIN, EVIDENCE, recording.calls, None, lost=True)
    assert "faulthandler.dump_traceback_later" in lost
    ast.parse(lost)


class Ended(Exception):
    """Replaces the end of a script."""


@pytest.fixture
def ended(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    seen: list[Any] = []

    def end(code: int, *lines: str) -> None:
        seen.append((code, *lines))
        raise Ended

    monkeypatch.setattr(plain, "end", end)
    return seen


NAN = torch.tensor([[float("nan"), 1.0]])
BATCH = TensorDict({"x": torch.tensor([[1.0], [2.0]])}, batch_size=[2])
META = SimpleNamespace(sample_ids=["b", "a"], tags=None)
WRONG: list[tuple[Callable[[], object], str]] = [
    (lambda: plain.expect_returned(KeyError("x"), "a result"), "got KeyError: 'x'"),
    (lambda: plain.expect_rejection(3, "a bad call"), "expected a bad call to be rejected"),
    (lambda: plain.expect_equal(1, True, "the answer"), "expected the answer True"),
    (lambda: plain.expect_ids(META, ["a"], "ids"), "got ['a', 'b']"),
    (lambda: plain.expect_column(BATCH, "y", []), "got fields ['x']"),
    (lambda: plain.expect_column(BATCH, "x", list(torch.tensor([[1.0], [3.0]]))), "row 1 of 'x'"),
    (lambda: plain.expect_column(BATCH, "x", list(BATCH["x"].double())), "torch.float64 (1,)"),
    (lambda: plain.expect_rows_but_first(BATCH, "x", [BATCH["x"][0]] * 2), "untouched"),
    (lambda: plain.expect_unreadable(BATCH, "a", "x"), "not to be readable"),
    (lambda: plain.tags_by_id(META), "tags on the meta"),
]


@pytest.mark.parametrize(("judge", "said"), WRONG, ids=[said for _, said in WRONG])
def test_a_violation_ends_the_script_with_1(
    ended: list[Any], judge: Callable[[], object], said: str
) -> None:
    with pytest.raises(Ended):
        judge()
    ((code, *lines),) = ended
    assert code == 1
    assert said in "\n".join(lines)


def test_what_is_right_ends_nothing(ended: list[Any]) -> None:
    plain.expect_returned(None, "a result")
    plain.expect_rejection(KeyError("x"), "a bad call")
    plain.expect_unreadable(KeyError("x"), "a", "x")
    plain.expect_ids(META, ["a", "b"], "ids")
    plain.expect_column(TensorDict({"x": NAN}, [1]), "x", [NAN[0].clone()])
    plain.expect_rows_but_first(BATCH, "x", [torch.zeros(1), BATCH["x"][1]])
    tagged = SimpleNamespace(sample_ids=["a"], tags=[{"v": 1}])
    assert plain.tags_by_id(tagged) == {"a": {"v": 1}}
    assert ended == []


def test_calls_that_go_otherwise_leave_the_script_undecided(ended: list[Any]) -> None:
    error = KeyError("x")
    plain.went_as_before([None], [error], [(META, ["b", "a"])])
    assert ended == []
    for returned, raised, claimed in (
        ([error], [], []),
        ([], [None], []),
        ([], [], [(META, ["a", "b"])]),
    ):
        with pytest.raises(Ended):
            plain.went_as_before(returned, raised, claimed)
    assert [code for code, *_ in ended] == [2, 2, 2]


def test_the_rows_are_those_of_the_checks() -> None:
    for width in (0, 40):
        own = plain.labeled_column("p", ["a", "b"], "x", 2, width)
        assert torch.equal(own, labeled_column("p", ["a", "b"], "x", 2, width))
    uneven = plain.labeled_column("p", ["a", "bbb"], "x").unbind()
    theirs = labeled_column("p", ["a", "bbb"], "x").unbind()
    assert [row.tolist() for row in uneven] == [row.tolist() for row in theirs]
