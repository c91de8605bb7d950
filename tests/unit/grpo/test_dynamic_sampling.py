"""Dynamic sampling selects groups and clears every other row."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlconform.contract import KVBatchMeta
from rlconform.grpo.algorithm.dynamic_sampling import (
    TooManyGenBatches,
    TornGroup,
    WrongStd,
    select_groups,
)
from rlconform.grpo.config import GRPOConfig
from rlconform.grpo.rollout.staleness_filter import MissingTag, RolloutFilterError
from rlconform.plane.columns import mint_sample_ids

SIZE = 2


def step_of(n_prompts: int, **options: Any) -> GRPOConfig:
    """A step with this number of groups; ``options`` without the prefix ``dynamic_sampling_``."""
    return GRPOConfig.model_validate(
        {
            "num_prompts_per_step": n_prompts,
            "num_generations_per_prompt": SIZE,
            "max_num_steps": 1,
            "seed": 0,
            **{f"dynamic_sampling_{name}": value for name, value in options.items()},
        }
    )


STEP_OF_TWO = step_of(2, max_gen_batches=3)


def generated(stds: dict[str, Any]) -> KVBatchMeta:
    """One group of two rows for each uid, with its std."""
    ids = mint_sample_ids(stds, SIZE)
    return KVBatchMeta(
        "train",
        None,
        ids,
        fields=["input_ids"],
        sequence_lengths=list(range(10, 10 + len(ids))),
        extra_info={"step": 3},
        tags=[{"std": std, "weight_version": 1} for std in stds.values() for _ in range(SIZE)],
    )


def test_a_full_step_has_the_groups_that_spread() -> None:
    meta = generated({"a": 0.5, "b": 0.0, "c": 0.1})
    selection = select_groups(None, meta, 1, STEP_OF_TWO)
    assert selection.complete
    assert selection.kept == meta.subset([0, 1, 4, 5]), "lengths and tags come along"
    assert selection.cleared == ["b_g0", "b_g1"]


def test_groups_are_collected_over_generation_batches() -> None:
    first = generated({"a": 0.5, "b": 0.0})
    one = select_groups(None, first, 1, STEP_OF_TWO)
    assert (one.kept.sample_ids, one.complete) == (["a_g0", "a_g1"], False)
    two = select_groups(one.kept, generated({"c": 0.0, "d": 0.0}), 2, STEP_OF_TWO)
    assert (two.kept, two.complete) == (one.kept, False)
    assert two.cleared == ["c_g0", "c_g1", "d_g0", "d_g1"]
    three = select_groups(two.kept, generated({"e": 0.3, "f": 0.0}), 3, STEP_OF_TWO)
    assert three.complete
    assert three.kept.sample_ids == ["a_g0", "a_g1", "e_g0", "e_g1"]
    assert three.cleared == ["f_g0", "f_g1"]


def test_what_a_step_does_not_take_is_cut_off_and_cleared() -> None:
    meta = generated({"a": 0.5, "b": 0.0, "c": 0.5, "d": 0.5, "e": 0.5})
    selection = select_groups(None, meta, 1, STEP_OF_TWO)
    assert selection.kept.sample_ids == ["a_g0", "a_g1", "c_g0", "c_g1"]
    assert selection.cleared == ["b_g0", "b_g1", "d_g0", "d_g1", "e_g0", "e_g1"]


def test_the_tolerance_is_what_a_group_must_exceed() -> None:
    options = step_of(1, std_tolerance=0.1)
    meta = generated({"a": 0.1, "b": math.nextafter(0.1, 1)})
    assert select_groups(None, meta, 1, options).kept.sample_ids == ["b_g0", "b_g1"]


def test_a_groups_rows_need_not_lie_side_by_side() -> None:
    meta = generated({"a": 0.5, "b": 0.0, "c": 0.5, "d": 0.5}).subset([6, 0, 2, 4, 5, 1, 3, 7])
    selection = select_groups(None, meta, 1, STEP_OF_TWO)
    assert selection.kept.sample_ids == ["d_g0", "a_g0", "a_g1", "d_g1"]
    assert selection.cleared == ["b_g0", "b_g1", "c_g0", "c_g1"]


def test_a_step_that_stays_too_small_ends_with_all_its_rows_named() -> None:
    first = select_groups(None, generated({"a": 0.5}), 1, STEP_OF_TWO)
    second = select_groups(first.kept, generated({"b": 0.0}), 2, STEP_OF_TWO)
    with pytest.raises(TooManyGenBatches, match="only 1 of 2 groups") as caught:
        select_groups(second.kept, generated({"c": 0.0}), 3, STEP_OF_TWO)
    assert caught.value.sample_ids == ["a_g0", "a_g1", "c_g0", "c_g1"]


def test_the_last_batch_that_is_allowed_may_fill_the_step() -> None:
    kept = select_groups(None, generated({"a": 0.5}), 2, STEP_OF_TWO).kept
    assert select_groups(kept, generated({"b": 0.5}), 3, STEP_OF_TWO).complete


def one_step(batches: list[KVBatchMeta], options: GRPOConfig) -> tuple[list[str], list[str], int]:
    """Run a trainer's loop; return the trained rows, the cleared rows and the number of batches."""
    collected, cleared = None, []
    for number, meta in enumerate(batches, start=1):
        try:
            selection = select_groups(collected, meta, number, options)
        except TooManyGenBatches as error:
            return [], [*cleared, *error.sample_ids], number
        collected = selection.kept
        cleared += selection.cleared
        if selection.complete:
            return collected.sample_ids, cleared, number
    pytest.fail("neither full nor refused")


@settings(deadline=None)
@given(st.lists(st.lists(st.sampled_from([0.0, 0.2, 0.7]), max_size=5), min_size=1, max_size=5))
def test_each_row_is_trained_on_or_cleared_once(batches: list[list[float]]) -> None:
    options = step_of(3, max_gen_batches=len(batches))
    stds = [
        {f"u{number}_{at}": std for at, std in enumerate(of_batch)}
        for number, of_batch in enumerate(batches)
    ]
    trained, cleared, used = one_step([generated(of_batch) for of_batch in stds], options)
    spread = [uid for of_batch in stds[:used] for uid, std in of_batch.items() if std > 0]
    if len(spread) >= 3:
        assert trained == mint_sample_ids(spread[:3], SIZE)
    else:
        assert (trained, used) == ([], len(batches))
    seen = [sample_id for of_batch in stds[:used] for sample_id in mint_sample_ids(of_batch, SIZE)]
    assert sorted([*trained, *cleared]) == sorted(seen)


@pytest.mark.parametrize("std", [None, "0.5", True, -0.1, math.nan, math.inf], ids=repr)
def test_a_std_that_is_no_spread_raises(std: object) -> None:
    with pytest.raises(WrongStd, match="a"):
        select_groups(None, generated({"a": std, "b": 0.5}), 1, STEP_OF_TWO)


def test_a_group_of_two_stds_raises() -> None:
    meta = generated({"a": 0.5}).stamp_tags({"std": [0.5, 0.0]})
    with pytest.raises(WrongStd, match="'a'"):
        select_groups(None, meta, 1, STEP_OF_TWO)


def test_a_prompt_that_comes_twice_in_a_step_raises() -> None:
    kept = select_groups(None, generated({"a": 0.5}), 1, STEP_OF_TWO).kept
    with pytest.raises(TornGroup, match="'a' has 4 rows"):
        select_groups(kept, generated({"a": 0.5}), 2, STEP_OF_TWO)


def test_a_group_without_some_of_its_rows_raises() -> None:
    with pytest.raises(TornGroup, match="'b' has 1 rows"):
        select_groups(None, generated({"a": 0.5, "b": 0.5}).slice(0, 3), 1, STEP_OF_TWO)


def test_rows_without_a_std_raise() -> None:
    with pytest.raises(MissingTag, match="a_g0"):
        select_groups(None, KVBatchMeta("train", None, ["a_g0", "a_g1"]), 1, STEP_OF_TWO)
    tagged = KVBatchMeta("train", None, ["a_g0", "a_g1"], tags=[{}, {}])
    with pytest.raises(MissingTag, match="a_g0"):
        select_groups(None, tagged, 1, STEP_OF_TWO)


def test_an_id_of_no_group_raises() -> None:
    meta = KVBatchMeta("train", None, ["a"], tags=[{"std": 0.5}])
    with pytest.raises(ValueError, match="names no group"):
        select_groups(None, meta, 1, STEP_OF_TWO)


def test_a_meta_of_another_partition_is_not_joined() -> None:
    kept = select_groups(None, generated({"a": 0.5}), 1, STEP_OF_TWO).kept
    other = KVBatchMeta("val", None, ["b_g0", "b_g1"], tags=[{"std": 0.5}] * 2)
    with pytest.raises(ValueError, match="partition_id"):
        select_groups(kept, other, 2, STEP_OF_TWO)


@pytest.mark.parametrize(
    "wrong",
    [{"max_gen_batches": 0}, {"std_tolerance": -0.1}, {"std_tolerance": math.nan}],
    ids=str,
)
def test_options_out_of_range_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        step_of(2, **wrong)


def test_errors_of_tags_have_the_root_of_rollout_filters() -> None:
    assert issubclass(WrongStd, RolloutFilterError)
    assert issubclass(TornGroup, RolloutFilterError)
