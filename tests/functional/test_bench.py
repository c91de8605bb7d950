"""``rlconform bench`` measures planes that work, planes that break, and handles an interruption."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Callable
from pathlib import Path
from textwrap import dedent

import pytest

from rlconform.bench.document import GROWTH_OPERATIONS, OPERATIONS, BenchDocument
from rlconform.bench.plan import Plan, load_plan, load_shape
from rlconform.bench.runner import BenchRunner
from rlconform.certify.target import TargetError

TINY = load_shape("tiny", quick=True).model_copy(update={"repetitions": 3})

RunningWith = Callable[[str, str], list[str]]


def small_plan(call_seconds: float) -> Plan:
    plan = load_plan(quick=True)
    return plan.model_copy(
        update={
            "call_seconds": call_seconds,
            "claim_rate": plan.claim_rate.model_copy(update={"rows": 200, "repetitions": 2}),
            "growth": plan.growth.model_copy(update={"rows": [100, 200], "repetitions": 2}),
            "wake": plan.wake.model_copy(update={"repetitions": 2}),
        }
    )


@pytest.fixture
def measure(
    tmp_path: Path,
    planes: Path,
    monkeypatch: pytest.MonkeyPatch,
    running_with: RunningWith,
) -> Callable[..., BenchDocument]:
    """``measure(*specs)``: a small run with the hostile planes; no process may remain."""

    def run(*specs: str, call_seconds: float = 60.0) -> BenchDocument:
        mark = uuid.uuid4().hex
        monkeypatch.chdir(planes)
        monkeypatch.setenv("RLCONFORM_TEST", mark)
        monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
        try:
            return BenchRunner(specs, [TINY], small_plan(call_seconds), quick=True).measure()
        finally:
            assert running_with("RLCONFORM_TEST", mark) == []

    return run


def everything(document: BenchDocument, target: str) -> list[object]:
    """The figures, or the refusal, for each measurement of the target."""
    found: list[object] = [
        r.seconds or r.refused for r in document.operations if r.target == target
    ]
    found += [r.rows_per_second or r.refused for r in document.claim_rate if r.target == target]
    found += [r.seconds or r.refused for r in document.growth if r.target == target]
    found += [r.from_start or r.refused for r in document.wake if r.target == target]
    return found


def measured(document: BenchDocument, target: str) -> bool:
    """Whether the target has figures for all measurements."""
    found = everything(document, target)
    expected = len(OPERATIONS) + 3 + 2 * len(GROWTH_OPERATIONS) + 1
    return len(found) == expected and not any(isinstance(what, str) for what in found)


@pytest.mark.robustness
def test_broken_planes_do_not_affect_the_others(
    measure: Callable[..., BenchDocument], tmp_path: Path
) -> None:
    (tmp_path / "strange.py").write_text(
        dedent(
            """
            import os

            from rlconform.backends.memory import MemoryClient
            from rlconform.contract import CapacityExceeded, Target

            class Unordered(MemoryClient):
                def get_samples(self, sample_ids, partition_id, select_fields):
                    return super().get_samples(sorted(sample_ids), partition_id, select_fields)

            class Small(MemoryClient):
                def put_samples(self, sample_ids, *args, **kwargs):
                    if len(sample_ids) > 100:
                        raise CapacityExceeded("there is room for 100 rows")
                    return super().put_samples(sample_ids, *args, **kwargs)

            class Dying(MemoryClient):
                def put_samples(self, *args, **kwargs):
                    os._exit(3)

            def alone(cfg, bootstrap):
                return Dying(cfg, bootstrap=True)

            ACTORS_DIE = Target(name="dies", open=alone, level="functional")
            """
        )
    )
    lost = {
        "hostile:segfaulting_get": "SIGSEGV",
        "hostile:exiting_put": "exited with status 3",
        "hostile:sleeping_claim": "consumer1.claim did not return in 5 s",
        "hostile:raises_on_open": "no server at 127.0.0.1:50051",
        "hostile:never_opens": "hung: opening the plane",
        "strange:ACTORS_DIE": "lost at tiny: put",
    }
    odd = ("strange:Unordered", "strange:Small")
    document = measure("memory", *lost, *odd, call_seconds=5.0)
    assert document.complete
    targets = {target.spec: target for target in document.targets}
    assert {spec for spec, target in targets.items() if target.status == "failed"} == set(lost)
    for spec, reason in lost.items():
        assert reason in targets[spec].reason
        assert not any(not isinstance(what, str) for what in everything(document, spec))
    assert targets["memory"].status == "measured"
    assert measured(document, "memory")

    refusals = {(r.target, r.shape): r.refused for r in document.operations if r.refused}
    assert "differ from what was put" in refusals["strange:Unordered", "tiny"]
    assert ("strange:Small", "tiny") not in refusals
    rates = {r.target: r.refused for r in document.claim_rate}
    assert "CapacityExceeded: there is room for 100 rows" in rates["strange:Small"]
    assert {r.rows_in_partition: bool(r.refused) for r in document.growth
            if r.target == "strange:Small"} == {100: False, 200: True}  # fmt: skip


def test_a_target_that_does_not_exist_stops_the_run(measure: Callable[..., BenchDocument]) -> None:
    with pytest.raises(TargetError, match="memroy"):
        measure("memory", "memroy")


def test_a_plane_of_several_processes(measure: Callable[..., BenchDocument]) -> None:
    document = measure("transfer_queue/simple", "memory")
    assert [target.processes for target in document.targets] == [True, False]
    assert measured(document, "transfer_queue/simple"), document.model_dump_json(indent=1)
    assert measured(document, "memory")
    (copy,) = document.memcpy
    assert copy.warm.n == 2 * TINY.repetitions


def test_the_command_writes_what_it_measured(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "rlconform", "bench", "memory", "--quick", "--shape", "tiny"]
    done = subprocess.run(
        [*command, "--out", str(tmp_path / "out")],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    document = BenchDocument.model_validate_json(
        (tmp_path / "out" / "bench.json").read_text("utf-8")
    )
    assert document.complete
    assert measured(document, "memory")
    assert "within one process" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["memory", "--shape", "huge"], "no shape 'huge'"),
        ([], "give targets"),
        (["--show", "absent.json"], "absent.json"),
        (["nobody/knows", "--quick"], "unknown target 'nobody/knows'"),
    ],
)
def test_bad_arguments_are_reported_in_one_line(
    arguments: list[str], message: str, tmp_path: Path
) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "rlconform", "bench", *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        cwd=tmp_path,
    )
    assert done.returncode == 2, done.stdout
    assert message in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr


@pytest.mark.usefixtures("heeding_interrupts")
@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_writes_its_figures(
    sent: signal.Signals, tmp_path: Path, running_with: RunningWith
) -> None:
    mark = uuid.uuid4().hex
    command = [sys.executable, "-m", "rlconform", "bench", "memory", "--shape", "llama8b"]
    process = subprocess.Popen(
        [*command, "--out", str(tmp_path / "out")],
        stdout=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
        env=os.environ | {"RLCONFORM_TEST": mark, "PYTHONUNBUFFERED": "1"},
    )
    assert process.stdout is not None
    assert "ready" in process.stdout.readline()
    process.send_signal(sent)
    output, _ = process.communicate(timeout=60)
    document = BenchDocument.model_validate_json(
        (tmp_path / "out" / "bench.json").read_text("utf-8")
    )
    assert not document.complete
    assert "interrupted" in document.notes[0]
    assert "Partial" in output
    assert process.returncode in {1, 3}  # 3 if interrupted before the first figure
    assert running_with("RLCONFORM_TEST", mark) == []
