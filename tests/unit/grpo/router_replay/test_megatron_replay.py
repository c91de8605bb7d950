"""Router replay by megatron-core: token order, stages, sequence parallelism, nothing left behind.

The routers are those of megatron-core, called as its ``TopKRouter`` calls them.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from rlconform.contract import ConfigError
from rlconform.grpo.models import RowLayout, TokenOrder
from rlconform.grpo.router_replay.canaries import canary_routes
from rlconform.grpo.router_replay.megatron import MegatronReplayer, check_megatron_config
from rlconform.grpo.router_replay.route_format import RouteFormat, RouterReplayError

router_replay = pytest.importorskip(
    "megatron.core.transformer.moe.router_replay", reason="extra megatron isn't installed"
)

ROUTES = RouteFormat(layers=4, top_k=2, experts=8)
LENGTHS = torch.tensor([5, 3])
WIDTH = 6


@pytest.fixture(autouse=True)
def _no_routers() -> Iterator[None]:
    router_replay.RouterReplay.clear_global_router_replay_instances()
    yield
    router_replay.RouterReplay.clear_global_router_replay_instances()


def build(layers: int) -> list[Any]:
    """Build routers, as a model's layers do."""
    return [router_replay.RouterReplay() for _ in range(layers)]


def choose(router: Any, tokens: int) -> Tensor:
    """Let a router choose for tokens whose scores prefer experts 6 and 7."""

    def top(scores: Tensor, topk: int, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
        values, indices = scores.topk(topk, dim=1)
        return values, indices

    scores = torch.arange(8.0).expand(tokens, 8)
    values, chosen = router.get_replay_topk(scores, 2, None, None, top)
    assert torch.equal(values, scores.gather(1, chosen))
    indices: Tensor = chosen
    return indices


def rows() -> Tensor:
    """Rows (2, WIDTH, L, K) of canaries; the last token of each has none."""
    routes = ROUTES.blank(2, WIDTH)
    for row, length in enumerate(LENGTHS.tolist()):
        routes[row, : length - 1] = canary_routes(length - 1, ROUTES, 10 * row)
    return routes


def order(layout: RowLayout = "padded", pad: int = 1) -> TokenOrder:
    return TokenOrder.of(LENGTHS, WIDTH, layout, pad)


def test_padded_rows_are_replayed_sequence_first() -> None:
    routers = build(4)
    replayer = MegatronReplayer(ROUTES, range(4))
    with replayer.forward(rows(), order()):
        used = torch.stack([choose(router, 2 * WIDTH) for router in routers], dim=1)
    by_row = used.unflatten(0, (WIDTH, 2)).transpose(0, 1)  # type: ignore[no-untyped-call]
    for row, length in enumerate(LENGTHS.tolist()):
        assert torch.equal(by_row[row, : length - 1], rows()[row, : length - 1].long())
    assert int(used.max()) < ROUTES.experts  # padding has valid experts, and different ones
    assert bool((used[..., 0] != used[..., 1]).all())


def test_packed_rows_are_replayed_end_to_end() -> None:
    routers = build(4)
    replayer = MegatronReplayer(ROUTES, range(4), layout="packed")
    packed = order("packed", 4)
    with replayer.forward(rows(), packed):
        used = torch.stack([choose(router, 12) for router in routers], dim=1)
    for row, length in enumerate(LENGTHS.tolist()):
        got = used[packed.of_row(row)]
        assert torch.equal(got[: length - 1], rows()[row, : length - 1].long())


@pytest.mark.parametrize("layout", ["padded", "packed"])
def test_sequence_parallel_ranks_have_their_own_tokens(layout: RowLayout) -> None:
    whole = MegatronReplayer(ROUTES, [], layout=layout)
    due = order(layout, 4)
    expected = whole.order_of_rank(due)
    parts = [
        MegatronReplayer(ROUTES, [], layout=layout, tp_rank=rank, sequence_parallel=2)
        for rank in range(2)
    ]
    got = [part.order_of_rank(due) for part in parts]
    assert len(got[0].row) == len(expected.row) // 2
    for number, column in enumerate(expected):
        assert torch.equal(torch.cat([one[number] for one in got]), column)


def test_tokens_that_cant_be_split_are_refused() -> None:
    replayer = MegatronReplayer(ROUTES, [], layout="packed", sequence_parallel=3)
    with pytest.raises(RouterReplayError, match="3 parts; got 8"):
        replayer.order_of_rank(order("packed"))


def test_a_pipeline_stage_replays_its_own_layers() -> None:
    routers = build(2)
    replayer = MegatronReplayer(ROUTES, [2, 3], layout="packed")
    with replayer.forward(rows(), order("packed")) as replayed:
        used = torch.stack([choose(router, 8) for router in routers], dim=1)
    assert torch.equal(used[:4], rows()[0, :4, 2:].long())
    assert torch.equal(replayed.used_in(0)[1], used)


@pytest.mark.parametrize("built", [0, 3, 5])
def test_missing_and_orphan_routers_are_counted(built: int) -> None:
    build(built)
    with pytest.raises(RouterReplayError, match=f"expected 4 routers.*got {built}"):
        MegatronReplayer(ROUTES, range(4))


def test_a_router_that_runs_twice_is_counted() -> None:
    routers = build(1)
    replayer = MegatronReplayer(ROUTES, [0])
    forward = replayer.forward(rows(), order())
    forward.__enter__()
    for _ in range(2):
        choose(routers[0], 2 * WIDTH)
    with pytest.raises(RouterReplayError, match=r"\[2\] by layer"):
        forward.__exit__(None, None, None)


def test_a_forward_only_pass_leaves_nothing_for_the_next_backward() -> None:
    routers = build(1)
    replayer = MegatronReplayer(ROUTES, [0], recomputes=True)
    with torch.no_grad(), replayer.forward(rows(), order()):
        choose(routers[0], 2 * WIDTH)
    assert routers[0].replay_backward_list == []
    assert routers[0].target_topk_idx is None
    replayer.finish()
    assert choose(routers[0], 3).tolist() == [[7, 6]] * 3  # it chooses by itself again


def test_recomputed_passes_replay_in_the_order_of_micro_batches() -> None:
    """1F1B: two forward passes, and then the backward pass of the first."""
    routers = build(1)
    replayer = MegatronReplayer(ROUTES, [0], layout="packed", recomputes=True)
    batches = [canary_routes(8, ROUTES, first).view(1, 8, 4, 2) for first in (0, 8, 16)]
    one_row = TokenOrder.of(torch.tensor([8]), 8, "packed")
    used, again = [], []
    for number, routes in enumerate(batches):
        with replayer.forward(routes, one_row):
            used.append(choose(routers[0], 8))
        if number > 0:
            with replayer.backward():
                again.append(choose(routers[0], 8))
    with replayer.backward():
        again.append(choose(routers[0], 8))
    for routes, forth, back in zip(batches, used, again, strict=True):
        assert torch.equal(forth, routes[0, :, 0].long())
        assert torch.equal(back, forth)
    replayer.finish()


def test_routes_that_are_left_are_named_and_forgotten() -> None:
    routers = build(1)
    replayer = MegatronReplayer(ROUTES, [0], recomputes=True)
    with replayer.forward(rows(), order()):
        choose(routers[0], 2 * WIDTH)
    with pytest.raises(RouterReplayError, match=r"\[1\] micro-batches"):
        replayer.finish()
    assert routers[0].replay_backward_list == []
    replayer.finish()


@pytest.mark.parametrize(
    ("options", "stages", "says"),
    [
        ({"moe_enable_routing_replay": False}, None, "moe_enable_routing_replay"),
        ({"moe_router_fusion": True}, None, "moe_router_fusion"),
        ({}, 2, "virtual pipeline stages"),
    ],
)
def test_options_that_bypass_replay_are_refused(
    options: dict[str, bool], stages: int | None, says: str
) -> None:
    right = {"moe_enable_routing_replay": True, "moe_router_fusion": False}
    check_megatron_config(SimpleNamespace(**right), None)
    with pytest.raises(ConfigError, match=says):
        check_megatron_config(SimpleNamespace(**{**right, **options}), stages)
