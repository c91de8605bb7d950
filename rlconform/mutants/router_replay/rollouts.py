"""Rollout workers that put wrong routes: not filled in, of another dtype, or none."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from rlconform.contract.fields import INPUT_LENGTHS, ROUTED_EXPERTS
from rlconform.grpo.rollout.plane_worker import PlaneRolloutWorker
from rlconform.grpo.rollout.turn_loop import RolloutRow
from rlconform.grpo.rollout.worker import Rollout
from rlconform.mutants.router_replay.defect import replay_defect


@replay_defect("got invalid experts for token 0 as it was produced", seen="NeMo-RL#3378")
class PromptRoutesZero(PlaneRolloutWorker):
    """Fills only the policy's own tokens, so prompts go to expert 0 in every place."""

    def _rollout(self, rows: Sequence[RolloutRow], *, token_versions: bool = False) -> Rollout:
        rollout = super()._rollout(rows, token_versions=token_versions)
        for row, routes in zip(rows, rollout.columns[ROUTED_EXPERTS], strict=True):
            routes[: row.spans[0][0]] = 0
        return rollout


@replay_defect("got no experts for token", seen="NeMo-RL#3378 (NR-54)")
class ObservationRoutesMissing(PlaneRolloutWorker):
    """Leaves the experts of an environment's tokens open, although the next turn shows them."""

    def _rollout(self, rows: Sequence[RolloutRow], *, token_versions: bool = False) -> Rollout:
        rollout = super()._rollout(rows, token_versions=token_versions)
        for row, routes in zip(rows, rollout.columns[ROUTED_EXPERTS], strict=True):
            for (_, stop), (start, _) in zip(row.spans, row.spans[1:], strict=False):
                routes[stop:start] = 255
        return rollout


@replay_defect("expected the last token's experts", seen="NeMo-RL router_replay sentinel")
class SentinelIsAnExpert(PlaneRolloutWorker):
    """Marks missing experts by 0, which is an expert."""

    def _rollout(self, rows: Sequence[RolloutRow], *, token_versions: bool = False) -> Rollout:
        rollout = super()._rollout(rows, token_versions=token_versions)
        routes: Tensor = rollout.columns[ROUTED_EXPERTS]
        routes[routes == 255] = 0
        return rollout


@replay_defect("expected torch.uint8; got torch.int16 from the plane", seen="SkyRL c7348d079")
class RoutesPutAsInt16(PlaneRolloutWorker):
    """Puts routes in a wider dtype than they were recorded in, with another sentinel."""

    def _trace_routes(self, rollout: Rollout) -> None:
        super()._trace_routes(rollout)
        rollout.columns[ROUTED_EXPERTS] = rollout.columns[ROUTED_EXPERTS].short()


@replay_defect(
    "those of the token after for token 0 in layer 0 from the plane", seen="slime a93386e51 (SL-08)"
)
class FirstRouteCutOff(PlaneRolloutWorker):
    """Puts one token's routes too few and pads them at the end, so all move by one."""

    def _trace_routes(self, rollout: Rollout) -> None:
        super()._trace_routes(rollout)
        rollout.columns[ROUTED_EXPERTS] = rollout.columns[ROUTED_EXPERTS].roll(-1, dims=1)


@replay_defect("the trace proves nothing", seen="NeMo-RL#2849 (NR-53)")
class RoutesDroppedByAllowList(PlaneRolloutWorker):
    """Puts only the columns of a fixed list, so the routes are not in the plane."""

    def _trace_routes(self, rollout: Rollout) -> None:
        super()._trace_routes(rollout)
        del rollout.columns[ROUTED_EXPERTS]


@replay_defect("in layer 0 from the plane", seen="miles#3146")
class RoutesLayersFirst(PlaneRolloutWorker):
    """Puts the engine's (L, S, K) as (S, L, K) without transposing it; the shape is right."""

    def _trace_routes(self, rollout: Rollout) -> None:
        super()._trace_routes(rollout)
        columns = rollout.columns
        lengths = columns[INPUT_LENGTHS].tolist()
        for routes, length in zip(columns[ROUTED_EXPERTS], lengths, strict=True):
            own = routes[:length].clone()
            routes[:length] = own.transpose(0, 1).reshape(own.shape)
