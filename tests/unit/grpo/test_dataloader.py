"""The dataloader returns every problem once, in order, and resumes from a saved position."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlconform.grpo.config import DataConfig
from rlconform.grpo.tasks import Dataloader, RolloutTask, build_task


def task(seed: int = 0) -> RolloutTask:
    return build_task(DataConfig(task="copy", max_length=3), seed)


@given(counts=st.lists(st.integers(1, 7), min_size=1, max_size=6))
def test_batches_end_to_end_are_the_tasks_problems(counts: list[int]) -> None:
    loader = Dataloader(task())
    taken = [problem for count in counts for problem in loader.take(count)]
    assert taken == [task().problem(index) for index in range(sum(counts))]


@given(before=st.integers(1, 9), after=st.integers(1, 9))
def test_a_loader_goes_on_from_a_saved_state(before: int, after: int) -> None:
    loader = Dataloader(task())
    loader.take(before)
    resumed = Dataloader(task())
    resumed.load_state_dict(loader.state_dict())
    assert resumed.take(after) == loader.take(after)
    assert resumed.position == before + after


def test_a_saved_state_is_not_changed_by_going_on() -> None:
    loader = Dataloader(task())
    saved = loader.state_dict()
    loader.take(5)
    assert saved == {"position": 0}


def test_the_seed_decides_the_problems() -> None:
    assert Dataloader(task(0)).take(8) != Dataloader(task(1)).take(8)


@pytest.mark.parametrize("count", [0, -1])
def test_a_batch_has_problems(count: int) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        Dataloader(task()).take(count)


@pytest.mark.parametrize("state", [{}, {"position": -1}, {"position": True}, {"position": 1.5}])
def test_a_state_without_a_position_is_refused(state: dict[str, int]) -> None:
    loader = Dataloader(task())
    with pytest.raises(ValueError, match="position"):
        loader.load_state_dict(state)
    assert loader.position == 0
