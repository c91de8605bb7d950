"""Groups that are aborted: what they keep, how they go on, and that others are left alone.

The fixture ``open_worker`` opens a real worker; its engine calls ``before_token(n)`` before each
token, in the thread that generates.
"""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlconform.grpo.models import load_model
from rlconform.grpo.rollout.groups import AbortedGroup, GroupRollout, PartialGroup
from rlconform.grpo.rollout.worker import TOKEN_VERSIONS

PARTITION = "train"
#: Up to three turns of twelve tokens, with the environment's answers between them. An untrained
#: policy ends about every second turn, and the others are cut off at the limit.
GUESS = (
    "data.task=guess",
    "grpo.max_rollout_turns=3",
    "generation.max_new_tokens=12",
    "policy.max_total_sequence_length=64",
)


def rows(group_id: str = "g") -> list[str]:
    return [f"{group_id}_g{i}" for i in range(3)]


def turns_of(group: GroupRollout) -> list[int]:
    return [len(summary.spans) for summary in group.summaries]


@pytest.fixture(scope="module")
def guessers(open_worker: Callable[..., Any]) -> list[Any]:
    """Two workers of one plane each, for groups of several turns."""
    return [open_worker(*GUESS) for _ in range(2)]


@settings(deadline=None, max_examples=30)
@given(cuts=st.lists(st.integers(0, 20), min_size=1, max_size=3), group=st.sampled_from("bcg"))
def test_an_aborted_group_goes_on_to_the_rows_of_an_uninterrupted_one(
    guessers: list[Any], same_rows: Callable[..., None], cuts: list[int], group: str
) -> None:
    first, second = guessers
    for worker in guessers:
        worker.go_on()
        worker.client.clear_samples(rows(group), PARTITION)
    expected = first.whole(group)
    columns = first.read(expected)
    first.client.clear_samples(rows(group), PARTITION)
    old: PartialGroup | None = None
    for cut in cuts:
        first.abort_before(cut)
        result = first.generate(group, old)
        if isinstance(result, GroupRollout):  # it had fewer tokens than ``cut``
            same_rows(first.read(result), columns, bits=False)
            return
        assert first.stored(rows(group)) == []
        old = pickle.loads(pickle.dumps(result)).partial
    assert old is not None
    finished = second.whole(group, old)
    assert finished.summaries == expected.summaries
    same_rows(second.read(finished), columns, bits=False)


def test_the_groups_of_the_property_above_have_several_turns_and_lengths(
    guessers: list[Any],
) -> None:
    worker = guessers[0]
    worker.go_on()
    groups = [worker.whole(name) for name in "bcg"]
    assert len({turns for group in groups for turns in turns_of(group)}) > 1
    assert len({row.response_length for group in groups for row in group.summaries}) > 2


def test_a_partial_group_has_the_tokens_so_far_and_no_row_that_was_cut_is_done(
    open_worker: Callable[..., Any],
    same_rows: Callable[..., None],
) -> None:
    worker = open_worker()
    worker.abort_before(2)
    old = worker.aborted()
    assert [row.sample_id for row in old.rows] == rows()
    for row in old.rows:
        made = row.responses[0] if row.done else row.cut
        assert row.done == (1 in made.token_ids)  # the end token
        assert row.done or len(made) == 2
        assert not row.truncated
        assert len(row.turns) == len(row.spans) == len(row.responses) == int(row.done)
    before = pickle.dumps(old)
    worker.go_on()
    one, other = (worker.read(worker.whole(old=old)) for _ in range(2))
    assert pickle.dumps(old) == before
    same_rows(one, other, bits=True)


def test_tokens_before_and_after_an_abort_keep_their_versions(
    open_worker: Callable[..., Any],
) -> None:
    first, second = open_worker(), open_worker()
    first.abort_before(1)
    old = first.aborted()
    second.actor.refit(load_model("tiny-llama", seed=1).state_dict(), 3)
    group = second.whole(old=old)
    assert (group.start_version, group.end_version) == (0, 3)
    columns = second.read(group)
    for row, ((start, stop),) in enumerate(summary.spans for summary in group.summaries):
        expected = [0] + [3] * (stop - start - 1)
        assert columns[TOKEN_VERSIONS][row, start:stop].tolist() == expected


def test_an_abort_after_the_last_token_comes_before_the_put(
    open_worker: Callable[..., Any],
    same_rows: Callable[..., None],
) -> None:
    worker = open_worker()
    expected = worker.read(worker.whole())
    worker.client.clear_samples(rows(), PARTITION)
    worker.engine.after_turn = lambda: worker.actor.abort(["g"])
    old = worker.aborted()
    assert all(row.done for row in old.rows)
    assert worker.stored(rows()) == []
    group = worker.whole(old=old)
    same_rows(worker.read(group), expected, bits=True)


def test_an_abort_leaves_other_groups(
    open_worker: Callable[..., Any],
    same_rows: Callable[..., None],
) -> None:
    worker = open_worker()
    alone = {name: worker.read(worker.whole(name)) for name in "ab"}
    for name in "ab":
        worker.client.clear_samples(rows(name), PARTITION)
    both = threading.Barrier(2, timeout=60)
    group = threading.local()

    def before_token(number: int) -> None:
        if number == 1:
            both.wait()
            if group.id == "a":
                worker.actor.abort(["a", "unknown"])
            both.wait()

    worker.engine.before_token = before_token

    def generate(name: str) -> GroupRollout | AbortedGroup:
        group.id = name
        return worker.generate(name)

    with ThreadPoolExecutor(2) as pool:
        a, b = pool.map(generate, "ab")
    assert isinstance(a, AbortedGroup)
    assert isinstance(b, GroupRollout)
    same_rows(worker.read(b), alone["b"], bits=True)
    assert worker.stored(rows("a")) == []


def test_an_abort_of_all_groups_leaves_no_trace(open_worker: Callable[..., Any]) -> None:
    worker = open_worker()
    worker.actor.abort()
    worker.actor.abort(["g"])  # not in flight
    worker.whole()
    both = threading.Barrier(2, timeout=60)

    def before_token(number: int) -> None:
        if number == 1:
            both.wait()
            worker.actor.abort()
            both.wait()

    worker.engine.before_token = before_token
    with ThreadPoolExecutor(2) as pool:
        results = list(pool.map(worker.generate, ["g", "h"]))
    assert all(isinstance(result, AbortedGroup) for result in results)
    worker.go_on()
    for name in ("g", "h"):
        worker.whole(name)


def test_groups_generated_at_once_have_the_bits_of_each_alone(
    open_worker: Callable[..., Any],
    same_rows: Callable[..., None],
) -> None:
    worker = open_worker(*GUESS)
    alone = [worker.read(worker.whole(f"p{number}", number=number)) for number in range(3)]
    both = threading.Barrier(3, timeout=60)
    worker.engine.before_token = lambda number: both.wait() if number < 2 else None

    def generate(number: int) -> GroupRollout:
        return worker.whole(f"p{number}", number=number)

    with ThreadPoolExecutor(3) as pool:
        together = list(pool.map(generate, range(3)))
    for group, expected in zip(together, alone, strict=True):
        same_rows(worker.read(group), expected, bits=True)


def test_a_group_is_in_flight_once(open_worker: Callable[..., Any]) -> None:
    worker = open_worker()
    errors: list[str] = []

    def again(number: int) -> None:
        if number == 0:
            with pytest.raises(ValueError, match="'g' is already in flight") as caught:
                worker.actor.generate_group(worker.problem(), "g", PARTITION)
            errors.append(str(caught.value))

    worker.engine.before_token = again
    worker.whole()
    assert len(errors) == 1


def test_a_partial_group_of_another_group_is_refused(open_worker: Callable[..., Any]) -> None:
    worker = open_worker()
    worker.abort_before(1)
    old = worker.aborted()
    for group_id, number in (("h", 0), ("g", 1)):
        with pytest.raises(ValueError, match="expected a partial group"):
            worker.generate(group_id, old, number)
