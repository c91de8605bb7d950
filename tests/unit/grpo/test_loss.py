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
CORRECTED: dict[str, Any] = {
    "use_importance_sampling_correction": True,
    "truncated_importance_sampling_type": "tis",
    "truncated_importance_sampling_ratio": 1.5,
}
ALL_TERMS = ClippedPGLossConfig(
    ratio_clip_min=0.2,
    ratio_clip_max=0.28,
    ratio_clip_c=3.0,
    reference_policy_kl_penalty=0.05,
    reference_policy_kl_gradient="direct",
    **CORRECTED,
)
GSPO: dict[str, Any] = {
    "sequence_level_importance_ratios": True,
    "token_level_loss": False,
    "ratio_clip_min": 0.01,
    "ratio_clip_max": 0.01,
}


def replace(options: ClippedPGLossConfig, **changes: Any) -> ClippedPGLossConfig:
    """The options with some of them changed, validated again."""
    return ClippedPGLossConfig(**{**options.model_dump(), **changes})


def truncated(kind: str, low: float | None, high: float) -> ClippedPGLossConfig:
    """Importance sampling with this kind of truncation."""
    return ClippedPGLossConfig(
        reference_policy_kl_penalty=0.0,
        use_importance_sampling_correction=True,
        truncated_importance_sampling_type=kind,  # type: ignore[arg-type]
        truncated_importance_sampling_ratio=high,
        truncated_importance_sampling_ratio_min=low,
    )


def penalty(**changes: Any) -> ClippedPGLossConfig:
    """A KL penalty of 0.1 with these options."""
    return ClippedPGLossConfig(reference_policy_kl_penalty=0.1, **changes)


OPTIONS = {
    "plain": PLAIN,
    "no clip": replace(PLAIN, ratio_clip_min=0.999, ratio_clip_max=1e9),
    "clip higher": replace(PLAIN, ratio_clip_max=0.5),
    "dual clip": replace(PLAIN, ratio_clip_c=1.3),
    "importance sampling": replace(PLAIN, use_importance_sampling_correction=True),
    "tis": truncated("tis", None, 1.5),
    "tis with both bounds": truncated("tis", 0.8, 1.2),
    "icepop": truncated("icepop", 0.7, 1.4),
    "seq-mask-tis": truncated("seq-mask-tis", 0.9, 1.1),
    "kl": penalty(reference_policy_kl_gradient="direct"),
    "k1": penalty(reference_policy_kl_gradient="direct", reference_policy_kl_type="k1"),
    "k2": penalty(reference_policy_kl_gradient="direct", reference_policy_kl_type="k2"),
    "kl in bounds": penalty(
        reference_policy_kl_gradient="direct",
        reference_policy_kl_type="k1",
        kl_input_clamp_value=0.4,
        kl_output_clamp_value=0.3,
    ),
    "unbiased kl": penalty(),
    "on-policy kl": penalty(use_on_policy_kl_approximation=True),
    "kl in reward": penalty(use_kl_in_reward=True),
    "gspo": replace(PLAIN, **GSPO),
    "gspo corrected": replace(PLAIN, **GSPO, **CORRECTED),
    "cispo": replace(PLAIN, use_cispo=True),
    "reinforce": replace(PLAIN, disable_ppo_ratio=True),
    "on-policy ratio": replace(PLAIN, force_on_policy_ratio=True),
    "all terms": ALL_TERMS,
    "all terms by sequence": replace(ALL_TERMS, token_level_loss=False),
}
#: Options whose gradient is not that of their value, by design.
NOT_OF_VALUE = {"unbiased kl", "on-policy kl", "cispo", "on-policy ratio"}
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
    masks = batch["token_mask"], batch["sample_mask"]
    tokens, samples = count_valid(*masks)
    return {"valid_tokens": tokens, "valid_samples": samples}


def loss_of(
    batch: dict[str, Tensor], options: ClippedPGLossConfig, **valid: int
) -> tuple[Tensor, dict[str, Tensor]]:
    return policy_gradient_loss(**batch, options=options, **(valid or counts(batch)))  # type: ignore[arg-type]


def rows_of(batch: dict[str, Tensor], rows: Sequence[int]) -> dict[str, Tensor]:
    return {name: values[list(rows)] for name, values in batch.items()}


def naive(batch: dict[str, Tensor], options: ClippedPGLossConfig) -> dict[str, float]:
    """Compute the docstrings' formulas token by token."""
    lists: dict[str, Any] = {name: values.tolist() for name, values in batch.items()}
    valid = counts(batch)
    found: Counter[str] = Counter()
    for row in range(ROWS):
        trained = [at for at in range(WIDTH) if lists["token_mask"][row][at]]
        if not lists["sample_mask"][row] or not trained:
            continue
        found["samples"] += 1
        share = 1 / len(trained) / valid["valid_samples"]
        if options.token_level_loss:
            share = 1 / valid["valid_tokens"]
        for at, token in zip(trained, tokens_of(lists, row, trained, options), strict=True):
            new, a = lists["logprobs"][row][at], lists["advantages"][row][at]
            cost = cost_of(new, token["ratio"], a, options)
            if options.use_importance_sampling_correction:
                cost *= token["weight"]
            found["policy_loss"] += share * cost
            if not options.use_kl_in_reward:
                found["kl_loss"] += share * options.reference_policy_kl_penalty * token["kl"]
            found["kl_loss"] += 0
            found["tokens"] += 1
            found["engine_unknown"] += 0
            low, high = 1 - options.ratio_clip_min, 1 + options.ratio_clip_max
            r, either = token["ratio"], options.use_cispo
            token |= {
                "clipped_low": (either or a < 0) and r < low and not options.disable_ppo_ratio,
                "clipped_high": (either or a > 0) and r > high and not options.disable_ppo_ratio,
                "dual_clipped": a < 0 and r > (options.ratio_clip_c or math.inf),
                "entropy": -new,
            }
            for name, value in token.items():
                found[name] += float(value) / valid["valid_tokens"]  # type: ignore[assignment]
    del found["kl"], found["weight"]
    return dict(found)


def tokens_of(
    lists: dict[str, Any], row: int, trained: list[int], options: ClippedPGLossConfig
) -> list[dict[str, float]]:
    """Ratio, weight, KL and comparisons of each trained token of a row."""
    new, old, reference, engine = (
        [lists[f"{name}logprobs"][row][at] for at in trained]
        for name in ("", "old_", "reference_", "engine_")
    )
    if options.force_on_policy_ratio:
        old = new
    ratios = [n - o for n, o in zip(new, old, strict=True)]
    gaps = [o - e for o, e in zip(old, engine, strict=True)]
    mean_gap = sum(gaps) / len(gaps)
    importances = gaps
    if options.sequence_level_importance_ratios:
        ratios = [sum(ratios) / len(ratios)] * len(ratios)
        importances = [sum(gaps)] * len(gaps)
    tokens = []
    for i in range(len(trained)):
        r, w = math.exp(ratios[i]), math.exp(importances[i])
        weight, outside = truncate(w, math.exp(mean_gap), options)
        ref_gap = reference[i] - new[i]
        kl = estimate(ref_gap, options)
        if options.use_on_policy_kl_approximation:
            kl *= math.exp(new[i] - engine[i])
        out = options.kl_output_clamp_value or math.inf
        tokens.append(
            {
                "ratio": r,
                "weight": weight,
                "kl": min(max(kl, -out), out),
                "kl_from_old": math.exp(new[i] - old[i]) - (new[i] - old[i]) - 1,
                "kl_to_reference": math.exp(ref_gap) - ref_gap - 1,
                "importance_weight": w,
                "importance_truncated": outside,
                "engine_kl": math.exp(gaps[i]) - gaps[i] - 1,
                "engine_prob_error": math.exp(abs(gaps[i])),
            }
        )
    return tokens


def cost_of(new: float, r: float, a: float, options: ClippedPGLossConfig) -> float:
    low, high = 1 - options.ratio_clip_min, 1 + options.ratio_clip_max
    if options.disable_ppo_ratio:
        return -a * new
    if options.use_cispo:
        return -a * min(max(r, low), high) * new
    cost = max(-a * r, -a * min(max(r, low), high))
    if options.ratio_clip_c is not None and a < 0:
        cost = min(cost, -a * options.ratio_clip_c)
    return cost


def truncate(w: float, of_row: float, options: ClippedPGLossConfig) -> tuple[float, bool]:
    kind = options.truncated_importance_sampling_type
    low = options.truncated_importance_sampling_ratio_min or 0.0
    high = options.truncated_importance_sampling_ratio or math.inf
    held = of_row if kind == "seq-mask-tis" else w
    if low <= held <= high:
        return w, False
    return (min(max(w, low), high) if kind == "tis" else 0.0), True


def estimate(gap: float, options: ClippedPGLossConfig) -> float:
    bound = options.kl_input_clamp_value or math.inf
    gap = min(max(gap, -bound), bound)
    of_type = {"k1": -gap, "k2": gap * gap / 2, "k3": math.exp(gap) - gap - 1}
    return of_type[options.reference_policy_kl_type]


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


@pytest.mark.parametrize("name", [n for n in OPTIONS if n not in NOT_OF_VALUE])
def test_gradients_are_those_of_finite_differences(name: str) -> None:
    options = OPTIONS[name]
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
        if values.is_floating_point() and values.dim() == 2:
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
    masks = {"token_mask": torch.ones(1, 1), "sample_mask": torch.ones(1)}
    return batch | masks


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


GRADIENTS = {
    "unbiased kl": lambda t: t["surrogate"] + 0.1 * (t["new"] - t["reference"]),
    "on-policy kl": lambda t: (
        t["surrogate"] + 0.1 * math.exp(t["new"] - t["engine"]) * (t["new"] - t["reference"])
    ),
    "cispo": lambda t: -t["a"] * min(max(math.exp(t["new"] - t["old"]), 0.8), 1.2),
    "on-policy ratio": lambda t: -t["a"],
}


@pytest.mark.parametrize("name", GRADIENTS)
def test_gradients_that_are_not_those_of_the_value_are_those_of_a_loop(name: str) -> None:
    batch = a_batch()
    batch["logprobs"].requires_grad_()
    loss_of(batch, OPTIONS[name])[0].backward()  # type: ignore[no-untyped-call]
    got = batch["logprobs"].grad
    assert got is not None
    trained = batch["token_mask"].bool() & batch["sample_mask"].bool()[:, None]
    lists: dict[str, Any] = {key: values.tolist() for key, values in batch.items()}
    expected = torch.zeros_like(got)
    for row, at in trained.nonzero().tolist():
        token = {key: lists[f"{key}_logprobs"][row][at] for key in ("old", "reference", "engine")}
        token |= {"new": lists["logprobs"][row][at], "a": lists["advantages"][row][at]}
        r, a = math.exp(token["new"] - token["old"]), token["a"]
        flat = (a > 0 and r > 1.2) or (a < 0 and r < 0.8)
        token["surrogate"] = 0.0 if flat else -a * r
        expected[row, at] = GRADIENTS[name](token) / int(trained.sum())
    torch.testing.assert_close(got, expected)


def test_row_four_of_the_comparison_with_nemo_rl() -> None:
    """With log p = -1, log q = -2: the same value, and the gradients 1 and 1 - 1/e."""
    for gradient, expected in (("unbiased", 1.0), ("direct", 1 - math.exp(-1))):
        batch = one_token(-1.0, -1.0, 0.0, reference_logprobs=-2.0)
        batch["logprobs"].requires_grad_()
        options = ClippedPGLossConfig(
            reference_policy_kl_penalty=1.0,
            reference_policy_kl_gradient=gradient,  # type: ignore[arg-type]
        )
        loss, _ = loss_of(batch, options)
        loss.backward()  # type: ignore[no-untyped-call]
        assert loss.item() == pytest.approx(math.exp(-1))
        assert batch["logprobs"].grad is not None
        assert batch["logprobs"].grad.item() == pytest.approx(expected)


def test_a_bound_holds_the_penalty_of_a_rare_token() -> None:
    batch = one_token(-26.0, -26.0, 0.0, reference_logprobs=-1.0)
    batch["logprobs"].requires_grad_()
    loss, _ = loss_of(batch, penalty())
    loss.backward()  # type: ignore[no-untyped-call]
    assert loss.item() == pytest.approx(1.0)
    assert batch["logprobs"].grad is not None
    assert batch["logprobs"].grad.item() == 0
    unbounded, _ = loss_of(batch, penalty(kl_output_clamp_value=None))
    assert unbounded.item() == pytest.approx(0.1 * 4.85e8, rel=1e-3)


CORRECTING = [name for name, one in OPTIONS.items() if one.use_importance_sampling_correction]


@pytest.mark.parametrize("lost", [-math.inf, math.inf, math.nan])
@pytest.mark.parametrize("name", [*CORRECTING, "plain", "on-policy kl"])
def test_tokens_without_an_engine_logprob_count_but_do_not_train(name: str, lost: float) -> None:
    batch = a_batch()
    trained = batch["token_mask"].bool() & batch["sample_mask"].bool()[:, None]
    row = int(trained[0].any() == 0)
    at = int(trained[row].nonzero()[0])
    batch["engine_logprobs"][row, at] = lost
    batch["logprobs"].requires_grad_()
    loss, metrics = loss_of(batch, OPTIONS[name])
    loss.backward()  # type: ignore[no-untyped-call]
    gradient = batch["logprobs"].grad
    assert gradient is not None
    assert all(torch.isfinite(value) for value in (loss, gradient.sum(), *metrics.values()))
    assert loss.abs() < 10
    assert metrics["engine_unknown"].item() == 1
    if name not in CORRECTING:
        return
    by_row = "gspo" in name or name == "seq-mask-tis"
    silent = replace(OPTIONS[name], reference_policy_kl_penalty=0)
    batch["logprobs"] = batch["logprobs"].detach().requires_grad_()
    loss_of(batch, silent)[0].backward()  # type: ignore[no-untyped-call]
    gradient = batch["logprobs"].grad
    assert gradient is not None
    assert gradient[row].count_nonzero() == 0 if by_row else gradient[row, at] == 0


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
    with pytest.raises(ValueError, match="engine_logprobs"):
        loss_of(batch | {"engine_logprobs": None}, OPTIONS["on-policy kl"])


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
            "truncated_importance_sampling_ratio": 2.0,
            "truncated_importance_sampling_type": "tis",
        },
        {"truncated_importance_sampling_type": "rounded"},
        {"truncated_importance_sampling_ratio_min": 0.5},
        {
            "truncated_importance_sampling_ratio_min": None,
            **CORRECTED,
            "truncated_importance_sampling_type": "icepop",
        },
        {"truncated_importance_sampling_ratio_min": 1.6, **CORRECTED},
        {"disable_ppo_ratio": True, "force_on_policy_ratio": True},
        {"sequence_level_importance_ratios": True},
        {"use_cispo": True, "ratio_clip_c": 3.0},
        {"use_cispo": True, "token_level_loss": False},
        {"reference_policy_kl_type": "k4"},
        {"kl_input_clamp_value": 0.0},
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
