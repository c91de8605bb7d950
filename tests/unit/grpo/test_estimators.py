"""Advantage estimators are compared with loops over Python floats."""

from __future__ import annotations

import statistics
from typing import Any

import pytest
import torch

from rlconform.grpo.algorithm.estimators import ScoredRows, estimate_advantages
from rlconform.grpo.config import GRPOConfig

GROUPS = ["a", "b", "a", "b", "c", "c", "a", "b"]
ROWS, WIDTH = len(GROUPS), 5


def config(name: str = "grpo", **options: Any) -> GRPOConfig:
    """The options of ``adv_estimator`` and, with the prefix ``grpo_``, of the whole section."""
    own = {key: value for key, value in options.items() if not key.startswith("grpo_")}
    rest = {key.removeprefix("grpo_"): options[key] for key in options.keys() - own.keys()}
    sizes = {"num_prompts_per_step": 3, "num_generations_per_prompt": 2, "max_num_steps": 1}
    return GRPOConfig.model_validate(
        {**sizes, "seed": 0, "adv_estimator": {"name": name, **own}, **rest}
    )


def scored(seed: int = 0, kl: bool = False) -> ScoredRows:
    """Eight rows of three groups; one row is masked, and masked tokens of ``kl`` are NaN."""
    draw = torch.Generator().manual_seed(seed)
    token_mask = (torch.rand(ROWS, WIDTH, generator=draw) < 0.7).int()
    sample_mask = torch.ones(ROWS)
    sample_mask[3] = 0
    parts = {name: torch.randint(0, 4, (ROWS,), generator=draw).double() for name in ("f", "c")}
    cost = torch.rand(ROWS, WIDTH, generator=draw, dtype=torch.float64)
    return ScoredRows(
        parts["f"] + parts["c"],
        GROUPS,
        token_mask,
        sample_mask,
        parts,
        torch.where(token_mask.bool(), cost, torch.nan) if kl else None,
    )


def in_group(rewards: list[float], leave_one_out: bool, normalize: bool) -> list[float]:
    result = []
    for row, group in enumerate(GROUPS):
        whole = [rewards[i] for i in range(ROWS) if GROUPS[i] == group]
        others = [rewards[i] for i in range(ROWS) if GROUPS[i] == group and i != row]
        value = rewards[row] - statistics.fmean(others if leave_one_out else whole)
        std = statistics.stdev(whole)
        result.append((value / (std + 1e-6) if std else 0.0) if normalize else value)
    return result


def spread(of_row: list[float], mask: torch.Tensor) -> list[list[float]]:
    return [[a if at else 0.0 for at in row] for a, row in zip(of_row, mask.tolist(), strict=True)]


def close(got: torch.Tensor, expected: list[list[float]]) -> None:
    torch.testing.assert_close(got, torch.tensor(expected, dtype=got.dtype), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("leave_one_out", [True, False])
@pytest.mark.parametrize("normalize", [True, False])
def test_grpo_is_a_loop_over_groups(leave_one_out: bool, normalize: bool) -> None:
    rows = scored()
    chosen = {"use_leave_one_out_baseline": leave_one_out, "normalize_rewards": normalize}
    expected = in_group(rows.rewards.tolist(), leave_one_out, normalize)
    for options in (chosen, {f"grpo_{name}": value for name, value in chosen.items()}):
        close(
            estimate_advantages(rows, config("grpo", **options)), spread(expected, rows.token_mask)
        )


@pytest.mark.parametrize("weights", [None, (2.0, 0.5)])
def test_gdpo_compares_each_component(weights: tuple[float, float] | None) -> None:
    rows = scored()
    by_name = [in_group(rows.components[name].tolist(), True, True) for name in ("c", "f")]
    first, second = weights or (1.0, 1.0)
    total = [first * c + second * f for c, f in zip(*by_name, strict=True)]
    mean, std = statistics.fmean(total), statistics.stdev(total)
    got = estimate_advantages(rows, config("gdpo", reward_weights=weights))
    close(got, spread([(value - mean) / std for value in total], rows.token_mask))


def test_gdpo_tells_apart_what_the_sum_of_rewards_does_not() -> None:
    rows = ScoredRows(
        torch.tensor([1.0, 1.0, 2.0]),
        ["a"] * 3,
        torch.ones(3, 1),
        torch.ones(3),
        {"correctness": torch.tensor([1.0, 0.0, 1.0]), "format": torch.tensor([0.0, 1.0, 1.0])},
    )
    assert len(set(estimate_advantages(rows, config()).flatten().tolist())) == 2
    weighed = config("gdpo", reward_weights=[2.0, 1.0])
    assert len(set(estimate_advantages(rows, weighed).flatten().tolist())) == 3


def test_gdpo_of_equal_rows_is_nothing() -> None:
    parts = {name: torch.full((ROWS,), 0.1) for name in "abc"}
    rows = scored()._replace(rewards=torch.zeros(ROWS), components=parts)
    assert estimate_advantages(rows, config("gdpo")).count_nonzero() == 0


@pytest.mark.parametrize(
    ("names", "weights", "message"),
    [(["a"], None, "at least 2 components"), (["a", "b"], [1.0], "1 reward_weights")],
)
def test_gdpo_needs_its_components(names: list[str], weights: Any, message: str) -> None:
    rows = scored()._replace(components={name: torch.zeros(ROWS) for name in names})
    with pytest.raises(ValueError, match=message):
        estimate_advantages(rows, config("gdpo", reward_weights=weights))


@pytest.mark.parametrize("minus_baseline", [True, False])
@pytest.mark.parametrize("kl", [True, False])
def test_reinforce_plus_plus_is_a_loop_over_tokens(minus_baseline: bool, kl: bool) -> None:
    rows = scored(kl=kl)
    rewards = rows.rewards.tolist()
    raw: dict[tuple[int, int], float] = {}
    for row, at in rows.token_mask.nonzero().tolist():
        group = [rewards[i] for i in range(ROWS) if GROUPS[i] == GROUPS[row]]
        value = rewards[row] - (statistics.fmean(group) if minus_baseline else 0.0)
        if rows.kl is not None:
            later = [s for s in range(at, WIDTH) if rows.token_mask[row, s]]
            value -= sum(float(rows.kl[row, s]) for s in later)
        if rows.sample_mask[row]:
            raw[row, at] = value
    mean, std = statistics.fmean(raw.values()), statistics.pstdev(raw.values())
    expected = [[0.0] * WIDTH for _ in range(ROWS)]
    for (row, at), value in raw.items():
        expected[row][at] = (value - mean) / std
    got = estimate_advantages(rows, config("reinforce_plus_plus", minus_baseline=minus_baseline))
    close(got, expected)


def test_reinforce_plus_plus_of_no_token_is_nothing() -> None:
    rows = scored()._replace(sample_mask=torch.zeros(ROWS))
    assert estimate_advantages(rows, config("reinforce_plus_plus")).count_nonzero() == 0


def test_advantages_are_clipped_where_they_are_trained() -> None:
    rows = scored()
    whole = estimate_advantages(rows, config())
    got = estimate_advantages(rows, config(grpo_advantage_clip_low=0.1, grpo_advantage_clip_high=1))
    expected = torch.where(rows.token_mask.bool(), whole.clamp(0.1, 1), 0)
    assert torch.equal(got, expected)
    assert (whole < 0.1).any()
    assert (whole > 1).any()
    below = estimate_advantages(rows, config(grpo_advantage_clip_high=0.5))
    assert torch.equal(below, whole.clamp(max=0.5))
