"""Workloads and their logs with correct planes, and with planes that raise or hang."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from rlconform.backends.memory import MemoryClient
from rlconform.certify.assertions.expect import ContractViolation
from rlconform.certify.concurrency import logging_client
from rlconform.certify.concurrency.checkers.calls import hung
from rlconform.certify.concurrency.explain import check_history
from rlconform.certify.concurrency.history import History
from rlconform.certify.concurrency.logging_client import LoggingClient
from rlconform.certify.concurrency.operation import Operation, from_jsonl, to_jsonl
from rlconform.certify.concurrency.race_script import RACES, race_script
from rlconform.certify.concurrency.workload_runner import WorkloadRunner
from rlconform.certify.concurrency.workload_thread import WorkloadSpec, WorkloadThread
from rlconform.certify.concurrency.workloads import Claimer, Producer, Reader, SinglePut, Workload
from rlconform.certify.isolation.client_actor import ClientActor
from rlconform.certify.recording.recorder import MethodGivenUp
from rlconform.certify.reproduce.render import Origin
from rlconform.certify.reproduce.supervisor import EVENTS
from rlconform.certify.scenarios.labeled_rows import (
    version_of,
    versioned_batch,
    versioned_row,
    versions_in,
)
from rlconform.contract import Timeouts

PATIENCE_S = 10.0
QUICK = Timeouts(start=5, operation=3, settle=1, quiet=0.1, check=20)


def runner_on(client: Any, on_operations: Any = lambda _: None) -> WorkloadRunner:
    client.register_partition("p", ["x"], 8, ["train"])
    return WorkloadRunner(
        lambda n: [WorkloadThread(client) for _ in range(n)], "p", QUICK, "0", on_operations
    )


# -- operations --------------------------------------------------------------------------------


def test_a_history_comes_back_from_its_lines() -> None:
    operations = [
        Operation(who="a", op="put", start=1.0, end=2.0, ids=("r",), version=3, tags=({"w": 1},)),
        Operation(who="b", op="claim", start=1.5, task="train", asked=4, fields=("x",)),
        Operation(who="b", op="claim", start=1.5, end=2.5, ids=(None, "r"), tags=({}, {"w": 1})),
        Operation(
            who="c", op="get", start=2.0, end=3.0, ids=("r",), values=({"x": 3, "y": "odd"},)
        ),
        Operation(who="d", op="status", start=2.0, end=3.0, task="train", answer=False),
        Operation(who="e", op="clear", start=2.0, end=3.0, ids=("r",), error="KeyError: r"),
    ]
    assert from_jsonl(to_jsonl(operations)) == operations
    assert to_jsonl(operations[1:2]).count("\n") == 1


def test_a_call_without_an_end_or_with_an_error_is_never_sure() -> None:
    calls = [
        Operation(who="a", op="put", start=1.0, end=2.0),
        Operation(who="a", op="put", start=1.0, end=2.0, error="KeyError"),
        Operation(who="a", op="put", start=1.0),
    ]
    assert [call.until for call in calls] == [2.0, float("inf"), float("inf")]
    assert [call.latest for call in calls] == [2.0, 2.0, float("inf")]


# -- rows ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int16, torch.bfloat16, torch.float64])
def test_the_version_of_a_row_is_recognised_in_any_dtype(dtype: torch.dtype) -> None:
    for version in range(7):
        came = versioned_row("p", "r", "x", version, ragged=True).view(dtype)
        assert version_of(came, "p", "r", "x", dtype) == version


def test_what_is_not_the_row_asked_for_says_what_it_is() -> None:
    first, second = versioned_row("p", "r", "x", 1), versioned_row("p", "r", "x", 2)
    half = len(first) // 2
    cases = {
        "row of 's'": versioned_row("p", "s", "x", 1),
        "field 'y'": versioned_row("p", "r", "y", 1),
        "of partition 'q'": versioned_row("q", "r", "x", 1),
        "made of parts": torch.cat([first[:half], second[half:]]),
        "bytes that no put wrote": torch.zeros(16, dtype=torch.uint8),
        "torch.int64": first.view(torch.int64),
    }
    for said, came in cases.items():
        assert said in str(version_of(came, "p", "r", "x", torch.uint8))
    assert "made of parts" in str(version_of(first[:-1], "p", "r", "x", torch.uint8))


def test_rows_that_are_missing_from_a_read_are_named() -> None:
    came = versioned_batch("p", ["r"], ["x"], 1)
    assert versions_in(came, "p", ["r", "s"], ["x"]) == (
        {"x": 1},
        {"x": "no row: 1 returned for 2 ids"},
    )
    with pytest.raises(ContractViolation):
        versions_in(came, "p", ["r"], ["y"])


# -- running -------------------------------------------------------------------------------------


def test_every_call_of_a_run_is_logged() -> None:
    logged: list[Operation] = []
    runner = runner_on(MemoryClient(), logged.extend)
    runner.run(SinglePut(("a", "b")))
    history = runner.run(Claimer(reads=("x",)), Reader(("a", "ghost")))
    assert sorted(logged, key=lambda op: op.start) == history.operations
    by_op = {op: history.of(op) for op in ("put", "claim", "get")}
    (made,) = by_op["put"]
    assert (made.who, made.ids, made.fields, made.version) == ("singleput0", ("a", "b"), ("x",), 1)
    assert {i for claim in by_op["claim"] for i in claim.ids} == {"a", "b"}
    values = [read.values for read in by_op["get"] if read.ok]
    assert values == [({"x": 1},)] * len(values)
    assert {op.error.partition(":")[0] for op in by_op["get"] if op.error} == {"UnknownSample"}
    assert all(op.end is not None and op.start <= op.end for op in history.operations)


def test_the_same_seed_gives_the_same_random_choices() -> None:
    def drawn(seed: str) -> list[Any]:
        logging_client = LoggingClient(MemoryClient(), "p", "a", 0, seed)
        return [logging_client.rng.random() for _ in range(3)]

    assert drawn("1") == drawn("1") != drawn("2")


@pytest.mark.parametrize(
    ("each_s", "rounds"),
    [(0.011, 46), (0.03, 17), (0.06, 10), (0.1, 10), (0.125, 10), (0.25, 7), (2.0, 1)],
)
def test_slow_rounds_get_more_time_up_to_three_times(
    monkeypatch: pytest.MonkeyPatch, each_s: float, rounds: int
) -> None:
    clock = [0.0]
    monkeypatch.setattr(logging_client, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    done = 0
    for _ in LoggingClient(MemoryClient({}), "p", "a", 0, "0").rounds(0.5, 100):
        clock[0] += each_s
        done += 1
    assert done == rounds


class HangingClaim(MemoryClient):
    """Its second claim waits for an event that the test sets at its end."""

    def __init__(self) -> None:
        super().__init__()
        self.release = threading.Event()
        self.claims = 0
        self.claimer = threading.current_thread()

    def claim_meta(self, *args: Any, **kwargs: Any) -> Any:
        self.claims += 1
        if self.claims == 2:
            self.claimer = threading.current_thread()
            self.release.wait()
        return super().claim_meta(*args, **kwargs)


def test_a_call_that_hangs_has_no_end_and_is_reported() -> None:
    client = HangingClaim()
    history = runner_on(client).run(Producer(0.1), Claimer())
    client.release.set()
    client.claimer.join(PATIENCE_S)
    assert not client.claimer.is_alive()
    assert client.claims == 2  # given up: no other call follows the one that returned
    endless = [op for op in history.operations if op.end is None]
    assert [(op.op, op.who) for op in endless] == [("claim", "claimer1")]
    assert history.of("put")  # the log contains the other workloads' calls of this time too
    with pytest.raises(ContractViolation, match="hung: claimer1's claim did not return"):
        check_history(history, "claims", hung)


class RaisingPut(MemoryClient):
    """Puts nothing."""

    def put_samples(self, *_: Any, **__: Any) -> Any:
        raise ConnectionError("gone")


def test_what_a_plane_raises_is_data_and_ends_a_workload() -> None:
    history = runner_on(RaisingPut()).run(Producer(60.0))
    assert {op.error for op in history.operations} == {"ConnectionError: gone"}
    assert len(history.operations) < 50


class AnswersNone(MemoryClient):
    """Returns None in place of a meta."""

    def claim_meta(self, *_: Any, **__: Any) -> Any:
        return None


def test_an_answer_of_the_wrong_kind_is_data() -> None:
    history = runner_on(AnswersNone()).run(Claimer())
    assert "AttributeError" in history.operations[0].error


class Broken(Workload):
    """A workload that raises."""

    def run(self, client: LoggingClient) -> None:
        raise ZeroDivisionError(client.who)


def test_an_error_of_a_workload_is_the_kits_own() -> None:
    with pytest.raises(RuntimeError, match="ZeroDivisionError: broken0"):
        runner_on(MemoryClient()).run(Broken())


class EndlessRows(MemoryClient):
    """A claim always finds another row."""

    def __init__(self) -> None:
        super().__init__()
        self.claimer = threading.current_thread()
        self.asked = threading.Event()

    def claim_meta(self, *args: Any, **kwargs: Any) -> Any:
        self.claimer = threading.current_thread()
        self.asked.set()
        meta = super().claim_meta(*args, **kwargs)
        meta.sample_ids.append("one more")
        return meta


def test_claims_that_always_return_rows_are_reported_and_given_up() -> None:
    client = EndlessRows()
    client.register_partition("p", ["x"], 8, ["train"])
    short = Timeouts(start=5, operation=3, settle=1, quiet=0.1, check=1)
    runner = WorkloadRunner(lambda _: [WorkloadThread(client)], "p", short, "0", lambda _: None)
    with pytest.raises(ContractViolation, match="all rows to be claimed within"):
        runner.run(Claimer())
    client.claimer.join(PATIENCE_S)
    assert not client.claimer.is_alive()  # otherwise it would run during every later test


class Gone:
    """A workload handle whose process ended."""

    def begin(self, _: Any) -> None:
        """Do nothing."""

    def stop(self) -> None:
        """Do nothing."""

    def give_up(self) -> None:
        """Do nothing."""

    def finish(self, *_: float) -> Any:
        raise ContractViolation("a workload's operations", "its process died")


def test_when_one_process_ends_the_other_workloads_are_given_up() -> None:
    client = EndlessRows()
    client.register_partition("p", ["x"], 8, ["train"])
    runner = WorkloadRunner(
        lambda _: [WorkloadThread(client), Gone()], "p", QUICK, "0", lambda _: None
    )
    with pytest.raises(ContractViolation, match="a workload's operations"):
        runner.run(Claimer(), Producer(60.0))
    client.claimer.join(PATIENCE_S)
    assert not client.claimer.is_alive()  # otherwise it would claim forever


def test_a_reused_actor_runs_no_earlier_workload(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    client = EndlessRows()
    client.register_partition("p", ["x"], 8, ["train"])
    monkeypatch.setattr(client, "close", lambda: None)  # so that it ends only if given up
    monkeypatch.setattr("rlconform.certify.target.open_client", lambda *_: client)
    worker = ClientActor()
    assert worker.get_ready("memory") == (True, None)
    answer, seconds = worker.attach({})
    assert answer == (True, None)
    assert 0 <= seconds < PATIENCE_S
    worker.begin(WorkloadSpec(Claimer(), "p", "claimer0", 0, "0"))
    assert client.asked.wait(PATIENCE_S)
    worker.leave()
    client.claimer.join(PATIENCE_S)
    assert not client.claimer.is_alive()


def test_a_workload_whose_calls_were_given_up_does_not_run() -> None:
    given_up = {"claim_meta, not blocking": "claims hung in 3 checks"}
    taken: list[int] = []
    runner = WorkloadRunner(taken.append, "p", QUICK, "0", lambda _: None, given_up)  # type: ignore[arg-type]
    with pytest.raises(MethodGivenUp, match="claims hung"):
        runner.run(Producer(0.1), Claimer())
    assert taken == []


# -- scripts -------------------------------------------------------------------------------------


@pytest.mark.parametrize("race", RACES)
def test_a_races_script_finds_nothing_on_a_correct_plane(race: str, tmp_path: Path) -> None:
    check = "unit/contract/test_life.py::test_threads_share_a_client"
    origin = Origin("CLAIM-02", check, "memory", {})
    script = tmp_path / "script.py"
    script.write_text(race_script(origin, race, 'said """so"""', seconds=0.3), "utf-8")
    reading, writing = os.pipe()
    with os.fdopen(writing, "w"):
        ran = subprocess.run(
            [sys.executable, str(script)], cwd=tmp_path, capture_output=True, text=True,
            timeout=60, check=False, env=os.environ | {EVENTS: str(writing)}, pass_fds=[writing],
        )  # fmt: skip
    with os.fdopen(reading) as lines:
        events = [json.loads(line) for line in lines]
    assert ran.stdout == "", ran.stdout
    assert events == [{"event": "nothing", "expected": ""}], ran.stderr


def test_a_history_is_indexed_once() -> None:
    history = History([])
    assert history.puts is history.puts
    assert history.of("put") == []
