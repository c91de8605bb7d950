"""Long runs find planes that are wrong beyond a few calls, and shorten a run that fails."""

from __future__ import annotations

import asyncio
import re
import threading
import time
from collections import Counter
from contextlib import closing
from dataclasses import replace
from random import Random
from typing import Any, ClassVar, cast

import pytest
import torch
from tensordict import TensorDict

from rlconform.backends.memory import TARGET as MEMORY
from rlconform.backends.memory import MemoryClient
from rlconform.certify.isolation.scattering_client import Policy, ScatteringClient
from rlconform.certify.properties import runner as runner_module
from rlconform.certify.properties.long_runs import run as run_module
from rlconform.certify.properties.long_runs.caller import THREADS, CallerInMode, Mode
from rlconform.certify.properties.long_runs.near_columns import LONG, NearColumns
from rlconform.certify.properties.long_runs.near_objects import NearObjects
from rlconform.certify.properties.long_runs.near_values import KINDS, FieldKind, NearRows
from rlconform.certify.properties.long_runs.plan import LONG_RUNS
from rlconform.certify.properties.long_runs.run import (
    STEPS,
    SharedRuns,
    fewer_steps,
    run_long_runs,
)
from rlconform.certify.properties.long_runs.standing_claims import AWAITED, WAITING, StandingClaims
from rlconform.certify.properties.runner import FailedExample, PropertyRunner
from rlconform.certify.recording.recorder import Recording
from rlconform.certify.recording.recording_client import RecordingClient
from rlconform.certify.scenarios.partition import PartitionUnderTest
from rlconform.contract import Target
from rlconform.mutants.registry import all_mutants

#: Profiles, and mutants whose defects their runs find.
FOUND = (
    ("PUT-13", "clear_keeps_dtypes"),
    ("PUT-21", "put_object_type_guessed"),
    ("TAG-01", "claim_lengths_decided_by_first_row"),
    ("CLAIM-02", "claim_repeats_overwritten_rows"),
    ("CLAIM-02", "claim_watches_what_the_oldest_row_lacks"),
    ("CLAIM-03", "added_task_lacks_rows_of_several_puts"),
    ("STAT-01", "claim_repeats_overwritten_rows"),
    ("PUT-16", "put_failed_rows_counted"),
    ("GET-13", "get_data_in_order_of_claim"),
)


def run_on(target: Target, profile: str, shared: SharedRuns | None = None) -> PropertyRunner:
    """Make the long runs of a profile, but those of ``shared``; return the runner."""
    with closing(target.open(target.config, True)) as client:
        recording = RecordingClient(client, Recording())
        runner = PropertyRunner(recording, target.timeouts, stream="a long run")
        run_long_runs(runner, LONG_RUNS[profile], SharedRuns() if shared is None else shared)
    return runner


@pytest.mark.usefixtures("unhurried")
@pytest.mark.parametrize(("profile", "name"), FOUND)
def test_a_wrong_plane_is_found(profile: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner_module, "SHRINK_S", 1.0)
    _, mutant = all_mutants()[name]
    with pytest.raises(FailedExample, match="found with --seed 0, which repeats it"):
        run_on(mutant, profile)


class RefusesNames(MemoryClient):
    """A right plane whose fields and tasks have names of some characters; only ids are opaque."""

    def register_partition(
        self, partition_id: str, fields: Any, num_samples: Any, consumer_tasks: Any, **how: Any
    ) -> None:
        for name in [*fields, *consumer_tasks]:
            if not re.fullmatch("[A-Za-z0-9_]{1,64}", name):
                raise ValueError(f"no name: {name!r}")
        super().register_partition(partition_id, fields, num_samples, consumer_tasks, **how)


@pytest.mark.usefixtures("unhurried")
def test_a_plane_that_refuses_confusable_names_passes() -> None:
    plane = replace(MEMORY, open=RefusesNames)
    assert run_on(plane, "PUT-13").failure is None


@pytest.mark.usefixtures("unhurried")
def test_a_claim_may_time_out_if_its_rows_come_after_its_time() -> None:
    """As on a busy machine, where the run's own puts take longer than a claim waits."""
    hurried = replace(MEMORY.timeouts, operation=0.001)
    assert run_on(replace(MEMORY, timeouts=hurried), "CLAIM-02").failure is None


class Noting(MemoryClient):
    """A right plane that notes the ranks of claims, and the tasks of each registration."""

    ranks: ClassVar[set[int | None]] = set()
    tasks: ClassVar[dict[str, list[set[str]]]] = {}

    def register_partition(
        self, partition_id: str, fields: Any, num_samples: Any, consumer_tasks: Any, **how: Any
    ) -> None:
        self.tasks.setdefault(partition_id, []).append({*consumer_tasks})
        super().register_partition(partition_id, fields, num_samples, consumer_tasks, **how)

    def claim_meta(self, *args: Any, **how: Any) -> Any:
        self.ranks.add(how["dp_rank"])
        return super().claim_meta(*args, **how)


@pytest.mark.usefixtures("unhurried")
def test_tasks_are_added_while_rows_live_and_ranks_differ() -> None:
    assert run_on(replace(MEMORY, open=Noting), "CLAIM-03").failure is None
    assert len(Noting.ranks) > 2
    first_and_last = [(made[0], made[-1]) for made in Noting.tasks.values()]
    assert any(first < last for first, last in first_and_last)
    assert all(first <= last for first, last in first_and_last)


class DropsRowsOfRegistrations(MemoryClient):
    """A plane whose registration of a known partition drops its rows, which REG-08 judges."""

    def register_partition(self, partition_id: str, *args: Any, **how: Any) -> None:
        self.clear_samples(None, partition_id)
        super().register_partition(partition_id, *args, **how)


class RefusesKnownPartitions(MemoryClient):
    """A plane that refuses to register a partition whose rows live."""

    def register_partition(self, partition_id: str, *args: Any, **how: Any) -> None:
        if self._engine.sample_ids(partition_id):
            raise ValueError(f"{partition_id!r} is registered")
        super().register_partition(partition_id, *args, **how)


@pytest.mark.usefixtures("unhurried")
@pytest.mark.parametrize("plane", [DropsRowsOfRegistrations, RefusesKnownPartitions])
def test_a_plane_that_does_not_keep_rows_at_a_registration_is_not_judged_by_it(
    plane: type[MemoryClient],
) -> None:
    assert run_on(replace(MEMORY, open=plane), "CLAIM-03").failure is None


class SwapsRowsOfLargeReads(MemoryClient):
    """A plane that swaps the first two rows of a read of more than 256."""

    def get_samples(self, sample_ids: Any, partition_id: str, select_fields: Any) -> TensorDict:
        if len(sample_ids) > 256:
            first, second, *others = sample_ids
            sample_ids = [second, first, *others]
        return super().get_samples(sample_ids, partition_id, select_fields)


@pytest.mark.usefixtures("unhurried")
def test_large_runs_of_several_processes_find_what_shows_with_many_rows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(runner_module, "SHRINK_S", 1.0)
    plane, recording = SwapsRowsOfLargeReads(), Recording()
    clients = [RecordingClient(plane, recording, name) for name in ("client", "one", "two")]
    client: Any = ScatteringClient(clients, Policy("random", None), 0, lambda _place: None)
    runner = PropertyRunner(client, MEMORY.timeouts, stream="a long run", effort=0.3)
    with pytest.raises(FailedExample, match="row"):
        run_long_runs(runner, LONG_RUNS["PUT-13"], SharedRuns())


@pytest.mark.usefixtures("unhurried")
def test_checks_of_one_style_share_its_runs() -> None:
    shared = SharedRuns()
    assert run_on(MEMORY, "PUT-13", shared).failure is None
    assert len(shared.made) == 15
    before = dict(shared.made)
    assert run_on(MEMORY, "CLAIM-02", shared).plane_seconds == 0.0
    assert shared.made == before


@pytest.mark.usefixtures("unhurried")
def test_a_run_that_differed_fails_only_the_checks_of_that_kind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(run_module, "RUNS", 1)
    monkeypatch.setattr(runner_module, "SHRINK_S", 1.0)
    _, mutant = all_mutants()["claim_lengths_decided_by_first_row"]
    shared = SharedRuns()
    run_on(mutant, "PUT-13", shared)
    assert {each.kind for each in shared.made.values() if each is not None} == {"tags"}
    with pytest.raises(FailedExample):
        run_on(mutant, "TAG-01", shared)


@pytest.mark.usefixtures("unhurried")
def test_a_difference_that_does_not_come_again_fails_the_check_of_its_kind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(run_module, "RUNS", 1)
    monkeypatch.setattr(runner_module, "SHRINK_S", 1.0)
    _, mutant = all_mutants()["claim_lengths_decided_by_first_row"]
    shared = SharedRuns()
    run_on(mutant, "PUT-13", shared)
    for profile in ("PUT-13", "CLAIM-02", "STAT-01"):
        run_on(MEMORY, profile, shared)
    with pytest.raises(FailedExample, match="does not answer them the same every time"):
        run_on(MEMORY, "TAG-01", shared)


def test_only_the_steps_that_a_failure_needs_are_left() -> None:
    tried: list[int] = []

    def fails(steps: Any) -> bool:
        tried.append(len(steps))
        return {17, 203} <= {*steps}

    assert fewer_steps(range(STEPS), fails) == [17, 203]
    assert len(tried) < 60


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_rows_have_the_dtype_and_shape_of_their_field(kind: FieldKind) -> None:
    rows, former = NearRows(Random(1)), [[] for _ in range(300)]  # type: ignore[var-annotated]
    for row in rows.draw("x", kind, former):
        assert row.dtype is kind.dtype
        expected = kind.behind if kind.width == 0 else (kind.width or row.shape[0], *kind.behind)
        assert tuple(row.shape) == expected


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_rows_of_patterned_columns_have_the_dtype_and_shape_of_their_field(kind: FieldKind) -> None:
    columns = NearColumns(Random(1))
    widths = set()
    for n in range(200):
        rows = columns.draw("x", kind, [[] for _ in range(n % 7)])
        assert len(rows) == n % 7
        for row in rows:
            assert row.dtype is kind.dtype
            width = kind.width or row.shape[0] if kind.width != 0 else 0
            assert tuple(row.shape) == (kind.behind if kind.width == 0 else (width, *kind.behind))
            widths.add(width)
    assert kind.width is not None or (0 in widths and widths & {*LONG})


def test_columns_are_constant_or_mostly_zero_now_and_then() -> None:
    columns, kind = NearColumns(Random(1)), FieldKind(torch.float32, (), 5)
    drawn = [torch.stack(columns.draw("x", kind, [[]] * 6)) for _ in range(300)]
    equal = [each for each in drawn if torch.equal(each, each[:1].expand_as(each))]
    assert len(equal) > 5
    zeros = [each for each in drawn if not each.any()]
    assert any(torch.signbit(each).any() for each in zeros)


class Where:
    """A client that notes how its calls are made."""

    def __init__(self) -> None:
        self.threads: set[int] = set()
        self.inference: list[bool] = []
        self.loops: list[bool] = []

    def __getattr__(self, name: str) -> Any:
        def call(**_: Any) -> None:
            self.threads.add(threading.get_ident())
            self.inference.append(torch.is_inference_mode_enabled())
            self.loops.append(asyncio._get_running_loop() is not None)

        return call


def made_in(mode: Mode) -> Where:
    """Make 30 puts of a dense column in a mode; return how they were made."""
    where = Where()
    with closing(CallerInMode(cast(Any, where), mode, Random(1))) as client:
        for _ in range(30):
            cast(Any, client).put_samples(fields=TensorDict({"x": torch.zeros(2)}, [2]))
    return where


def test_calls_are_made_in_the_mode_of_the_run() -> None:
    here = threading.get_ident()
    assert made_in("here").threads == {here}
    assert len(made_in("threads").threads - {here}) in THREADS
    assert all(made_in("inference").inference)
    assert all(made_in("loop").loops)


def test_the_end_of_a_call_is_that_of_the_thread_that_made_it() -> None:
    recorded: Any = RecordingClient(cast(Any, Where()), Recording())
    with closing(CallerInMode(recorded, "threads", Random(1))) as client:
        started = time.monotonic()
        cast(Any, client).get_samples(sample_ids=["a"], partition_id="p", select_fields=["x"])
        assert started <= client.last_end <= time.monotonic()


def test_jagged_columns_are_never_put_in_inference_mode() -> None:
    where = Where()
    jagged = torch.nested.nested_tensor([torch.zeros(1), torch.zeros(2)], layout=torch.jagged)
    client = cast(Any, CallerInMode(cast(Any, where), "inference", Random(1)))
    client.put_samples(fields=TensorDict({"x": jagged}, [2]))
    assert where.inference == [False]


def test_claims_that_stand_get_the_rows_put_for_them() -> None:
    with closing(MEMORY.open(MEMORY.config, True)) as client:
        part = PartitionUnderTest(client, "p", MEMORY.timeouts)
        part.register([AWAITED], [WAITING])
        standing = StandingClaims(part, 5)
        ids, claimed = standing.finish(lambda ids: part.put(ids, awaited=torch.arange(10)) and None)
    assert len(ids) == 10
    assert sorted(claimed) == sorted(ids)


def test_many_rows_are_equal_to_earlier_ones_or_differ_by_one_byte() -> None:
    near, kind = NearRows(Random(1)), FieldKind(torch.int32, (), 5)
    rows = [near.draw("x", kind, [[]])[0].view(torch.uint8) for _ in range(300)]
    differences = Counter(
        min(int((row != other).sum()) for other in rows[:n]) for n, row in enumerate(rows) if n
    )
    assert differences[0] > 40
    assert differences[1] > 60
    assert sum(differences[n] for n in differences if n > 1) > 60


def test_a_row_takes_an_earlier_value_of_its_own() -> None:
    near, kind = NearRows(Random(1)), FieldKind(torch.float64, (), 64)
    own = [torch.full((64,), float(n)).double() for n in range(3)]
    drawn = [near.draw("x", kind, [own])[0] for _ in range(50)]
    assert any(torch.equal(row, own[0]) for row in drawn)


def test_tags_and_objects_have_the_types_that_every_plane_takes() -> None:
    near = NearObjects(Random(1))
    assert {type(near.tag()) for _ in range(500)} == {int, float, str, bool, type(None)}
    plain = {int, float, str, bool, type(None)}
    drawn = [each for _ in range(100) for each in near.objects(8)]
    assert {*_types_in(drawn)} == plain | {list, dict}
    drawn = [each for _ in range(100) for each in near.other_objects(8)]
    others = {*_types_in(drawn)} - plain - {list, dict}
    assert {tuple, set, bytes, torch.Tensor} <= others


def _types_in(value: Any) -> Any:
    for each in value.values() if isinstance(value, dict) else value:
        yield type(each)
        if isinstance(each, list | dict):
            yield from _types_in(each)
