"""The hooks for NeMo-RL, with this project's controller, buffer, samplers and planes in its place.

The buffer gets the lists that NeMo-RL's has; all else is what runs in an asynchronous GRPO run.
"""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import torch
from tensordict import TensorDict

from rlconform.backends.memory import MemoryClient
from rlconform.check_run.judge import RunReport, judge_run
from rlconform.check_run.rules import ALL_RULES
from rlconform.check_run.verdict import RuleOutcome
from rlconform.contract import KVBatchMeta
from rlconform.events import EventWriter
from rlconform.grpo.config.async_rl import AsyncRLConfig, CustomSamplerConfig
from rlconform.grpo.replay.buffer import ReplayBuffer
from rlconform.grpo.replay.samplers import StalenessSampler, build_sampler
from rlconform.grpo.replay.slots import (
    DropReason,
    Failure,
    GroupRecord,
    Prompt,
    Slot,
    SlotState,
)
from rlconform.grpo.rollout.worker import RowSummary
from rlconform.grpo.simulation.engines import GROUP
from rlconform.grpo.simulation.run import run_steps
from rlconform.grpo.simulation.world import Faults, World
from rlconform.grpo.tasks import Problem
from rlconform.integrations.nemo_rl import COVERAGE, EventSampler
from rlconform.integrations.nemo_rl_plane import LoggedPlane, report_ended
from rlconform.plane import mint_sample_ids

OURS = "rlconform.grpo.replay.samplers"
PROMPTS, STEPS = 4, 6


def buffered(buffer: ReplayBuffer) -> list[Slot]:
    """The slots that NeMo-RL's buffer would have: a selection removes a group."""
    return buffer.slots(SlotState.RESERVED, SlotState.READY)


def end_of(slot: Slot) -> int:
    return -1 if slot.record is None or slot.record.end_version is None else slot.record.end_version


#: NeMo-RL's lists by name, from a buffer of this project.
LISTS: dict[str, Any] = {
    "_group_ids": lambda buffer: [slot.group_id for slot in buffered(buffer)],
    "start_weight_list": lambda buffer: [slot.start_version for slot in buffered(buffer)],
    "end_weight_list": lambda buffer: [end_of(slot) for slot in buffered(buffer)],
    "meta_list": lambda buffer: [slot.record and slot.record.meta for slot in buffered(buffer)],
}


@pytest.fixture(autouse=True)
def _nemo_lists(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, get in LISTS.items():
        monkeypatch.setattr(ReplayBuffer, name, property(get), raising=False)


def sampler_config(folder: Path, name: str, window: int = 1) -> CustomSamplerConfig:
    options = {
        "inner": {"name": name, "window": window},
        "samplers": OURS,
        "events": str(folder),
        "run": "r1",
        "group_size": GROUP,
        "prompts_per_step": PROMPTS,
    }
    target = "rlconform.integrations.nemo_rl:EventSampler"
    return CustomSamplerConfig(name="custom", target=target, options=options)


def outcomes(report: RunReport) -> dict[str, RuleOutcome]:
    return {verdict.rule: verdict.outcome for verdict in report.verdicts}


def failed(report: RunReport) -> set[str]:
    return {rule for rule, outcome in outcomes(report).items() if outcome is RuleOutcome.FAIL}


def uneven(group_id: str) -> float:
    return 1.0 + 7 * (sum(map(ord, group_id)) % 5 == 0)


def test_the_coverage_is_about_all_rules() -> None:
    assert COVERAGE.decided.keys() | COVERAGE.undecided.keys() == {rule.name for rule in ALL_RULES}
    assert not COVERAGE.decided.keys() & COVERAGE.undecided.keys()


@pytest.mark.parametrize("name", ["in_order", "windowed", "ready_first", "weight_fifo"])
@pytest.mark.parametrize("faults", [False, True])
def test_a_right_run_passes_what_can_be_decided_and_nothing_else(
    tmp_path: Path, name: str, faults: bool
) -> None:
    attempts = {"p3": Failure.INFRA, "p9": Failure.DATA} if faults else {}
    options = AsyncRLConfig(
        sampler=sampler_config(tmp_path, name), max_inflight_prompts=5, max_buffered_rollouts=12,
        min_groups_for_streaming_train=2, in_flight_weight_updates=True,
    )  # fmt: skip
    world = World(uneven, faults=Faults(attempts=attempts))
    outcome = run_steps(options, world, prompts=PROMPTS, steps=STEPS)
    assert outcome.controller is not None
    report_ended(tmp_path, "r1")
    report = judge_run([tmp_path])
    assert not report.holes
    decided = COVERAGE.decided.keys() - {"plane_ops"}
    if name == "ready_first":
        decided -= {"staleness"}  # it declares no bound
    expected = {rule.name: RuleOutcome.INDETERMINATE for rule in ALL_RULES}
    assert outcomes(report) == expected | dict.fromkeys(decided, RuleOutcome.PASS)
    assert report.overview.ledger.totals.trained == PROMPTS * (STEPS - 1), "the last step is open"


class Bench:
    """A buffer and an ``EventSampler``, driven by hand."""

    def __init__(self, folder: Path, name: str = "windowed", window: int = 1) -> None:
        self.folder = folder
        self.buffer = ReplayBuffer(8, GROUP, "train", self.clear)
        self.sampler = build_sampler(sampler_config(folder, name, window), self.buffer)
        self.number = 0

    async def clear(self, ids: list[str]) -> None:
        pass

    def reserve(self, version: int) -> str:
        self.number += 1
        prompt = Prompt(Problem(f"p{self.number}", (), ""), self.number, version)
        return self.buffer.reserve(prompt, version)

    def ready(self, version: int) -> str:
        group_id = self.reserve(version)
        summaries = tuple(RowSummary(1.0, ((1, 2),), False, ((0, 0),)) for _ in range(GROUP))
        meta = KVBatchMeta("train", None, mint_sample_ids([group_id], GROUP))
        self.buffer.commit(group_id, GroupRecord(meta, summaries, version))
        return group_id

    def select(self, version: int, most: int = 1) -> KVBatchMeta | None:
        selected = self.sampler.select(
            current_train_weight=version, min_prompt_groups=1, max_prompt_groups=most
        )
        return asyncio.run(selected)[0]

    def evict(self, version: int) -> int:
        return asyncio.run(self.sampler.evict(current_train_weight=version))

    def end(self) -> RunReport:
        assert isinstance(self.sampler, EventSampler)
        self.sampler.close()
        return judge_run([self.folder])


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def test_it_answers_as_the_sampler_that_it_wraps(bench: Bench) -> None:
    sampler = bench.sampler
    assert isinstance(sampler, StalenessSampler)
    assert (sampler.is_on_policy, sampler.max_staleness) == (False, 1)
    assert sampler.required_buffer_capacity(4) == 4
    assert sampler.should_abort_inflight(start_weight_version=0, current_train_weight=2)
    sampler.set_dispatch_index(3)
    assert asyncio.run(sampler.admit(trainer_version_fn=lambda: 3)) is None
    assert bench.select(0) is None


def test_drops_have_the_cause_that_the_sampler_can_see(bench: Bench) -> None:
    """Stale when ready, aborted when too old, and otherwise a failure."""
    stale, old, lost = bench.ready(0), bench.reserve(0), bench.reserve(2)
    assert bench.evict(2) == 1
    bench.sampler.should_abort_inflight(start_weight_version=0, current_train_weight=2)
    for group_id in (old, lost):
        asyncio.run(bench.buffer.remove_group(group_id, DropReason.STALE))
    bench.evict(2)
    report = bench.end()
    assert not failed(report)
    dropped = report.overview.ledger.totals.dropped
    assert {cause.value: count for cause, count in dropped.items()} == {
        "stale": 1, "aborted_stale": 1, "infra_failure": 1,
    }, (stale, old, lost)  # fmt: skip


def test_a_group_that_comes_back_after_its_step_is_found(bench: Bench) -> None:
    """A buffer that forgets that it has handed out a group."""
    group_id = bench.ready(0)
    bench.select(0)
    bench.evict(1)
    asyncio.run(bench.buffer.remove_group(group_id, DropReason.STALE))
    bench.number = 0
    assert bench.ready(1) == group_id
    bench.select(1)
    bench.evict(2)
    assert "exactly_once" in failed(bench.end())


def test_a_sampler_that_breaks_its_bound_is_found(tmp_path: Path) -> None:
    bench = Bench(tmp_path, "windowed", window=1)
    bench.evict(0)
    bench.ready(0)
    bench.evict(1)
    bench.sampler._inner._window = 9  # type: ignore[attr-defined]
    bench.select(4)
    bench.evict(5)
    assert "staleness" in failed(bench.end())


def test_a_group_with_a_row_too_few_is_found(bench: Bench) -> None:
    group_id = bench.ready(0)
    (slot,) = bench.buffer.slots(SlotState.READY)
    assert slot.record is not None
    slot.record.meta.sample_ids.pop()
    bench.select(0)
    bench.evict(1)
    report = bench.end()
    assert "group_integrity" in failed(report), group_id


def test_a_killed_sampler_leaves_the_log_undecided_until_its_end_is_reported(
    tmp_path: Path,
) -> None:
    bench = Bench(tmp_path)
    bench.ready(0)
    bench.select(0)
    bench.evict(1)
    assert outcomes(judge_run([tmp_path]))["exactly_once"] is RuleOutcome.INDETERMINATE
    assert report_ended(tmp_path, "r1") == 1
    assert outcomes(judge_run([tmp_path]))["exactly_once"] is RuleOutcome.PASS
    assert report_ended(tmp_path, "r1") == 1, "it may be called again"


def test_an_unknown_sampler_is_refused(tmp_path: Path) -> None:
    buffer = ReplayBuffer(8, GROUP, "train", Bench(tmp_path).clear)
    with pytest.raises(ValueError, match=r"expected inner\.name to be one of"):
        EventSampler(buffer, inner={"name": "newest"}, events=str(tmp_path), run="r1")


class Planes:
    """A memory plane, and a client of it that writes its calls."""

    def __init__(self, folder: Path) -> None:
        self.client = MemoryClient()
        self.logged = LoggedPlane(self.client, str(folder), "r1")
        self.logged.register_partition("train", ["x"], 8, ["train"])

    def put(self, ids: list[str]) -> None:
        self.logged.put_samples(ids, "train", TensorDict({"x": torch.arange(len(ids))}, [len(ids)]))


@pytest.fixture
def planes(tmp_path: Path) -> Iterator[Planes]:
    """A plane whose calls are logged; it closes after the test."""
    planes = Planes(tmp_path)
    with closing(planes.client):
        yield planes


def test_calls_of_a_right_plane_pass(planes: Planes, bench: Bench) -> None:
    planes.put(["a", "b"])
    assert planes.logged.get_samples(["a", "b"], "train", ["x"])["x"].tolist() == [0, 1]
    planes.logged.clear_samples(["a", "b"], "train")
    with pytest.raises(KeyError):
        planes.logged.get_samples(["a"], "train", ["x"])
    planes.logged._writer.close()
    assert outcomes(bench.end())["plane_ops"] is RuleOutcome.PASS


def test_a_put_that_is_lost_is_found(planes: Planes, bench: Bench) -> None:
    planes.put(["a", "b"])
    planes.client.clear_samples(["a"], "train")  # nobody asked for it
    with pytest.raises(KeyError):
        planes.logged.get_samples(["a"], "train", ["x"])
    planes.logged._writer.close()
    assert failed(bench.end()) == {"plane_ops"}


class Attached:
    """A client that can be pickled, as those of NeMo-RL."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(MemoryClient(bootstrap=False), name)


def test_an_unpickled_client_has_a_file_of_its_own(tmp_path: Path) -> None:
    owner = MemoryClient()
    owner.register_partition("train", ["x"], 8, ["train"])
    first = LoggedPlane(Attached(), str(tmp_path), "r1")
    second: LoggedPlane = pickle.loads(pickle.dumps(first))
    second.put_samples(["a"], "train", TensorDict({"x": torch.arange(1)}, [1]))
    assert owner.get_samples(["a"], "train", ["x"])["x"].tolist() == [0]
    assert len(list(tmp_path.glob("events-plane-*.jsonl"))) == 2
    for logged in (first, second):
        assert isinstance(logged._writer, EventWriter)
        logged._writer.close()
    owner.close()
