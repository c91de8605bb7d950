"""``PropertyRunner`` finds the plane's errors, reports them, and keeps to its time limits."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlconform.backends.memory import MemoryClient
from rlconform.certify.assertions.expect import FewerExamples, expect
from rlconform.certify.properties import runner as runner_module
from rlconform.certify.properties.requirement_sequences import PROFILES
from rlconform.certify.properties.runner import (
    SETTINGS,
    FailedExample,
    PropertyRunner,
)
from rlconform.certify.properties.state_machine import run_sequences
from rlconform.certify.recording import busy_time
from rlconform.certify.recording.recorder import Recording
from rlconform.certify.recording.recording_client import RecordingClient
from rlconform.certify.scenarios.partition import PartitionUnderTest
from rlconform.contract import Timeouts

Make = Callable[..., PropertyRunner]


@pytest.fixture
def make() -> Iterator[Make]:
    """``make(plane)``: a runner of that plane."""
    opened: list[MemoryClient] = []

    def new_runner(
        plane: Callable[[], MemoryClient] = MemoryClient, seed: int = 0, **more: Any
    ) -> PropertyRunner:
        opened.append(plane())
        client = RecordingClient(opened[-1], Recording())
        return PropertyRunner(client, Timeouts(**({"check": 600.0} | more)), seed)

    yield new_runner
    for client in opened:
        client.close()


def explore(runner: PropertyRunner, body: Callable[[PartitionUnderTest, int], None]) -> None:
    """Run ``body`` on a fresh partition, over integers."""

    @given(number=st.integers(0, 1000))
    def example(number: int) -> None:
        runner.begin()
        with runner.watching():
            part = runner.new_partition()
            part.register()
            body(part, number)

    runner.run(runner.seeded(SETTINGS(example)))


@pytest.mark.usefixtures("unhurried")
def test_the_smallest_example_is_reported_alone(make: Make) -> None:
    def body(part: PartitionUnderTest, number: int) -> None:
        part.put_labeled(["a"])
        part.put_labeled([f"n{number}"])
        expect(number < 10, "less than ten", number)

    runner = make(seed=7)
    with pytest.raises(FailedExample, match=r"less than ten; got 10 \(found with --seed 7, which"):
        explore(runner, body)
    assert runner.failure is not None
    register, *puts = runner.failure.calls.lines()
    assert "register_partition" in register
    assert [line.partition("sample_ids=")[2][:7] for line in puts] == ["['a'], ", "['n10']"]
    assert len(runner.failure.calls.calls) == 3


class RaisesOnLargeIds(MemoryClient):
    """Raises for long ids."""

    def put_samples(self, sample_ids: Any, *args: Any, **more: Any) -> Any:
        if len(sample_ids[0]) > 3:
            raise RuntimeError("key too long")
        return super().put_samples(sample_ids, *args, **more)


@pytest.mark.usefixtures("unhurried")
def test_an_error_of_the_plane_is_reported_as_the_planes(make: Make) -> None:
    runner = make(RaisesOnLargeIds)
    with pytest.raises(FailedExample, match="the plane's put_samples raised RuntimeError: key"):
        explore(runner, lambda part, number: part.put_labeled([f"n{number}"]))
    assert runner.failure is not None
    assert "n100" in runner.failure.calls.lines()[-1]


def test_an_error_of_the_kit_is_raised_as_it_is(make: Make) -> None:
    def body(part: PartitionUnderTest, number: int) -> None:
        part.put_labeled(["a"])
        raise ZeroDivisionError(number)

    runner = make()
    with pytest.raises(ZeroDivisionError):
        explore(runner, body)
    assert runner.failure is None


class FailsOnce(MemoryClient):
    """One read returns no fields."""

    reads = 0

    def get_samples(self, *args: Any, **more: Any) -> Any:
        self.reads += 1
        batch = super().get_samples(*args, **more)
        return batch.select() if self.reads == 5 else batch


class RaisesOnce(FailsOnce):
    """One read raises."""

    def get_samples(self, *args: Any, **more: Any) -> Any:
        if self.reads == 4:
            self.reads += 1
            raise RuntimeError("connection reset")
        return super().get_samples(*args, **more)


@pytest.mark.usefixtures("unhurried")
@pytest.mark.parametrize(
    ("plane", "failure"),
    [(FailsOnce, "got fields"), (RaisesOnce, "the plane's get_samples raised RuntimeError: conn")],
)
def test_what_fails_sometimes_fails(make: Make, plane: type[MemoryClient], failure: str) -> None:
    def body(part: PartitionUnderTest, number: int) -> None:
        part.put_labeled([f"n{number}"])
        part.expect_labeled([f"n{number}"])

    runner = make(plane)
    repeats = "with --seed 0, which repeats the calls; the plane does not"
    with pytest.raises(FailedExample, match=f"{failure}.*{repeats}"):
        explore(runner, body)
    assert runner.failure is not None
    assert "get_samples" in runner.failure.calls.lines()[-1]


class Clock:
    """A clock that only tests advance."""

    now = 0.0

    def monotonic(self) -> float:
        """Seconds."""
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The clock of the runner and of the plane's time; the machine's load does not affect it."""
    clock = Clock()
    for module in (runner_module, busy_time):
        monkeypatch.setattr(module, "time", clock)
    return clock


class Slow(MemoryClient):
    """Each put advances the clock by ``seconds``; no other call does."""

    def __init__(self, clock: Clock, seconds: float = 0.3) -> None:
        super().__init__()
        self.clock = clock
        self.seconds = seconds

    def put_samples(self, *args: Any, **more: Any) -> Any:
        self.clock.now += self.seconds
        return super().put_samples(*args, **more)


def test_the_time_for_examples_begins_with_the_first(make: Make, clock: Clock) -> None:
    tried: list[int] = []

    def body(_part: PartitionUnderTest, number: int) -> None:
        tried.append(number)
        clock.now += 5.0

    runner = make(check=3.0)
    clock.now += 60.0  # before the first example: a search without any example would pass
    with pytest.warns(FewerExamples, match="time for 1 examples only"):
        explore(runner, body)
    assert len(tried) == 1


def test_a_slow_broken_plane_fails_well_before_its_timeout(make: Make, clock: Clock) -> None:
    def body(part: PartitionUnderTest, number: int) -> None:
        part.put_labeled([f"n{number}"])
        expect(number < 3, "less than three", number)

    runner = make(partial(Slow, clock), check=3.0)
    with pytest.raises(FailedExample, match="less than three"):
        explore(runner, body)
    assert clock.now < 3.0
    assert runner.failure is not None
    assert len(runner.failure.calls.calls) == 2


def test_a_slow_correct_plane_gets_fewer_examples(make: Make, clock: Clock) -> None:
    seen: list[int] = []

    def body(part: PartitionUnderTest, number: int) -> None:
        part.put_labeled([f"n{number}"])
        seen.append(number)

    with pytest.warns(FewerExamples):
        explore(make(partial(Slow, clock)), body)
    assert 1 <= len(seen) < SETTINGS.max_examples


@pytest.mark.filterwarnings("ignore::rlconform.certify.assertions.expect.FewerExamples")
@pytest.mark.parametrize("requirement_id", PROFILES)
def test_a_slow_correct_plane_is_judged_by_every_profile(
    make: Make, clock: Clock, requirement_id: str
) -> None:
    runner = make(partial(Slow, clock, 0.9))  # so slow that there is only time for one sequence
    try:
        run_sequences(runner, PROFILES[requirement_id])
    except pytest.skip.Exception as skipped:
        pytest.fail(f"{requirement_id} was not judged, {skipped}")
    assert runner.cut_short


def test_sequences_that_judge_nothing_end(make: Make, clock: Clock) -> None:
    runner = make(partial(Slow, clock, 11.0), check=30.0)
    with pytest.warns(FewerExamples), pytest.raises(pytest.skip.Exception, match="too slow"):
        run_sequences(runner, PROFILES["REG-03"])
    assert 10.0 < clock.now < 20.0


def numbers_of(runner: PropertyRunner) -> list[int]:
    seen: list[int] = []
    explore(runner, lambda _part, number: seen.append(number))
    return seen


@pytest.mark.usefixtures("unhurried")
def test_the_seed_determines_the_examples(make: Make) -> None:
    first, again, other = (numbers_of(make(seed=seed)) for seed in (1, 1, 2))
    assert first == again != other


@pytest.mark.usefixtures("unhurried")
def test_a_plane_may_use_random_keys(make: Make) -> None:
    keys: list[int] = []
    explore(make(), lambda _part, _number: keys.append(random.getrandbits(64)))
    assert len(set(keys)) == len(keys) == SETTINGS.max_examples


def test_nothing_is_written_to_the_current_folder(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    numbers_of(make())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("unhurried")
def test_the_rows_of_an_example_are_gone_in_the_next(make: Make) -> None:
    parts: list[PartitionUnderTest] = []

    def body(part: PartitionUnderTest, number: int) -> None:
        part.put_labeled([f"n{number}"])
        for before in parts:
            expect(not before.claim_all(), "no rows of earlier examples", before.id)
        parts.append(part)

    explore(make(), body)
    assert len(parts) == SETTINGS.max_examples
