"""The loss and its metrics equal those of a loop over the tokens, for every variant."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from rlconform.grpo.config import ClippedPGLossConfig

from .batches import ROWS, WIDTH, a_batch, loss_of
from .options import ALL_TERMS, OPTIONS, PLAIN, every_option, replace
from .token_loop import naive


@every_option
@pytest.mark.parametrize("seed", range(3))
def test_loss_and_metrics_are_those_of_a_loop(options: ClippedPGLossConfig, seed: int) -> None:
    batch = a_batch(seed=seed)
    loss, metrics = loss_of(batch, options)
    expected = naive(batch, options)
    terms = ("policy_loss", "kl_loss")
    assert loss.item() == pytest.approx(sum(expected[name] for name in terms))
    left_out = set()
    if options.ratio_clip_c is None:
        left_out.add("dual_clipped")
    if options.truncated_importance_sampling_ratio is None:
        left_out.add("importance_truncated")
    assert metrics.keys() == expected.keys() - left_out
    got = {name: value.item() for name, value in metrics.items()}
    assert got == pytest.approx({name: expected[name] for name in metrics}, abs=1e-12)


def test_the_batch_above_reaches_every_branch() -> None:
    reached = [
        ("clipped_low", ALL_TERMS),
        ("clipped_high", ALL_TERMS),
        ("dual_clipped", OPTIONS["dual clip"]),
        *(("clipped_low", OPTIONS[name]) for name in ("gspo", "cispo")),
        *(("clipped_high", OPTIONS[name]) for name in ("gspo", "cispo")),
        *(
            ("importance_truncated", OPTIONS[name])
            for name in ("tis", "tis with both bounds", "icepop", "seq-mask-tis", "gspo corrected")
        ),
    ]
    for name, options in reached:
        assert 0 < naive(a_batch(), options)[name] < 1, (name, options)


def test_a_short_row_weighs_as_much_as_a_long_one_by_sequence() -> None:
    batch = a_batch()
    batch["sample_mask"] = torch.tensor([1, 1, 0, 0, 0, 0, 0, 0])
    batch["token_mask"] = torch.zeros(ROWS, WIDTH)
    batch["token_mask"][0, :2] = 1
    batch["token_mask"][1, :10] = 1
    batch["advantages"] = torch.ones(ROWS, WIDTH, dtype=torch.float64)
    batch["old_logprobs"] = batch["logprobs"]
    batch["advantages"][0] = 3
    by_sequence, _ = loss_of(batch, replace(PLAIN, token_level_loss=False))
    by_token, _ = loss_of(batch, PLAIN)
    assert by_sequence.item() == pytest.approx(-(3 + 1) / 2)
    assert by_token.item() == pytest.approx(-(3 * 2 + 1 * 10) / 12)


def test_without_reference_and_engine_their_metrics_are_left_out() -> None:
    batch: dict[str, Any] = a_batch() | {"reference_logprobs": None, "engine_logprobs": None}
    loss, metrics = loss_of(batch, PLAIN)
    assert loss.item() == metrics["policy_loss"].item()
    assert not {"kl_loss", "kl_to_reference", "engine_kl", "importance_weight"} & metrics.keys()
