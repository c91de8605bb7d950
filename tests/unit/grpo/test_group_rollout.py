"""Groups that are generated one per call: through the plane, aborted, continued, refitted, failed.

``SteppedEngine`` is the real engine with a function that the test runs before each token, in the
thread that generates.
"""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tensordict import TensorDict

from rlconform.backends.memory import MemoryClient
from rlconform.contract import PlaneUnavailable, UnknownSample
from rlconform.contract.fields import (
    GENERATION_LOGPROBS,
    INPUT_IDS,
    INPUT_LENGTHS,
    PER_TOKEN_FIELDS,
    SAMPLE_MASK,
    TOKEN_MASK,
)
from rlconform.grpo.config import MasterConfig, load_config
from rlconform.grpo.failures import DataFailure, ModelFailure, TornWeights
from rlconform.grpo.generation import Prefix, Prompts, Responses, Sampling, ShouldStop
from rlconform.grpo.generation.transformers_engine import TransformersEngine
from rlconform.grpo.models import load_model
from rlconform.grpo.rollout.groups import AbortedGroup, GroupRollout, PartialGroup
from rlconform.grpo.rollout.plane_worker import PlaneRolloutWorker
from rlconform.grpo.rollout.worker import MESSAGE_LOGS, ROLLOUT_FIELDS, TOKEN_VERSIONS, Rollout
from rlconform.grpo.tasks import Problem, build_task
from rlconform.plane import read_columns

G = 3
PARTITION = "train"
FIELDS = [*ROLLOUT_FIELDS, TOKEN_VERSIONS]
CLOSE = {"atol": 2e-5, "rtol": 2e-5}
#: Up to three turns of twelve tokens, with the environment's answers between them. An untrained
#: policy ends about every second turn, and the others are cut off at the limit.
GUESS = (
    "data.task=guess",
    "grpo.max_rollout_turns=3",
    "generation.max_new_tokens=12",
    "policy.max_total_sequence_length=64",
)


class SteppedEngine(TransformersEngine):
    """Calls ``before_token(n)`` in the thread of each generation, n = 0, 1, ... over its turns."""

    def __init__(self, conf: MasterConfig) -> None:
        policy = conf.policy
        model = load_model(policy.model_name, precision=policy.precision, seed=conf.grpo.seed)
        super().__init__(model, recompute_kv_cache=True)
        self.before_token: Callable[[int], object] = lambda _: None
        self.after_turn: Callable[[], object] = lambda: None
        self._calls = threading.local()

    def _generate(
        self,
        prompts: Prompts,
        seeds: Sequence[int],
        sampling: Sampling,
        prefixes: Sequence[Prefix],
        should_stop: ShouldStop,
    ) -> Responses:
        def stop() -> bool:
            number = getattr(self._calls, "number", 0)
            self._calls.number = number + 1
            self.before_token(number)
            return should_stop()

        responses = super()._generate(prompts, seeds, sampling, prefixes, stop)
        self.after_turn()
        return responses

    def begin(self) -> None:
        """Count tokens from 0 again in this thread."""
        self._calls.number = 0


class Worker:
    """A real worker with a ``SteppedEngine``, attached to a plane in this process."""

    def __init__(self, conf: MasterConfig, client: MemoryClient) -> None:
        self.conf, self.client = conf, client
        self.actor = PlaneRolloutWorker("cpu")
        self.actor.build(conf)
        self.engine = SteppedEngine(conf)
        self.actor._engine = self.engine
        self.actor.attach(lambda: client)

    def generate(
        self, group_id: str = "g", old: PartialGroup | None = None, number: int = 0
    ) -> GroupRollout | AbortedGroup:
        self.engine.begin()
        return self.actor.generate_group(problem(self.conf, number), group_id, PARTITION, old)

    def whole(
        self, group_id: str = "g", old: PartialGroup | None = None, number: int = 0
    ) -> GroupRollout:
        result = self.generate(group_id, old, number)
        assert isinstance(result, GroupRollout)
        return result

    def aborted(self, group_id: str = "g", old: PartialGroup | None = None) -> PartialGroup:
        result = self.generate(group_id, old)
        assert isinstance(result, AbortedGroup)
        return result.partial

    def abort_before(self, number: int, ids: Sequence[str] | None = None) -> None:
        """Abort before token ``number`` of a generation, counted over its turns."""
        self.engine.before_token = lambda n: self.actor.abort(ids) if n == number else None

    def go_on(self) -> None:
        self.engine.before_token = lambda _: None


def config(*overrides: str) -> MasterConfig:
    return load_config(
        "tiny_llama_copy",
        ["data.max_length=3", f"grpo.num_generations_per_prompt={G}", *overrides],
    )


def problem(conf: MasterConfig, number: int = 0) -> Problem:
    return build_task(conf.data, conf.grpo.seed, "train").problem(number)


def opened(conf: MasterConfig, kind: type[MemoryClient] = MemoryClient) -> Worker:
    client = kind()
    client.register_partition(PARTITION, FIELDS, 64, ["train"], G)
    return Worker(conf, client)


@pytest.fixture
def open_worker() -> Iterator[Callable[..., Worker]]:
    """Opens workers with a plane each, and closes them after the test."""
    workers: list[Worker] = []

    def open_one(*overrides: str, kind: type[MemoryClient] = MemoryClient) -> Worker:
        workers.append(opened(config(*overrides), kind))
        return workers[-1]

    yield open_one
    for worker in workers:
        worker.actor.close()
        worker.client.close()


def read(worker: Worker, group: GroupRollout) -> TensorDict:
    return read_columns(
        worker.client,
        group.meta,
        FIELDS,
        pad_value_dict={TOKEN_VERSIONS: -1},
        token_fields=PER_TOKEN_FIELDS | {TOKEN_VERSIONS},
    )


def stored(worker: Worker, ids: Sequence[str]) -> list[str]:
    """Those of the ids that are in the plane."""
    found = []
    for sample_id in ids:
        try:
            worker.client.get_samples([sample_id], PARTITION, [INPUT_IDS])
        except UnknownSample:
            continue
        found.append(sample_id)
    return found


def rows(group_id: str = "g") -> list[str]:
    return [f"{group_id}_g{i}" for i in range(G)]


def assert_same_rows(mine: TensorDict, its: TensorDict, *, bits: bool) -> None:
    for name in (INPUT_IDS, INPUT_LENGTHS, TOKEN_MASK, SAMPLE_MASK):
        assert torch.equal(mine[name], its[name]), name
    close = {"atol": 0.0, "rtol": 0.0} if bits else CLOSE
    torch.testing.assert_close(mine[GENERATION_LOGPROBS], its[GENERATION_LOGPROBS], **close)
    assert mine[MESSAGE_LOGS].tolist() == its[MESSAGE_LOGS].tolist()


# -- whole groups --------------------------------------------------------------------------------


@pytest.mark.parametrize("overrides", [(), GUESS])
def test_a_group_named_like_its_problem_has_the_rows_of_a_collected_one(
    open_worker: Callable[..., Worker], overrides: tuple[str, ...]
) -> None:
    worker = open_worker(*overrides)
    asked = problem(worker.conf)
    collected: Rollout = worker.actor.collect([asked], "train")
    group = worker.whole(asked.uid)
    assert group.meta.sample_ids == collected.sample_ids == rows(asked.uid)
    assert group.summaries == collected.summaries
    assert_same_rows(read(worker, group), collected.columns, bits=True)


def test_a_group_is_one_put_with_rewards_known_and_both_versions(
    open_worker: Callable[..., Worker],
) -> None:
    worker = open_worker()
    worker.actor.traffic()
    group = worker.whole()
    assert worker.actor.traffic().calls == 1
    assert (group.start_version, group.end_version) == (0, 0)
    assert len(group.summaries) == G
    meta = worker.client.claim_meta(PARTITION, "train", FIELDS, G, blocking=False)
    assert sorted(meta.sample_ids) == rows()
    lengths = group.meta.sequence_lengths
    assert lengths is not None
    for tags in meta.tags or []:
        assert (tags["weight_version"], tags["end_weight_version"]) == (0, 0)
    columns = read(worker, group)
    assert torch.equal(columns[TOKEN_VERSIONS] == 0, columns[TOKEN_MASK].bool())
    assert torch.equal(columns[TOKEN_VERSIONS] == -1, ~columns[TOKEN_MASK].bool())


def test_the_name_of_a_group_and_not_its_problem_makes_its_random_numbers(
    open_worker: Callable[..., Worker],
) -> None:
    worker = open_worker()
    first, again, other = worker.whole("a"), worker.whole("a"), worker.whole("b")
    one, same, another = (read(worker, group) for group in (first, again, other))
    assert_same_rows(one, same, bits=True)
    assert not torch.equal(one[GENERATION_LOGPROBS], another[GENERATION_LOGPROBS])


@pytest.mark.parametrize("number", [1, 5, 11])
def test_a_refit_between_tokens_shows_in_versions_tags_and_summaries(
    open_worker: Callable[..., Worker], number: int
) -> None:
    worker = open_worker(*GUESS)
    weights = load_model("tiny-llama", seed=1).state_dict()
    digests: list[str] = []

    def refit(n: int) -> None:
        if n == number:
            digests.append(worker.actor.refit(weights, 5))

    worker.engine.before_token = refit
    group = worker.whole()
    assert len(digests) == 1
    assert (group.start_version, group.end_version) == (0, 5)
    assert {tags["weight_version"] for tags in group.meta.tags or []} == {0}
    assert {tags["end_weight_version"] for tags in group.meta.tags or []} == {5}
    columns = read(worker, group)
    for row, summary in enumerate(group.summaries):
        for turn, (start, stop) in enumerate(summary.spans):
            versions = columns[TOKEN_VERSIONS][row, start:stop].tolist()
            # The first turn makes tokens 0, 1, ...; later turns come after the refit.
            expected = [0 if turn == 0 and n < number else 5 for n in range(stop - start)]
            assert versions == expected
            assert summary.versions[turn] == (min(versions), max(versions))
    assert any((0, 5) in summary.versions for summary in group.summaries)


# -- aborted groups ------------------------------------------------------------------------------


def turns_of(group: GroupRollout) -> list[int]:
    return [len(summary.spans) for summary in group.summaries]


@pytest.fixture(scope="module")
def guessers() -> Iterator[list[Worker]]:
    """Two workers of one plane each, for groups of several turns."""
    workers = [opened(config(*GUESS)) for _ in range(2)]
    yield workers
    for worker in workers:
        worker.actor.close()
        worker.client.close()


@settings(deadline=None, max_examples=30)
@given(cuts=st.lists(st.integers(0, 20), min_size=1, max_size=3), group=st.sampled_from("bcg"))
def test_an_aborted_group_goes_on_to_the_rows_of_an_uninterrupted_one(
    guessers: list[Worker], cuts: list[int], group: str
) -> None:
    first, second = guessers
    for worker in guessers:
        worker.go_on()
        worker.client.clear_samples(rows(group), PARTITION)
    expected = first.whole(group)
    columns = read(first, expected)
    first.client.clear_samples(rows(group), PARTITION)
    old: PartialGroup | None = None
    for cut in cuts:
        first.abort_before(cut)
        result = first.generate(group, old)
        if isinstance(result, GroupRollout):  # it had fewer tokens than ``cut``
            assert_same_rows(read(first, result), columns, bits=False)
            return
        assert stored(first, rows(group)) == []
        old = pickle.loads(pickle.dumps(result)).partial
    assert old is not None
    finished = second.whole(group, old)
    assert [summary.reward for summary in finished.summaries] == [
        summary.reward for summary in expected.summaries
    ]
    assert finished.summaries == expected.summaries
    assert_same_rows(read(second, finished), columns, bits=False)


def test_the_groups_of_the_property_above_have_several_turns_and_lengths(
    guessers: list[Worker],
) -> None:
    worker = guessers[0]
    worker.go_on()
    groups = [worker.whole(name) for name in "bcg"]
    assert len({turns for group in groups for turns in turns_of(group)}) > 1
    assert len({row.response_length for group in groups for row in group.summaries}) > 2


def test_a_partial_group_has_the_tokens_so_far_and_no_row_that_was_cut_is_done(
    open_worker: Callable[..., Worker],
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
    one, other = (read(worker, worker.whole(old=old)) for _ in range(2))
    assert pickle.dumps(old) == before
    assert_same_rows(one, other, bits=True)


def test_tokens_before_and_after_an_abort_keep_their_versions(
    open_worker: Callable[..., Worker],
) -> None:
    first, second = open_worker(), open_worker()
    first.abort_before(1)
    old = first.aborted()
    second.actor.refit(load_model("tiny-llama", seed=1).state_dict(), 3)
    group = second.whole(old=old)
    assert (group.start_version, group.end_version) == (0, 3)
    columns = read(second, group)
    for row, ((start, stop),) in enumerate(summary.spans for summary in group.summaries):
        expected = [0] + [3] * (stop - start - 1)
        assert columns[TOKEN_VERSIONS][row, start:stop].tolist() == expected


def test_an_abort_after_the_last_token_comes_before_the_put(
    open_worker: Callable[..., Worker],
) -> None:
    worker = open_worker()
    expected = read(worker, worker.whole())
    worker.client.clear_samples(rows(), PARTITION)
    worker.engine.after_turn = lambda: worker.actor.abort(["g"])
    old = worker.aborted()
    assert all(row.done for row in old.rows)
    assert stored(worker, rows()) == []
    group = worker.whole(old=old)
    assert_same_rows(read(worker, group), expected, bits=True)


def test_an_abort_leaves_other_groups(open_worker: Callable[..., Worker]) -> None:
    worker = open_worker()
    alone = {name: read(worker, worker.whole(name)) for name in "ab"}
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
    assert_same_rows(read(worker, b), alone["b"], bits=True)
    assert stored(worker, rows("a")) == []


def test_an_abort_of_all_groups_leaves_no_trace(open_worker: Callable[..., Worker]) -> None:
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
    open_worker: Callable[..., Worker],
) -> None:
    worker = open_worker(*GUESS)
    alone = [read(worker, worker.whole(f"p{number}", number=number)) for number in range(3)]
    both = threading.Barrier(3, timeout=60)
    worker.engine.before_token = lambda number: both.wait() if number < 2 else None

    def generate(number: int) -> GroupRollout:
        return worker.whole(f"p{number}", number=number)

    with ThreadPoolExecutor(3) as pool:
        together = list(pool.map(generate, range(3)))
    for group, expected in zip(together, alone, strict=True):
        assert_same_rows(read(worker, group), expected, bits=True)


def test_a_group_is_in_flight_once(open_worker: Callable[..., Worker]) -> None:
    worker = open_worker()
    errors: list[str] = []

    def again(number: int) -> None:
        if number == 0:
            with pytest.raises(ValueError, match="'g' is already in flight") as caught:
                worker.actor.generate_group(problem(worker.conf), "g", PARTITION)
            errors.append(str(caught.value))

    worker.engine.before_token = again
    worker.whole()
    assert len(errors) == 1


def test_a_partial_group_of_another_group_is_refused(open_worker: Callable[..., Worker]) -> None:
    worker = open_worker()
    worker.abort_before(1)
    old = worker.aborted()
    for group_id, number in (("h", 0), ("g", 1)):
        with pytest.raises(ValueError, match="expected a partial group"):
            worker.generate(group_id, old, number)


# -- failures ------------------------------------------------------------------------------------


class PutThenFail(MemoryClient):
    """A client that lost the answer to its put, whose rows are in the plane."""

    cleared: list[list[str]] = []  # noqa: RUF012 - set anew by each test

    def put_samples(self, *args: Any, **kwargs: Any) -> Any:
        super().put_samples(*args, **kwargs)
        raise PlaneUnavailable("no answer to the put")

    def clear_samples(self, sample_ids: list[str] | None, partition_id: str) -> None:
        self.cleared.append(list(sample_ids or []))
        super().clear_samples(sample_ids, partition_id)


class PutAndClearFail(PutThenFail):
    """A client whose plane is gone after the put."""

    error: type[Exception] = PlaneUnavailable

    def clear_samples(self, *_: Any, **__: Any) -> None:
        raise self.error("no answer to the clear")


def test_a_put_that_raises_leaves_no_rows(
    open_worker: Callable[..., Worker], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PutThenFail, "cleared", [])
    worker = open_worker(kind=PutThenFail)
    with pytest.raises(PlaneUnavailable, match="no answer to the put") as caught:
        worker.generate()
    assert PutThenFail.cleared == [rows()]
    assert stored(worker, rows()) == []
    assert not hasattr(caught.value, "__notes__")


@pytest.mark.parametrize("error", [PlaneUnavailable, OSError, RuntimeError, UnknownSample])
def test_an_error_of_the_clearing_is_noted_on_the_first_one(
    open_worker: Callable[..., Worker], monkeypatch: pytest.MonkeyPatch, error: type[Exception]
) -> None:
    monkeypatch.setattr(PutAndClearFail, "error", error)
    worker = open_worker(kind=PutAndClearFail)
    with pytest.raises(PlaneUnavailable, match="no answer to the put") as caught:
        worker.generate()
    (note,) = caught.value.__notes__
    assert "no answer to the clear" in note
    assert error.__name__ in note


def test_weights_that_are_not_finite_are_a_failure_of_the_model(
    open_worker: Callable[..., Worker],
) -> None:
    worker = open_worker()
    broken = worker.engine._model.state_dict()
    worker.actor.refit({name: torch.full_like(leaf, torch.inf) for name, leaf in broken.items()}, 1)
    with pytest.raises(ModelFailure, match="NaN or infinite"):
        worker.generate()
    assert stored(worker, rows()) == []
    worker.actor.refit(load_model("tiny-llama", seed=0).state_dict(), 2)
    worker.whole()  # the failed call is in flight no more


def test_a_problem_that_does_not_fit_is_a_failure_of_the_data(
    open_worker: Callable[..., Worker],
) -> None:
    worker = open_worker("data.min_length=3", "policy.max_total_sequence_length=8")
    with pytest.raises(DataFailure, match="has 6 tokens"):
        worker.generate()


def test_a_group_needs_a_plane() -> None:
    worker = PlaneRolloutWorker("cpu")
    worker.build(config())
    with pytest.raises(RuntimeError, match="call attach first"):
        worker.generate_group(problem(config()), "g", PARTITION)
    worker.close()


@pytest.mark.parametrize("error", [ModelFailure, DataFailure, TornWeights])
def test_failures_survive_pickling(error: type[Exception]) -> None:
    again = pickle.loads(pickle.dumps(error("what happened")))
    assert type(again) is error
    assert str(again) == "what happened"
