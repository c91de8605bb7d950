"""Reproducers: the script of a check's calls runs by itself and shows what the plane does."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from tensordict import NonTensorData, NonTensorStack, TensorDict

from rlconform.certify.evidence.expect import (
    expect_column,
    expect_objects,
    row_difference,
    same_object,
)
from rlconform.certify.evidence.recorder import Recording, RecordingClient
from rlconform.certify.evidence.replay import (
    MAX_LINES,
    MAX_ROWS,
    Call,
    attempt,
    render_script,
)
from rlconform.certify.evidence.source import literal
from rlconform.certify.resolve import open_target
from rlconform.certify.scenes.payload import random_rows
from rlconform.contract import KVBatchMeta, load_requirements
from rlconform.wire import object_array, rows_of

IDS = ["a", "b", "c"]


def jagged(rows: list[torch.Tensor]) -> torch.Tensor:
    return torch.nested.nested_tensor(rows, layout=torch.jagged)


def remade(value: Any) -> Any:
    """What the source of ``value`` makes in a script."""
    names = {
        "torch": torch,
        "TensorDict": TensorDict,
        "NonTensorData": NonTensorData,
        "NonTensorStack": NonTensorStack,
        "SimpleNamespace": SimpleNamespace,
        "nan": float("nan"),
        "inf": float("inf"),
    }
    return eval(literal(value), names)


# -- values --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "value",
    [
        None, True, 0, -1.5, "it's \"a\"\n\\", b"\x00", [], [1, [None, "a"]],
        {"k": [1, {"n": 2.0}]}, (1, "a"), ["a"] * 100, {1, 2},
    ],
    ids=repr,
)  # fmt: skip
def test_a_plain_value_is_made_again(value: Any) -> None:
    assert same_object(remade(value), value)


@pytest.mark.parametrize(
    "dtype",
    [
        torch.bool, torch.uint8, torch.int8, torch.int16, torch.uint16, torch.int32, torch.uint32,
        torch.int64, torch.uint64, torch.float16, torch.bfloat16, torch.float32, torch.float64,
        torch.float8_e4m3fn, torch.float8_e5m2, torch.complex64,
    ],
    ids=str,
)  # fmt: skip
@pytest.mark.parametrize("shape", [(), (3,), (0,), (2, 0, 3), (2, 1, 2)], ids=str)
def test_a_tensor_is_made_again_bitwise(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    (value,) = random_rows(dtype, [shape])
    assert row_difference(remade(value), value) is None


@pytest.mark.parametrize(
    "bits",
    [0x7FC00000, 0x7FC00001, 0x80000000, 0x7F800000, 0xFF800000],
    ids=["nan", "nan with a payload", "-0.0", "inf", "-inf"],
)
def test_odd_floats_are_made_again_bitwise(bits: int) -> None:
    value = torch.tensor([bits, bits]).to(torch.int32).view(torch.float32)
    assert row_difference(remade(value), value) is None
    pair = value.view(torch.complex64)
    assert row_difference(remade(pair), pair) is None


def test_a_large_tensor_keeps_dtype_and_shape() -> None:
    value = torch.ones(100, 7, dtype=torch.bfloat16)
    assert (remade(value).dtype, remade(value).shape) == (value.dtype, value.shape)
    assert len(literal(value)) < 100


@pytest.mark.parametrize(
    "rows",
    [
        [torch.arange(2), torch.arange(0), torch.arange(3)],
        [torch.arange(0), torch.arange(0)],
        [torch.ones(1, 2), torch.ones(3, 2)],
    ],
)
def test_a_jagged_column_is_made_again(rows: list[torch.Tensor]) -> None:
    came = remade(jagged(rows))
    assert came.is_nested
    assert [row_difference(*pair) for pair in zip(rows_of(came), rows, strict=True)] == [
        None
    ] * len(rows)


def test_a_sparse_tensor_is_made_again() -> None:
    came = remade(torch.eye(3).to_sparse())
    assert came.is_sparse
    assert torch.equal(came.to_dense(), torch.eye(3))


OBJECTS = ["text", None, {"turns": [{"role": "user", "tokens": torch.arange(2)}, (1, 0.5)]}]


@pytest.mark.parametrize(
    "column",
    [
        lambda: object_array(OBJECTS),
        lambda: NonTensorStack(*[NonTensorData(value) for value in OBJECTS]),
    ],
    ids=["array", "stack"],
)
def test_a_batch_is_made_again(column: Callable[[], Any]) -> None:
    rows = [torch.arange(1), torch.arange(3), torch.arange(2)]
    came = remade(
        TensorDict({"x": torch.ones(3, 2), "y": jagged(rows), "m": column()}, batch_size=[3])
    )
    assert came.batch_size == (3,)
    expect_column(came, "x", list(torch.ones(3, 2)))
    expect_column(came, "y", rows)
    expect_objects(came, "m", OBJECTS)


def test_a_nested_batch_is_made_again() -> None:
    nested = TensorDict({"deep": torch.ones(3)}, batch_size=[3])
    came = remade(TensorDict({"y": nested}, batch_size=[3]))
    assert came["y", "deep"].tolist() == [1, 1, 1]


def test_a_meta_is_made_again_or_named() -> None:
    meta = KVBatchMeta("p", "t", ["a"], ["x"], [3], {"pad": 8}, [{"v": 1}])
    assert vars(remade(meta)) == vars(meta)
    assert literal(meta, {id(meta): "r3"}) == "r3"
    assert literal(KVBatchMeta("p", "t", ["a"]), {id(meta): "r3"}) != "r3"


@pytest.mark.parametrize("answer", [None, True, False, 0])
def test_a_value_that_many_share_is_never_named(answer: Any) -> None:
    """``blocking=True`` is not the earlier answer, though Python has one ``True`` only."""
    assert literal(answer, {id(answer): "r1"}) == repr(answer)


def test_a_number_array_is_made_again() -> None:
    assert remade(np.array([1, 2])) == [1, 2]


# -- scripts -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def recording() -> Iterator[Recording]:
    """Calls as a check makes them: columns of every kind, a claim, its rows, and two errors."""
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


EVIDENCE = 'expected """row a"""; came C:\\new\\row \x1b[31m\ud800'


@pytest.fixture(scope="module")
def script(recording: Recording, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("reproducers") / "GET-04.py"
    text = render_script("GET-04", EVIDENCE, recording.calls, "memory", {})
    path.write_text(text, encoding="utf-8", errors="backslashreplace")
    return path


@pytest.fixture(scope="module")
def ran(script: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(script)],
        cwd=script.parent,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_the_script_runs_to_its_end(ran: subprocess.CompletedProcess[str]) -> None:
    assert ran.returncode == 0, ran.stderr


def test_the_script_prints_what_came(ran: subprocess.CompletedProcess[str]) -> None:
    printed = ran.stdout
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


@pytest.mark.parametrize("evidence", ['ends in "', "a\x00b", "\\", "'''", '"""', "\ud800", "a\rb"])
def test_no_evidence_breaks_the_script(evidence: str) -> None:
    script = render_script("GET-04", evidence, [], "memory")
    text = script.encode("utf-8", "backslashreplace").decode()
    assert ast.get_docstring(ast.parse(text))


def test_calls_of_threads_are_told_to_be_such() -> None:
    alone = Call("client", "", "r0 = attempt(client.close)")
    beside = replace(alone, beside=("client.get_samples()",))
    assert "ran in threads" in render_script("GET-04", "why", [alone, beside], "memory")
    assert "ran in threads" not in render_script("GET-04", "why", [alone], "memory")


def test_the_script_names_a_call_before_it_ends_the_process(tmp_path: Path) -> None:
    script = tmp_path / "dies.py"
    script.write_text(
        "import os\n"
        "from rlconform.certify.evidence.replay import attempt\n"
        "def claim_meta(): os._exit(3)\n"
        "attempt(claim_meta)\n"
    )
    ran = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, timeout=60, check=False
    )
    assert (ran.returncode, ran.stdout) == (3, "claim_meta ")


def test_a_long_column_shows_its_first_rows(capsys: pytest.CaptureFixture[str]) -> None:
    attempt(lambda: TensorDict({"x": torch.arange(MAX_ROWS + 5)}, batch_size=[MAX_ROWS + 5]))
    printed = capsys.readouterr().out
    assert "[7], and 5 more" in printed
    assert "[8]" not in printed


def test_objects_are_shown_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    attempt(lambda: TensorDict({"m": object_array(["it's", None, {"k": [1]}])}, batch_size=[3]))
    assert "    m: \"it's\", None, {'k': [1]}" in capsys.readouterr().out


def test_the_script_says_why_it_matters(script: Path) -> None:
    said = ast.get_docstring(ast.parse(script.read_text())) or ""
    assert "Why it matters: " in said
    assert " ".join(load_requirements()["GET-04"].why.split()) in " ".join(said.split())


def test_a_call_of_another_process_attaches_in_the_script() -> None:
    calls = [
        Call("client", "", "r0 = attempt(client.close)"),
        Call("actor1", "", "r1 = attempt(actor1.close)"),
        Call("actor1", "", "r2 = attempt(actor1.close)"),
    ]
    script = render_script("GET-04", "why", calls, "acme:PLANE", {"port": 1})
    assert "client = open_target('acme:PLANE', {'port': 1})\n" in script
    assert script.count("actor1 = open_target('acme:PLANE', {'port': 1}, bootstrap=False)") == 1
    assert script.index("actor1 = open_target") < script.index("r1 = ")
    ast.parse(script)


def test_a_long_history_is_cut_and_says_so() -> None:
    calls = [Call("client", "", f"r{n} = attempt(client.close)") for n in range(MAX_LINES + 3)]
    script = render_script("GET-04", "why", calls, "memory")
    assert script.count(" = attempt(") == MAX_LINES
    assert "# ... and 3 more calls" in script
