"""Recording and replaying the experts of a model: order, layouts, counts, scores, gradients."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from rlconform.contract import ConfigError
from rlconform.grpo.models import RowLayout, TokenOrder, load_model, token_logprobs
from rlconform.grpo.router_replay.canaries import canary_routes as canaries_of
from rlconform.grpo.router_replay.recorder import RouteRecorder
from rlconform.grpo.router_replay.replayer import RouteReplayer
from rlconform.grpo.router_replay.route_format import RouteFormat, RouterReplayError

#: Of ``tiny-qwen3-moe``.
TINY = RouteFormat(layers=2, top_k=2, experts=8)

LENGTHS = torch.tensor([5, 3, 7])
WIDTH = 8
LAYOUTS: tuple[tuple[RowLayout, int], ...] = (("padded", 1), ("packed", 1), ("packed", 4))


def ids() -> Tensor:
    draws = torch.Generator().manual_seed(3)
    return torch.randint(16, (len(LENGTHS), WIDTH), generator=draws)


def canary_routes(rows: int, width: int) -> Tensor:
    """Rows (rows, width, L, K) of canaries."""
    return canaries_of(rows * width, TINY).unflatten(0, (rows, width))  # type: ignore[no-untyped-call]


def moe(seed: int = 0) -> torch.nn.Module:
    return load_model("tiny-qwen3-moe", seed=seed)


def order_of(layout: RowLayout, pad: int) -> TokenOrder:
    return TokenOrder.of(LENGTHS, WIDTH, layout, pad)


# -- formats ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("experts", "dtype", "missing"),
    [(8, torch.uint8, 255), (255, torch.uint8, 255), (256, torch.int16, 32767)],
)
def test_the_dtype_is_the_smallest_that_also_holds_the_sentinel(
    experts: int, dtype: torch.dtype, missing: int
) -> None:
    made = RouteFormat(3, 2, experts)
    assert (made.dtype, made.missing) == (dtype, missing)
    assert made.missing >= experts  # no expert
    assert bool(made.is_missing(made.blank(4)).all())
    assert not bool(made.is_invalid(made.blank(4)).any())


@pytest.mark.parametrize(("layers", "top_k", "experts"), [(0, 1, 2), (1, 3, 2), (1, 1, 40_000)])
def test_impossible_formats_are_refused(layers: int, top_k: int, experts: int) -> None:
    with pytest.raises(ValueError, match="expected"):
        RouteFormat(layers, top_k, experts)


@pytest.mark.parametrize("wrong", [[0, 0], [1, 8], [255, 1]], ids=str)
def test_invalid_experts_are_found(wrong: list[int]) -> None:
    routes = canary_routes(1, 4)
    routes[0, 2, 1] = torch.tensor(wrong, dtype=torch.uint8)
    assert TINY.is_invalid(routes).nonzero().tolist() == [[0, 2, 1]]
    with pytest.raises(RouterReplayError, match="for token 2 of row 0"):
        TINY.check_rows(routes, torch.tensor([4]))
    TINY.check_rows(routes, torch.tensor([3]))  # a row's last token is not needed


def test_routes_of_another_model_or_dtype_are_refused() -> None:
    for routes in (canary_routes(1, 4).to(torch.int16), canary_routes(1, 4)[:, :, :1]):
        with pytest.raises(RouterReplayError, match="other models"):
            TINY.check_rows(routes, torch.tensor([4]))


# -- replay ----------------------------------------------------------------------------------


@pytest.mark.parametrize(("layout", "pad"), LAYOUTS)
def test_each_token_gets_its_own_canary(layout: RowLayout, pad: int) -> None:
    model, canaries = moe(), canary_routes(len(LENGTHS), WIDTH)
    replayer, order = RouteReplayer(model), order_of(layout, pad)
    with replayer.replaying(order.arrange(canaries, TINY.missing)) as replayed:
        token_logprobs(model, ids(), LENGTHS, layout=layout, pad_multiple=pad)
    for row, length in enumerate(LENGTHS.tolist()):
        used = replayed.used_in(0)[1][order.of_row(row)]
        assert torch.equal(used, canaries[row, :length].long())


@pytest.mark.parametrize(("layout", "pad"), LAYOUTS)
def test_replaying_what_was_recorded_changes_no_bit(layout: RowLayout, pad: int) -> None:
    plain, model = moe(), moe()
    recorder = RouteRecorder(plain)

    def forward() -> Tensor:
        return token_logprobs(plain, ids(), LENGTHS, layout=layout, pad_multiple=pad)

    expected, routes = recorder.record(forward)
    with RouteReplayer(model).replaying(routes):
        got = token_logprobs(model, ids(), LENGTHS, layout=layout, pad_multiple=pad)
    assert torch.equal(got, expected)


def test_canaries_change_the_logprobs() -> None:
    """Otherwise the tests of the order would prove nothing about the model."""
    model = moe()
    expected = token_logprobs(moe(), ids(), LENGTHS)
    with RouteReplayer(model).replaying(canary_routes(len(LENGTHS), WIDTH).flatten(0, 1)):
        got = token_logprobs(model, ids(), LENGTHS)
    assert (got - expected).abs().max() > 0.01


def test_missing_experts_are_those_that_the_router_chooses() -> None:
    model = moe()
    expected = token_logprobs(moe(), ids(), LENGTHS)
    with RouteReplayer(model).replaying(TINY.blank(len(LENGTHS) * WIDTH)):
        assert torch.equal(token_logprobs(model, ids(), LENGTHS), expected)


def test_the_routers_weights_get_gradients_through_the_replayed_scores() -> None:
    model = moe()
    model.requires_grad_(True)
    replayer = RouteReplayer(model)
    with replayer.replaying(canary_routes(len(LENGTHS), WIDTH).flatten(0, 1)):
        token_logprobs(model, ids(), LENGTHS).sum().backward()
    gradients = [w.grad for n, w in model.named_parameters() if n.endswith("mlp.gate.weight")]
    assert len(gradients) == TINY.layers
    assert all(gradient is not None and bool(gradient.any()) for gradient in gradients)


@pytest.mark.parametrize("reentrant", [False, True])
def test_recomputed_layers_replay_the_same_routes(reentrant: bool) -> None:
    model, canaries = moe(), canary_routes(len(LENGTHS), WIDTH).flatten(0, 1)
    model.activation_checkpointing_enable({"use_reentrant": reentrant})  # type: ignore[operator]
    model.enable_input_require_grads()  # type: ignore[operator]
    model.train()
    with RouteReplayer(model).replaying(canaries, passes=2) as replayed:
        token_logprobs(model, ids(), LENGTHS).sum().backward()
    for call in range(2):
        assert torch.equal(replayed.used_in(call)[1], canaries.long())


# -- what goes wrong -------------------------------------------------------------------------


def test_a_pass_without_routes_raises() -> None:
    model = moe()
    RouteReplayer(model)
    with pytest.raises(RouterReplayError, match="no routes"):
        token_logprobs(model, ids(), LENGTHS)


def test_nothing_is_left_behind_by_a_forward_only_pass_or_an_error() -> None:
    model, canaries = moe(), canary_routes(len(LENGTHS), WIDTH).flatten(0, 1)
    replayer = RouteReplayer(model)
    with torch.no_grad(), replayer.replaying(canaries):
        token_logprobs(model, ids(), LENGTHS)
    with pytest.raises(RouterReplayError, match="no routes"):
        token_logprobs(model, ids(), LENGTHS)
    with pytest.raises(KeyError), replayer.replaying(canaries):
        raise KeyError
    with replayer.replaying(TINY.blank(len(canaries))):
        token_logprobs(model, ids(), LENGTHS)


def test_routers_that_run_too_often_or_not_at_all_are_counted() -> None:
    model, canaries = moe(), canary_routes(len(LENGTHS), WIDTH).flatten(0, 1)
    replayer = RouteReplayer(model)
    replaying = replayer.replaying(canaries)
    replaying.__enter__()
    for _ in range(2):
        token_logprobs(model, ids(), LENGTHS)
    with pytest.raises(RouterReplayError, match=r"replay 1 times.*\[2, 2\]"):
        replaying.__exit__(None, None, None)
    with pytest.raises(RouterReplayError, match=r"\[0, 0\]"), replayer.replaying(canaries):
        pass
    doubled = moe()
    layers = doubled.model.layers  # type: ignore[union-attr]
    layers[1] = layers[0]  # type: ignore[index, operator]
    with pytest.raises(RouterReplayError, match="1 routers to run once"):
        RouteRecorder(doubled).record(lambda: token_logprobs(doubled, ids(), LENGTHS))


def test_routes_of_another_number_of_tokens_are_refused() -> None:
    model = moe()
    replayer = RouteReplayer(model)
    with pytest.raises(RouterReplayError, match="24 tokens"), replayer.replaying(TINY.blank(23)):
        token_logprobs(model, ids(), LENGTHS)


def test_blocks_dont_nest() -> None:
    replayer = RouteReplayer(moe())
    again = replayer.replaying(TINY.blank(1))
    with (
        pytest.raises(RouterReplayError, match="another micro-batch"),
        replayer.replaying(TINY.blank(1)),
        again,
    ):
        pass


def test_a_model_without_routers_is_refused() -> None:
    with pytest.raises(ConfigError, match="Qwen3-MoE"):
        RouteReplayer(load_model("tiny-llama"))
