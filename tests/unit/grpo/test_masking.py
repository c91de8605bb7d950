"""Masks of tokens and rows are compared with loops over Python floats."""

from __future__ import annotations

import math

import pytest
import torch

from rlconform.grpo.algorithm.masking import (
    count_valid,
    mask_logprob_error,
    mask_overlong,
    sequence_logprob_error,
    trained_tokens,
)

TOKENS = torch.tensor([[0, 1, 1, 0], [1, 1, 1, 1], [0, 0, 0, 0]])
SAMPLES = torch.tensor([1.0, 0.0, 1.0])


@pytest.mark.parametrize("dtype", [torch.bool, torch.int32, torch.float32])
def test_a_token_is_trained_where_both_masks_are_set(dtype: torch.dtype) -> None:
    trained = trained_tokens(TOKENS.to(dtype), SAMPLES.to(dtype))
    expected = [
        [bool(TOKENS[row, at]) and bool(SAMPLES[row]) for at in range(4)] for row in range(3)
    ]
    assert trained.dtype == torch.bool
    assert trained.tolist() == expected


def test_only_rows_with_a_trained_token_are_counted() -> None:
    assert count_valid(TOKENS, SAMPLES) == (2, 1)
    assert count_valid(TOKENS, torch.ones(3)) == (6, 2)
    assert count_valid(TOKENS, torch.zeros(3)) == (0, 0)


def test_counts_add_up_over_the_parts_of_a_batch() -> None:
    parts = [count_valid(TOKENS[row : row + 1], SAMPLES[row : row + 1]) for row in range(3)]
    assert tuple(map(sum, zip(*parts, strict=True))) == count_valid(TOKENS, SAMPLES)


def test_a_column_of_rows_is_no_row_of_masks() -> None:
    with pytest.raises(ValueError, match=r"sample_mask \(B,\)"):
        trained_tokens(TOKENS, SAMPLES.unsqueeze(1))


@pytest.mark.parametrize("dtype", [torch.bool, torch.int32, torch.float32])
def test_truncated_rows_are_dropped_and_none_comes_back(dtype: torch.dtype) -> None:
    mask = torch.tensor([1, 1, 0, 0]).to(dtype)
    masked = mask_overlong(mask, torch.tensor([False, True, False, True]))
    assert masked.dtype == dtype
    assert masked.tolist() == [1, 0, 0, 0]
    assert mask.tolist() == [1, 1, 0, 0], "the mask given stays as it is"


def test_masks_of_unlike_shapes_are_refused() -> None:
    with pytest.raises(ValueError, match="same shape"):
        mask_overlong(torch.ones(2), torch.zeros(2, 1))
    with pytest.raises(ValueError, match="same shape"):
        mask_logprob_error(torch.ones(2), torch.ones(3), 2.0)
    with pytest.raises(ValueError, match="same shape"):
        sequence_logprob_error(torch.zeros(2, 3), torch.zeros(2, 3), torch.ones(2, 4))


def test_the_error_of_a_sequence_is_that_of_a_loop() -> None:
    draw = torch.Generator().manual_seed(0)
    old = -torch.rand(5, 7, generator=draw, dtype=torch.float64)
    engine = -torch.rand(5, 7, generator=draw, dtype=torch.float64)
    mask = torch.rand(5, 7, generator=draw) < 0.6
    mask[3] = False
    expected = []
    for row in range(5):
        factors = [
            math.exp(abs(float(old[row, at]) - float(engine[row, at])))
            for at in range(7)
            if mask[row, at]
        ]
        expected.append(sum(factors) / len(factors) if factors else 1.0)
    assert sequence_logprob_error(old, engine, mask).tolist() == pytest.approx(expected)


def test_masked_tokens_are_no_part_of_the_error() -> None:
    old = torch.tensor([[-1.0, math.nan, -math.inf]])
    error = sequence_logprob_error(old, torch.full((1, 3), -1.0), torch.tensor([[1, 0, 0]]))
    assert error.tolist() == [1.0]


def test_rows_are_dropped_above_the_threshold_and_when_nothing_is_known_of_them() -> None:
    old = torch.tensor([[-1.0], [-1.0], [-1.0], [-math.inf], [math.nan]])
    engine = torch.tensor([[-1.0], [-1.0 - math.log(2)], [-3.0], [-1.0], [-1.0]])
    error = sequence_logprob_error(old, engine, torch.ones(5, 1))
    mask = torch.ones(5, dtype=torch.int32)
    assert mask_logprob_error(mask, error, 2.001).tolist() == [1, 1, 0, 0, 0]
    assert mask_logprob_error(mask, error, 1.0).tolist() == [1, 0, 0, 0, 0]


def test_the_threshold_is_inclusive_and_a_dropped_row_stays_dropped() -> None:
    mask = mask_logprob_error(torch.tensor([1.0, 0.0]), torch.tensor([1.5, 1.0]), 1.5)
    assert mask.tolist() == [1, 0]


@pytest.mark.parametrize("threshold", [0.99, 0, -1, math.nan])
def test_a_threshold_that_no_row_meets_is_refused(threshold: float) -> None:
    with pytest.raises(ValueError, match="threshold"):
        mask_logprob_error(torch.ones(1), torch.ones(1), threshold)
