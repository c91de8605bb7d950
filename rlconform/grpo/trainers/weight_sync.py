"""``WeightSync``: brings new weights to the generation engines, between two training steps.

    publish ── pause dispatch ──▶ abort what is too old
            ── in_flight_weight_updates? ─ no ─▶ abort (partial_rollouts), and wait for the rest
            ── transfer to all engines, digests compared ──▶ bump the version
            ── free the slots of trained groups ──▶ resume dispatch

The trainer waits for all of it; generations in flight go on with ``in_flight_weight_updates``. The
version is bumped after the weights are applied everywhere, so no group is stamped with a version
that an engine doesn't have.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from rlconform.grpo.replay.buffer import ReplayBuffer
from rlconform.grpo.replay.samplers import StalenessSampler
from rlconform.grpo.replay.slots import DropReason
from rlconform.grpo.rollout.pump import RolloutPump


class WeightSync:
    """Publishes versions of the weights; use it in the pump's event loop.

    ``transfer`` copies the weights to all engines and compares digests; it raises if they differ.
    """

    def __init__(
        self,
        pump: RolloutPump,
        buffer: ReplayBuffer,
        sampler: StalenessSampler,
        transfer: Callable[[int], Awaitable[None]],
        *,
        in_flight_updates: bool = False,
        abort_in_flight: bool = False,
    ) -> None:
        self._pump, self._buffer, self._sampler = pump, buffer, sampler
        self._transfer = transfer
        self._in_flight_updates, self._abort_in_flight = in_flight_updates, abort_in_flight

    async def publish(self, version: int, bump: Callable[[], None]) -> int:
        """Make ``version`` the engines' and, by ``bump``, the run's; return the aborted groups."""
        self._pump.pause()
        self._buffer.events.generation_paused()
        stale = [
            group_id
            for group_id, start in self._pump.generating().items()
            if self._sampler.should_abort_inflight(
                start_weight_version=start, current_train_weight=version
            )
        ]
        self._pump.abort(stale, DropReason.ABORTED_STALE)
        if not self._in_flight_updates:
            if self._abort_in_flight:
                others = self._pump.generating().keys() - set(stale)
                self._pump.abort(sorted(others), DropReason.ABORTED_SYNC)
            await self._pump.drained()
        await self._transfer(version)
        bump()
        self._buffer.release_trained()
        self._buffer.events.generation_resumed()
        self._pump.resume()
        return len(stale)
