"""Synthetic rollouts have shapes as in production, and equal values for equal seeds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch

from rlconform.certify.assertions.expect import same_object
from rlconform.certify.scenarios.rollouts import (
    PAD_TOKEN_ID,
    VOCABULARY,
    SyntheticRollout,
    rollout_batch,
)
from rlconform.contract.fields import PER_TOKEN_FIELDS
from rlconform.wire import same_rows

GROUP = 4


@pytest.fixture(scope="module")
def rollout() -> SyntheticRollout:
    """The 64 rows of 256 to 4,096 tokens on which paths are compared."""
    return rollout_batch(16, GROUP, seed=5, min_tokens=256, max_tokens=4096)


def beyond(rollout: SyntheticRollout) -> torch.Tensor:
    """(N, S), True after each row's tokens."""
    width = rollout.columns["input_ids"].shape[1]
    return torch.arange(width) >= rollout.columns["input_lengths"][:, None]


def groups(values: Sequence[Any], size: int = GROUP) -> list[Sequence[Any]]:
    return [values[start : start + size] for start in range(0, len(values), size)]


def same_rollouts(left: SyntheticRollout, right: SyntheticRollout) -> bool:
    return (
        left.sample_ids == right.sample_ids
        and left.tags == right.tags
        and same_object(left.message_logs, right.message_logs)
        and list(left.columns.keys()) == list(right.columns.keys())
        and all(same_rows(left.columns[key], right.columns[key]) for key in left.columns.keys())  # noqa: SIM118
    )


def test_columns_have_the_dtypes_and_shapes_of_production(rollout: SyntheticRollout) -> None:
    width = max(rollout.lengths)
    assert rollout.columns.batch_size == (64,)
    assert {
        name: (leaf.dtype, tuple(leaf.shape[1:])) for name, leaf in rollout.columns.items()
    } == {
        "input_ids": (torch.int64, (width,)),
        "input_lengths": (torch.int64, ()),
        "generation_logprobs": (torch.bfloat16, (width,)),
        "token_mask": (torch.int32, (width,)),
        "sample_mask": (torch.int32, ()),
        "total_reward": (torch.float32, ()),
    }


def test_lengths_lie_in_their_bounds_and_spread_over_them(rollout: SyntheticRollout) -> None:
    assert 256 <= min(rollout.lengths) < 600
    assert 3700 < max(rollout.lengths) <= 4096
    assert {*rollout_batch(32, 4, min_tokens=2, max_tokens=4).lengths} == {2, 3, 4}


def test_padding_of_tokens_and_masks_differs(rollout: SyntheticRollout) -> None:
    outside = beyond(rollout)
    ids = rollout.columns["input_ids"]
    assert (ids[outside] == PAD_TOKEN_ID).all()
    assert int(ids[~outside].min()) >= 0
    assert int(ids[~outside].max()) < VOCABULARY <= PAD_TOKEN_ID != 0
    assert rollout.columns["token_mask"][outside].count_nonzero() == 0
    assert rollout.columns["generation_logprobs"][outside].count_nonzero() == 0


def test_every_per_token_column_has_its_pad_value(rollout: SyntheticRollout) -> None:
    assert rollout.pad_values.keys() == PER_TOKEN_FIELDS & {*rollout.columns.keys()}
    for name, value in rollout.pad_values.items():
        assert (rollout.columns[name][beyond(rollout)] == value).all()


def test_only_tokens_of_the_policy_have_logprobs(rollout: SyntheticRollout) -> None:
    written = rollout.columns["token_mask"].bool()
    logprobs = rollout.columns["generation_logprobs"]
    assert bool((logprobs[written] < 0).all())
    assert logprobs[~written].count_nonzero() == 0
    half = logprobs.half().bfloat16()
    assert not torch.equal(half, logprobs), "a passage through float16 must show"


def test_rows_of_a_group_share_only_their_prompt(rollout: SyntheticRollout) -> None:
    for rows, logs in zip(
        groups(rollout.columns["input_ids"]), groups(rollout.message_logs), strict=True
    ):
        prompts = [log[0]["token_ids"] for log in logs]
        assert len(prompts[0]) > 0
        assert all(torch.equal(prompt, prompts[0]) for prompt in prompts)
        assert len({tuple(row.tolist()) for row in rows}) == len(rows)


def test_message_logs_have_the_same_tokens_and_masks(rollout: SyntheticRollout) -> None:
    for row, log in enumerate(rollout.message_logs):
        length = rollout.lengths[row]
        tokens = torch.cat([message["token_ids"] for message in log])
        assert torch.equal(tokens, rollout.columns["input_ids"][row, :length])
        mask = [message["role"] == "assistant" for message in log for _ in message["token_ids"]]
        assert rollout.columns["token_mask"][row, :length].tolist() == mask


def test_message_logs_take_turns(rollout: SyntheticRollout) -> None:
    roles = [[message["role"] for message in log] for log in rollout.message_logs]
    expected = ["user", *["assistant", "environment"] * 3]
    assert all(of_row == expected[: len(of_row)] for of_row in roles)
    assert {len(of_row) for of_row in roles} == {2, 3, 4, 5, 6, 7}
    assert {of_row[-1] for of_row in roles} == {"assistant", "environment"}
    single = rollout_batch(4, 4, max_turns=1)
    assert {len(log) for log in single.message_logs} == {2, 3}


def test_message_logs_own_their_tokens() -> None:
    rollout = rollout_batch(2, 2)
    tokens = rollout.message_logs[0][0]["token_ids"].clone()
    rollout.columns["input_ids"].zero_()
    assert torch.equal(rollout.message_logs[0][0]["token_ids"], tokens)


def test_tags_hold_length_version_and_the_groups_std(rollout: SyntheticRollout) -> None:
    assert [tags["input_lengths"] for tags in rollout.tags] == rollout.lengths
    assert {type(value) for tags in rollout.tags for value in tags.values()} == {
        int,
        float,
        bool,
    }
    assert {tags["weight_version"] for tags in rollout.tags} == {1}
    rewards = rollout.columns["total_reward"].double().view(-1, GROUP)
    stds = torch.tensor([tags["std"] for tags in rollout.tags]).view(-1, GROUP)
    assert torch.allclose(stds, rewards.std(dim=1, unbiased=False).float()[:, None])


@pytest.mark.parametrize("size", [2, 8])
def test_one_group_in_three_has_equal_rewards(size: int) -> None:
    for seed in range(5):
        rollout = rollout_batch(7, size, seed)
        equal = [
            len({*rewards.tolist()}) == 1 for rewards in rollout.columns["total_reward"].split(size)
        ]
        assert equal == [False, True, False, False, True, False, False]
        assert [{t["std"] > 0 for t in tags} for tags in groups(rollout.tags, size)] == [
            {not same} for same in equal
        ]


def test_aborted_rows_have_a_prompt_and_no_response() -> None:
    rollout = rollout_batch(4, GROUP, seed=2, aborted=3)
    responses = [sum(len(m["token_ids"]) for m in log[1:]) for log in rollout.message_logs]
    empty = [row for row, tokens in enumerate(responses) if tokens == 0]
    assert len(empty) == 3
    assert len({row // GROUP for row in empty}) == 3, "they lie in different groups"
    assert rollout.columns["sample_mask"][empty].tolist() == [0, 0, 0]
    assert not any(rollout.tags[row]["truncated"] for row in empty)
    assert [len(rollout.message_logs[row]) for row in empty] == [2, 2, 2]
    assert all(tags["input_lengths"] > 0 for tags in rollout.tags)


def test_all_rows_may_be_aborted() -> None:
    rollout = rollout_batch(2, 2, aborted=4)
    assert rollout.columns["token_mask"].count_nonzero() == 0
    assert [len(log[0]["token_ids"]) for log in rollout.message_logs] == rollout.lengths


def test_sample_mask_drops_truncated_rows() -> None:
    rollout = rollout_batch(16, 4)
    columns, truncated = rollout.columns, torch.tensor([t["truncated"] for t in rollout.tags])
    assert truncated.any()
    assert columns["sample_mask"][truncated].count_nonzero() == 0
    trained = columns["token_mask"].any(dim=1) & ~truncated
    assert torch.equal(columns["sample_mask"], trained.int())


def test_the_width_is_rounded_up() -> None:
    rollout = rollout_batch(4, 4, max_tokens=50, width_multiple=16)
    assert rollout.columns["input_ids"].shape[1] == -(-max(rollout.lengths) // 16) * 16
    assert (rollout.columns["input_ids"][beyond(rollout)] == PAD_TOKEN_ID).all()


def test_an_image_for_each_row() -> None:
    pixels = rollout_batch(2, 2, image_shape=(3, 4, 5)).columns["pixel_values"]
    assert (pixels.dtype, pixels.shape) == (torch.bfloat16, (4, 3, 4, 5))
    assert pixels.isfinite().all()
    assert len({tuple(image.flatten().tolist()) for image in pixels}) == 4


def test_the_same_arguments_give_the_same_rollout() -> None:
    arguments: dict[str, Any] = {"seed": 9, "aborted": 1, "image_shape": (3, 2, 2)}
    assert same_rollouts(rollout_batch(3, 2, **arguments), rollout_batch(3, 2, **arguments))


def test_no_other_generator_is_read_or_moved() -> None:
    before = torch.get_rng_state()
    first = rollout_batch(3, 2)
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(99)
    assert same_rollouts(rollout_batch(3, 2), first)


def test_different_seeds_share_no_ids_and_no_column() -> None:
    first, second = rollout_batch(3, 4, seed=0), rollout_batch(3, 4, seed=1)
    assert not {*first.sample_ids} & {*second.sample_ids}
    for name in ("input_lengths", "total_reward"):
        assert not torch.equal(first.columns[name], second.columns[name])


def test_a_further_column_leaves_the_others_as_they_are() -> None:
    plain = rollout_batch(3, 2)
    with_images = rollout_batch(3, 2, weight_version=8, image_shape=(1, 2, 2))
    for name in plain.columns.keys():  # noqa: SIM118
        assert same_rows(plain.columns[name], with_images.columns[name])
    assert {tags["weight_version"] for tags in with_images.tags} == {8}


@pytest.mark.parametrize(
    "wrong",
    [
        {"n_prompts": 0},
        {"group_size": 0},
        {"seed": -1},
        {"max_turns": 0},
        {"width_multiple": 0},
        {"min_tokens": 1},
        {"min_tokens": 9, "max_tokens": 8},
        {"aborted": -1},
        {"aborted": 5},
    ],
    ids=str,
)
def test_arguments_that_make_no_rollout_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=r"count from|tokens or more|aborted"):
        rollout_batch(**({"n_prompts": 2, "group_size": 2} | wrong))
