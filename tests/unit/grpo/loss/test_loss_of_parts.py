"""Loss, gradients and metrics of a batch are the sums of those of its parts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from rlconform.grpo.config import ClippedPGLossConfig

from .batches import ROWS, WIDTH, a_batch, counts, loss_of, parts_of, rows_of
from .options import ALL_TERMS, every_option, replace


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
