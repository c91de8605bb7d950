"""Groups that are generated one per call: rows, versions and tags in the plane, and failures.

The fixture ``open_worker`` opens a real worker; its engine calls ``before_token(n)`` before each
token, in the thread that generates.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch

from rlconform.backends.memory import MemoryClient
from rlconform.contract import (
    CapacityExceeded,
    DataPlaneError,
    PlaneUnavailable,
    UnknownSample,
)
from rlconform.contract.fields import GENERATION_LOGPROBS, TOKEN_MASK
from rlconform.grpo.failures import (
    DataFailure,
    ModelFailure,
    RewardFailure,
    TooFewRewards,
    TornWeights,
)
from rlconform.grpo.models import load_model
from rlconform.grpo.replay.slots import Failure
from rlconform.grpo.rollout.group_port import failure_of
from rlconform.grpo.rollout.plane_worker import PlaneRolloutWorker
from rlconform.grpo.rollout.worker import ROLLOUT_FIELDS, TOKEN_VERSIONS, Rollout

G = 3
PARTITION = "train"
FIELDS = [*ROLLOUT_FIELDS, TOKEN_VERSIONS]
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


@pytest.mark.parametrize("overrides", [(), GUESS])
def test_a_group_named_like_its_problem_has_the_rows_of_a_collected_one(
    open_worker: Callable[..., Any], same_rows: Callable[..., None], overrides: tuple[str, ...]
) -> None:
    worker = open_worker(*overrides)
    asked = worker.problem()
    collected: Rollout = worker.actor.collect([asked], "train")
    group = worker.whole(asked.uid)
    assert group.meta.sample_ids == collected.sample_ids == rows(asked.uid)
    assert group.summaries == collected.summaries
    same_rows(worker.read(group), collected.columns, bits=True)


def test_a_group_is_one_put_with_rewards_known_and_both_versions(
    open_worker: Callable[..., Any],
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
    columns = worker.read(group)
    assert torch.equal(columns[TOKEN_VERSIONS] == 0, columns[TOKEN_MASK].bool())
    assert torch.equal(columns[TOKEN_VERSIONS] == -1, ~columns[TOKEN_MASK].bool())


def test_the_name_of_a_group_and_not_its_problem_makes_its_random_numbers(
    open_worker: Callable[..., Any],
    same_rows: Callable[..., None],
) -> None:
    worker = open_worker()
    first, again, other = worker.whole("a"), worker.whole("a"), worker.whole("b")
    one, same, another = (worker.read(group) for group in (first, again, other))
    same_rows(one, same, bits=True)
    assert not torch.equal(one[GENERATION_LOGPROBS], another[GENERATION_LOGPROBS])


@pytest.mark.parametrize("number", [1, 5, 11])
def test_a_refit_between_tokens_shows_in_versions_tags_and_summaries(
    open_worker: Callable[..., Any], number: int
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
    columns = worker.read(group)
    for row, summary in enumerate(group.summaries):
        for turn, (start, stop) in enumerate(summary.spans):
            versions = columns[TOKEN_VERSIONS][row, start:stop].tolist()
            # The first turn makes tokens 0, 1, ...; later turns come after the refit.
            expected = [0 if turn == 0 and n < number else 5 for n in range(stop - start)]
            assert versions == expected
            assert summary.versions[turn] == (min(versions), max(versions))
    assert any((0, 5) in summary.versions for summary in group.summaries)


# -- failures ------------------------------------------------------------------------------------


class PutThenFail(MemoryClient):
    """A client whose puts raise ``error`` once the rows are in the plane."""

    error: type[DataPlaneError] = CapacityExceeded
    cleared: list[list[str]] = []  # noqa: RUF012 - set anew by each test

    def put_samples(self, *args: Any, **kwargs: Any) -> Any:
        super().put_samples(*args, **kwargs)
        self.on_put()
        raise self.error("the put failed")

    def on_put(self) -> None:
        """Do what happens during the put."""

    def clear_samples(self, sample_ids: list[str] | None, partition_id: str) -> None:
        self.cleared.append(list(sample_ids or []))
        super().clear_samples(sample_ids, partition_id)


class PutAndClearFail(PutThenFail):
    """A client whose plane is gone after the put."""

    second: type[Exception] = PlaneUnavailable

    def clear_samples(self, *_: Any, **__: Any) -> None:
        raise self.second("the clear failed")


def test_a_put_that_raises_leaves_no_rows(
    open_worker: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PutThenFail, "cleared", [])
    worker = open_worker(kind=PutThenFail)
    with pytest.raises(CapacityExceeded, match="the put failed") as caught:
        worker.generate()
    assert PutThenFail.cleared == [rows()]
    assert worker.stored(rows()) == []
    assert not hasattr(caught.value, "__notes__")


@pytest.mark.parametrize(("aborted", "left"), [(False, rows()), (True, [])])
def test_rows_of_a_put_without_an_answer_are_the_callers_unless_it_gave_up(
    open_worker: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
    aborted: bool,
    left: list[str],
) -> None:
    monkeypatch.setattr(PutThenFail, "error", PlaneUnavailable)
    monkeypatch.setattr(PutThenFail, "cleared", [])
    worker = open_worker(kind=PutThenFail)
    if aborted:
        monkeypatch.setattr(worker.client, "on_put", lambda: worker.actor.abort(["g"]))
    with pytest.raises(PlaneUnavailable, match="the put failed"):
        worker.generate()
    assert worker.stored(rows()) == left
    assert len(PutThenFail.cleared) == aborted


@pytest.mark.parametrize("error", [PlaneUnavailable, OSError, RuntimeError, UnknownSample])
def test_an_error_of_the_clearing_is_noted_on_the_first_one(
    open_worker: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, error: type[Exception]
) -> None:
    monkeypatch.setattr(PutAndClearFail, "second", error)
    worker = open_worker(kind=PutAndClearFail)
    with pytest.raises(CapacityExceeded, match="the put failed") as caught:
        worker.generate()
    (note,) = caught.value.__notes__
    assert "the clear failed" in note
    assert error.__name__ in note


def test_weights_that_are_not_finite_are_a_failure_of_the_model(
    open_worker: Callable[..., Any],
) -> None:
    worker = open_worker()
    broken = worker.engine._model.state_dict()
    worker.actor.refit({name: torch.full_like(leaf, torch.inf) for name, leaf in broken.items()}, 1)
    with pytest.raises(ModelFailure, match="NaN or infinite"):
        worker.generate()
    assert worker.stored(rows()) == []
    worker.actor.refit(load_model("tiny-llama", seed=0).state_dict(), 2)
    worker.whole()  # the failed call is in flight no more


def test_a_problem_that_does_not_fit_is_a_failure_of_the_data(
    open_worker: Callable[..., Any],
) -> None:
    worker = open_worker("data.min_length=3", "policy.max_total_sequence_length=8")
    with pytest.raises(DataFailure, match="has 6 tokens"):
        worker.generate()


def test_a_group_needs_a_plane(open_worker: Callable[..., Any]) -> None:
    attached = open_worker()
    worker = PlaneRolloutWorker("cpu")
    worker.build(attached.conf)
    with pytest.raises(RuntimeError, match="call attach first"):
        worker.generate_group(attached.problem(), "g", PARTITION)
    worker.close()


@pytest.mark.parametrize(
    ("error", "failure"),
    [
        (DataFailure("x"), Failure.DATA),
        (ModelFailure("x"), Failure.MODEL),
        (TooFewRewards("x"), Failure.REWARD),
        (OSError("x"), Failure.INFRA),
        (PlaneUnavailable("x"), Failure.INFRA),
        (RewardFailure("x"), None),  # of ``on_failure: raise``
        (TornWeights("x"), None),
    ],
)
def test_errors_of_an_attempt_have_a_class(error: Exception, failure: Failure | None) -> None:
    assert failure_of(error) is failure


@pytest.mark.parametrize(
    "error", [ModelFailure, DataFailure, TornWeights, RewardFailure, TooFewRewards]
)
def test_failures_survive_pickling(error: type[Exception]) -> None:
    again = pickle.loads(pickle.dumps(error("what happened")))
    assert type(again) is error
    assert str(again) == "what happened"
