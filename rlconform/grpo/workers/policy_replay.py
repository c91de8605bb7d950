"""``PolicyReplay``: router replay in the micro-batches of one rank's policy.

rows (N, S) ── check ──▶ an error, if the column is missing or can't be replayed
micro-batch (n, W) ── in the model's token order ──▶ ``RouteReplayer`` ──▶ trace, if there is one
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from tensordict import TensorDict
from torch import nn

from rlconform.contract.fields import INPUT_IDS, INPUT_LENGTHS, ROUTED_EXPERTS
from rlconform.grpo.models import RowLayout, TokenOrder
from rlconform.grpo.router_replay.replayer import RouteReplayer
from rlconform.grpo.router_replay.route_format import RouterReplayError
from rlconform.grpo.router_replay.trace import RouteTrace


class PolicyReplay:
    """Replays ``routed_experts`` in a model; ``ConfigError`` if the model has no routers.

    Under ``recomputes`` each layer runs a second time in the backward pass.
    """

    def __init__(
        self, model: nn.Module, layout: RowLayout, pad_multiple: int, *, recomputes: bool
    ) -> None:
        self.replayer = RouteReplayer(model)
        self.trace: RouteTrace | None = None
        self._layout: RowLayout = layout
        self._pad_multiple = pad_multiple
        self._recomputes = recomputes

    def check(self, rows: TensorDict) -> None:
        """Raise ``RouterReplayError`` unless the rows have routes that can be replayed."""
        if ROUTED_EXPERTS not in rows.keys():  # noqa: SIM118 - a TensorDict
            raise RouterReplayError(
                f"policy.router_replay needs the column {ROUTED_EXPERTS!r}; the rows have "
                f"{sorted(map(str, rows.keys()))}: the rollout or the plane has dropped it"
            )
        self.replayer.format.check_rows(rows[ROUTED_EXPERTS], rows[INPUT_LENGTHS])

    @contextmanager
    def microbatch(
        self, part: TensorDict, sample_ids: Sequence[str] | None, *, backward: bool
    ) -> Iterator[None]:
        """Replay the routes of a micro-batch in the block, which runs one forward pass.

        With ``backward`` the block runs the backward pass too. ``sample_ids`` name the rows in the
        trace.
        """
        order = self._order(part)
        routes = order.arrange(part[ROUTED_EXPERTS], self.replayer.format.missing)
        passes = 2 if backward and self._recomputes else 1
        with self.replayer.replaying(routes, passes) as replayed:
            try:
                yield
            finally:
                if self.trace is not None and sample_ids is not None:
                    self.trace.replayed(sample_ids, order, replayed)

    def _order(self, part: TensorDict) -> TokenOrder:
        """Return the order in which the model gets the tokens of a micro-batch."""
        width = part[INPUT_IDS].shape[1]
        return TokenOrder.of(part[INPUT_LENGTHS], width, self._layout, self._pad_multiple)
