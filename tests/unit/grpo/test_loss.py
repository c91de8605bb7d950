"""The clipped policy-gradient loss equals that of a loop for every split of a batch."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from rlconform.grpo.algorithm.loss import policy_gradient_loss
from rlconform.grpo.algorithm.masking import count_valid
from rlconform.grpo.config import ClippedPGLossConfig

ROWS, WIDTH = 8, 12
PLAIN = ClippedPGLossConfig(reference_policy_kl_penalty=0.0)
ALL_TERMS = ClippedPGLossConfig(
    ratio_clip_min=0.2,
    ratio_clip_max=0.28,
    ratio_clip_c=3.0,
    reference_policy_kl_penalty=0.05,
    use_importance_sampling_correction=True,
    truncated_importance_sampling_ratio=1.5,
)


def replace(options: ClippedPGLossConfig, **changes: Any) -> ClippedPGLossConfig:
    """The options with some of them changed, validated again."""
    return ClippedPGLossConfig(**{**options.model_dump(), **changes})


OPTIONS = {
    "plain": PLAIN,
    "no clip": replace(PLAIN, ratio_clip_min=0.999, ratio_clip_max=1e9),
    "clip higher": replace(PLAIN, ratio_clip_max=0.5),
    "dual clip": replace(PLAIN, ratio_clip_c=1.3),
    "kl": ClippedPGLossConfig(reference_policy_kl_penalty=0.1),
    "importance sampling": replace(PLAIN, use_importance_sampling_correction=True),
    "truncated": replace(ALL_TERMS, ratio_clip_c=None, reference_policy_kl_penalty=0.0),
    "all terms": ALL_TERMS,
    "all terms by sequence": replace(ALL_TERMS, token_level_loss=False),
}
every_option = pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS.keys())


def a_batch(dtype: torch.dtype = torch.float64, seed: int = 0) -> dict[str, Tensor]:
    """Rows of different lengths; one is dropped, one has no trained token."""
    draw = torch.Generator().manual_seed(seed)

    def uniform(low: float, high: float) -> Tensor:
        return low + (high - low) * torch.rand(ROWS, WIDTH, generator=draw, dtype=dtype)

    old = uniform(-3, -0.5)
    token_mask = (torch.rand(ROWS, WIDTH, generator=draw) < 0.7).int()
    token_mask[2] = 0
    sample_mask = torch.ones(ROWS, dtype=torch.int32)
    sample_mask[5] = 0
    return {
        "logprobs": old + uniform(-0.6, 0.6),
        "old_logprobs": old,
        "reference_logprobs": old + uniform(-0.5, 0.5),
        "advantages": uniform(-2, 2),
        "token_mask": token_mask,
        "sample_mask": sample_mask,
        "engine_logprobs": old + uniform(-0.7, 0.7),
    }


def counts(batch: dict[str, Tensor]) -> dict[str, int]:
    tokens, samples = count_valid(batch["token_mask"], batch["sample_mask"])
    return {"valid_tokens": tokens, "valid_samples": samples}


def loss_of(
    batch: dict[str, Tensor], options: ClippedPGLossConfig, **valid: int
) -> tuple[Tensor, dict[str, Tensor]]:
    return policy_gradient_loss(**batch, options=options, **(valid or counts(batch)))  # type: ignore[arg-type]


def rows_of(batch: dict[str, Tensor], rows: Sequence[int]) -> dict[str, Tensor]:
    return {name: values[list(rows)] for name, values in batch.items()}


def naive(batch: dict[str, Tensor], options: ClippedPGLossConfig) -> dict[str, float]:
    """Compute the docstring's formula token by token."""
    lists: dict[str, Any] = {name: values.tolist() for name, values in batch.items()}
    valid = counts(batch)
    found: Counter[str] = Counter()
    for row in range(ROWS):
        trained = [at for at in range(WIDTH) if lists["token_mask"][row][at]]
        if not lists["sample_mask"][row] or not trained:
            continue
        found["samples"] += 1
        if options.token_level_loss:
            share = 1 / valid["valid_tokens"]
        else:
            share = 1 / len(trained) / valid["valid_samples"]
        for at in trained:
            new, old = lists["logprobs"][row][at], lists["old_logprobs"][row][at]
            reference = lists["reference_logprobs"][row][at]
            engine, a = lists["engine_logprobs"][row][at], lists["advantages"][row][at]
            r = math.exp(new - old)
            low, high = 1 - options.ratio_clip_min, 1 + options.ratio_clip_max
            cost = max(-a * r, -a * min(max(r, low), high))
            if options.ratio_clip_c is not None and a < 0:
                cost = min(cost, -a * options.ratio_clip_c)
            importance = math.exp(old - engine)
            bound = options.truncated_importance_sampling_ratio or math.inf
            if options.use_importance_sampling_correction:
                cost *= min(importance, bound)
            k3 = math.exp(reference - new) - (reference - new) - 1
            found["policy_loss"] += share * cost
            found["kl_loss"] += share * options.reference_policy_kl_penalty * k3
            found["tokens"] += 1
            averages = {
                "ratio": r,
                "clipped_low": a < 0 and r < low,
                "clipped_high": a > 0 and r > high,
                "dual_clipped": a < 0 and r > (options.ratio_clip_c or math.inf),
                "entropy": -new,
                "kl_from_old": r - (new - old) - 1,
                "kl_to_reference": k3,
                "importance_weight": importance,
                "importance_truncated": importance > bound,
                "engine_kl": importance - (old - engine) - 1,
                "engine_prob_error": math.exp(abs(old - engine)),
            }
            for name, value in averages.items():
                found[name] += float(value) / valid["valid_tokens"]  # type: ignore[assignment]
    return dict(found)


@every_option
@pytest.mark.parametrize("seed", range(3))
def test_loss_and_metrics_are_those_of_a_loop(options: ClippedPGLossConfig, seed: int) -> None:
    batch = a_batch(seed=seed)
    loss, metrics = loss_of(batch, options)
    expected = naive(batch, options)
    assert loss.item() == pytest.approx(expected["policy_loss"] + expected["kl_loss"])
    left_out = set()
    if options.ratio_clip_c is None:
        left_out.add("dual_clipped")
    if options.truncated_importance_sampling_ratio is None:
        left_out.add("importance_truncated")
    assert metrics.keys() == expected.keys() - left_out
    got = {name: value.item() for name, value in metrics.items()}
    assert got == pytest.approx({name: expected[name] for name in metrics}, abs=1e-12)


def test_the_batch_above_reaches_every_branch() -> None:
    expected = naive(a_batch(), replace(ALL_TERMS, ratio_clip_c=1.3))
    for name in ("clipped_low", "clipped_high", "dual_clipped", "importance_truncated"):
        assert 0 < expected[name] < 1, name


@every_option
def test_gradients_are_those_of_finite_differences(options: ClippedPGLossConfig) -> None:
    batch = rows_of(a_batch(), range(4))
    fixed = {name: values for name, values in batch.items() if name != "logprobs"}

    def of_logprobs(logprobs: Tensor) -> Tensor:
        return loss_of({"logprobs": logprobs, **fixed}, options)[0]

    assert torch.autograd.gradcheck(of_logprobs, batch["logprobs"].requires_grad_())


def parts_of(n_parts: int) -> list[list[int]]:
    size = ROWS // n_parts
    return [list(range(start, start + size)) for start in range(0, ROWS, size)]


@every_option
@pytest.mark.parametrize("n_parts", [2, 4, 8])
def test_gradients_by_token_are_the_same_bits_however_a_batch_is_cut(
    options: ClippedPGLossConfig, n_parts: int
) -> None:
    batch = a_batch(torch.float32)
    valid = counts(batch)
    whole, cut = (batch["logprobs"].clone().requires_grad_() for _ in range(2))
    loss_of({**batch, "logprobs": whole}, options)[0].backward()
    for rows in parts_of(n_parts):
        loss_of(rows_of({**batch, "logprobs": cut}, rows), options, **valid)[0].backward()
    assert whole.grad is not None
    assert whole.grad.count_nonzero() > 0
    assert cut.grad is not None
    assert torch.equal(whole.grad, cut.grad)


class Policy(torch.nn.Module):
    """Logprobs of a bigram model: a linear layer predicts each token from the previous one."""

    def __init__(self, vocabulary: int = 5) -> None:
        super().__init__()
        draw = torch.Generator().manual_seed(1)
        self.table = torch.nn.Parameter(
            torch.randn(vocabulary, vocabulary, generator=draw, dtype=torch.float64)
        )

    def forward(self, tokens: Tensor) -> Tensor:
        logprobs = self.table[tokens[:, :-1]].log_softmax(-1)
        return logprobs.gather(-1, tokens[:, 1:].unsqueeze(-1)).squeeze(-1)


def accumulated(
    parts: Iterable[Sequence[int]], options: ClippedPGLossConfig
) -> tuple[float, Tensor]:
    """Sum loss and gradients over the parts of one batch."""
    policy, batch = Policy(), a_batch()
    tokens = torch.randint(5, (ROWS, WIDTH + 1), generator=torch.Generator().manual_seed(2))
    old = policy(tokens).detach()
    shift = old - batch["old_logprobs"]
    for name in ("reference_logprobs", "engine_logprobs"):
        batch[name] = batch[name] + shift
    batch["old_logprobs"] = old + 0.1 * batch["advantages"]
    valid, total = counts(batch), 0.0
    for rows in parts:
        part = rows_of(batch, rows) | {"logprobs": policy(tokens[list(rows)])}
        loss, _ = loss_of(part, options, **valid)
        loss.backward()  # type: ignore[no-untyped-call]
        total += loss.item()
    assert policy.table.grad is not None
    return total, policy.table.grad


@every_option
@pytest.mark.parametrize("n_parts", [1, 2, 4])
def test_a_policy_has_the_same_gradients_over_one_two_and_four_parts(
    options: ClippedPGLossConfig, n_parts: int
) -> None:
    loss, gradients = accumulated([range(ROWS)], options)
    assert gradients.abs().max() > 1e-3
    loss_of_parts, gradients_of_parts = accumulated(parts_of(n_parts), options)
    assert loss_of_parts == pytest.approx(loss, rel=1e-12)
    torch.testing.assert_close(gradients_of_parts, gradients, rtol=1e-12, atol=1e-15)


@settings(max_examples=25, deadline=None)
@given(st.permutations(range(ROWS)), st.sets(st.integers(1, ROWS - 1)), st.booleans())
def test_a_policy_has_the_same_gradients_over_any_parts(
    order: list[int], cuts: set[int], token_level: bool
) -> None:
    options = replace(ALL_TERMS, token_level_loss=token_level)
    bounds = [0, *sorted(cuts), ROWS]
    parts = [order[start:stop] for start, stop in pairwise(bounds)]
    loss, gradients = accumulated([range(ROWS)], options)
    loss_of_parts, gradients_of_parts = accumulated(parts, options)
    assert loss_of_parts == pytest.approx(loss, rel=1e-12)
    torch.testing.assert_close(gradients_of_parts, gradients, rtol=1e-12, atol=1e-15)


@every_option
def test_metrics_add_up_over_parts(options: ClippedPGLossConfig) -> None:
    batch = a_batch()
    _, whole = loss_of(batch, options)
    added: Counter[str] = Counter()
    for rows in parts_of(4):
        _, part = loss_of(rows_of(batch, rows), options, **counts(batch))
        assert part.keys() == whole.keys()
        added.update({name: value.item() for name, value in part.items()})  # type: ignore[arg-type]
    assert dict(added) == pytest.approx({name: value.item() for name, value in whole.items()})


@every_option
def test_padding_changes_nothing(options: ClippedPGLossConfig) -> None:
    batch = a_batch()
    wide = dict(batch)
    for name, values in batch.items():
        if values.dim() == 2:
            beyond = math.nan if values.is_floating_point() else 0
            wide[name] = torch.nn.functional.pad(values, (0, 5), value=beyond)
    torch.testing.assert_close(loss_of(wide, options)[0], loss_of(batch, options)[0])


@every_option
@pytest.mark.parametrize("filler", [math.nan, math.inf, -math.inf])
def test_what_is_masked_reaches_neither_loss_nor_gradients(
    options: ClippedPGLossConfig, filler: float
) -> None:
    batch = a_batch()
    clean, _ = loss_of(batch, options)
    off = ~(batch["token_mask"].bool() & batch["sample_mask"].bool().unsqueeze(1))
    for values in batch.values():
        if values.is_floating_point():
            values[off] = filler
            assert not torch.isfinite(values).all()
    batch["logprobs"].requires_grad_()
    loss, metrics = loss_of(batch, options)
    loss.backward()  # type: ignore[no-untyped-call]
    assert loss.item() == clean.item()
    assert all(torch.isfinite(value) for value in metrics.values())
    gradients = batch["logprobs"].grad
    assert gradients is not None
    assert torch.equal(gradients[off], torch.zeros_like(gradients[off]))
    assert torch.isfinite(gradients).all()


@every_option
def test_a_batch_of_which_nothing_is_trained_costs_nothing(options: ClippedPGLossConfig) -> None:
    batch = a_batch()
    batch["sample_mask"] = torch.zeros(ROWS)
    batch["logprobs"].requires_grad_()
    loss, metrics = loss_of(batch, options, valid_tokens=0, valid_samples=0)
    loss.backward()  # type: ignore[no-untyped-call]
    assert loss.item() == 0
    assert all(value.item() == 0 for value in metrics.values())
    assert batch["logprobs"].grad is not None
    assert batch["logprobs"].grad.count_nonzero() == 0


def one_token(logprob: float, old: float, advantage: float, **more: Any) -> dict[str, Tensor]:
    column = {"logprobs": logprob, "old_logprobs": old, "advantages": advantage}
    batch = {name: torch.tensor([[value]]) for name, value in (column | more).items()}
    batch.setdefault("reference_logprobs", batch["old_logprobs"])
    return batch | {"token_mask": torch.ones(1, 1), "sample_mask": torch.ones(1)}


@pytest.mark.parametrize("advantage", [1.0, -1.0, 0.0])
@pytest.mark.parametrize(
    ("logprob", "old"), [(-1.0, -math.inf), (-math.inf, -1.0), (-1.0, -200.0), (-200.0, -1.0)]
)
def test_an_infinite_ratio_is_held(logprob: float, old: float, advantage: float) -> None:
    batch = one_token(logprob, old, advantage, engine_logprobs=-1.0)
    batch["logprobs"].requires_grad_()
    loss, metrics = loss_of(batch, ALL_TERMS)
    loss.backward()  # type: ignore[no-untyped-call]
    assert torch.isfinite(loss)
    assert math.isfinite(metrics["ratio"].item())
    assert batch["logprobs"].grad is not None
    assert batch["logprobs"].grad.item() == pytest.approx(0, abs=1e-3)


def test_a_trained_token_without_a_number_is_not_hidden() -> None:
    loss, _ = loss_of(one_token(math.nan, -1.0, 1.0), PLAIN)
    assert loss.isnan()


def test_on_policy_the_gradient_is_that_of_reinforce() -> None:
    batch = a_batch()
    batch["logprobs"] = batch["old_logprobs"].clone().requires_grad_()
    loss_of(batch, PLAIN)[0].backward()  # type: ignore[no-untyped-call]
    trained = batch["token_mask"] * batch["sample_mask"].unsqueeze(1)
    expected = -batch["advantages"] * trained / trained.sum()
    torch.testing.assert_close(batch["logprobs"].grad, expected)


def test_old_logprobs_may_be_those_that_are_trained() -> None:
    batch = a_batch()
    batch["logprobs"].requires_grad_()
    loss_of({**batch, "old_logprobs": batch["logprobs"]}, PLAIN)[0].backward()  # type: ignore[no-untyped-call]
    assert batch["logprobs"].grad is not None
    assert batch["logprobs"].grad.count_nonzero() > 0


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


@pytest.mark.parametrize("name", ["old_logprobs", "reference_logprobs", "advantages", "logprobs"])
def test_a_column_of_another_shape_is_refused(name: str) -> None:
    batch = a_batch()
    batch[name] = batch[name][:, :1]
    with pytest.raises(ValueError, match=f"{name} must be"):
        loss_of(batch, PLAIN)


def test_terms_without_their_column_are_refused() -> None:
    batch: dict[str, Any] = a_batch()
    with pytest.raises(ValueError, match="reference_logprobs"):
        loss_of(batch | {"reference_logprobs": None}, ALL_TERMS)
    with pytest.raises(ValueError, match="engine_logprobs"):
        loss_of(batch | {"engine_logprobs": None}, ALL_TERMS)


def test_counts_of_a_part_in_place_of_the_batchs_are_refused() -> None:
    batch = a_batch()
    tokens, samples = counts(batch).values()
    with pytest.raises(ValueError, match="whole batch"):
        loss_of(batch, PLAIN, valid_tokens=tokens - 1, valid_samples=samples)
    with pytest.raises(ValueError, match="whole batch"):
        loss_of(batch, PLAIN, valid_tokens=tokens, valid_samples=samples - 1)


@pytest.mark.parametrize(
    "wrong",
    [
        {"ratio_clip_min": -0.1},
        {"ratio_clip_min": 1.1},
        {"ratio_clip_max": -0.1},
        {"ratio_clip_max": math.nan},
        {"ratio_clip_c": 1.0},
        {"reference_policy_kl_penalty": -1.0},
        {"reference_policy_kl_penalty": math.nan},
        {"truncated_importance_sampling_ratio": 2.0},
        {
            "truncated_importance_sampling_ratio": 0.0,
            "use_importance_sampling_correction": True,
        },
    ],
    ids=str,
)
def test_options_out_of_range_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        ClippedPGLossConfig(**wrong)
