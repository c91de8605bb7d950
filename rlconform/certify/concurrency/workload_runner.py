"""``WorkloadRunner`` runs workloads at the same time, in processes or threads, and collects.

play ──begin──▶ performers            all at once
     ◀─finish── the leading ones      they end by themselves
     ──stop───▶ the others ──finish──▶
History: all events, by one clock
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Protocol

from rlconform.certify.assertions.values import ContractViolation
from rlconform.certify.concurrency.events import Operation
from rlconform.certify.concurrency.history import History
from rlconform.certify.concurrency.workload_thread import WorkloadResult, WorkloadSpec
from rlconform.certify.concurrency.workloads import Workload
from rlconform.certify.recording.recorder import MethodGivenUp
from rlconform.contract import Timeouts


class WorkloadHandle(Protocol):
    """A performer, here or in another process."""

    def begin(self, part: WorkloadSpec) -> None:
        """Start playing."""

    def stop(self) -> None:
        """Let the part come to its end."""

    def give_up(self) -> None:
        """Let the part, if there is one, make no more calls."""

    def finish(self, call_s: float, all_s: float) -> WorkloadResult:
        """Wait for the end of the part."""


def run_lengths(seconds: float) -> Iterator[float]:
    """Split the time of a race, s: most defects show in the first play, and end the check there."""
    yield seconds / 4
    yield seconds - seconds / 4


class WorkloadRunner:
    """Where roles are played on one partition.

    Args:
        players: ``players(n)`` gives n performers.
        partition_id: The partition.
        timeouts: The target's.
        seed: What the roles' chance starts from.
        heard: Told of all events, also of a play that ends in an error.
        given_up: By kind of call, why it is not made again.
    """

    def __init__(
        self,
        players: Callable[[int], Sequence[WorkloadHandle]],
        partition_id: str,
        timeouts: Timeouts,
        seed: str,
        heard: Callable[[list[Operation]], None],
        given_up: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self._given_up = given_up
        self._players, self._partition_id = players, partition_id
        self._timeouts, self._seed, self._heard = timeouts, seed, heard
        self._played = 0
        self._events: list[Operation] = []

    def run(self, *roles: Workload) -> History:
        """Play the roles; returns, when all are over or hang, what was done in all plays so far.

        A call that takes longer than the target's operation timeout stays without an end in the
        history.

        Raises:
            ContractViolation: The roles were not over within half of the target's check timeout,
                though their calls came back; or a player's process ended.
            RuntimeError: A role is broken: our fault.
            MethodGivenUp: A role needs a kind of call that hung too often.
        """
        for kind in (kind for role in roles for kind in role.needs):
            if why := self._given_up.get(kind):
                raise MethodGivenUp(why)
        players = self._players(len(roles))
        try:
            played = self._all_played(players, roles)
        except ContractViolation:  # one is gone, and nobody would stop the others
            for player in players:
                player.give_up()
            raise
        return self._collected(played)

    def _all_played(
        self, players: Sequence[WorkloadHandle], roles: Sequence[Workload]
    ) -> list[WorkloadResult]:
        for number, (player, role) in enumerate(zip(players, roles, strict=True), self._played):
            who = f"{type(role).__name__.lower()}{number}"
            player.begin(WorkloadSpec(role, self._partition_id, who, number, self._seed))
        self._played += len(roles)
        leading = [p for p, role in zip(players, roles, strict=True) if role.leads]
        others = [p for p, role in zip(players, roles, strict=True) if not role.leads]
        played = [self._finish(player) for player in leading]
        for player in others:
            player.stop()
        return played + [self._finish(player) for player in others]

    def _finish(self, player: WorkloadHandle) -> WorkloadResult:
        return player.finish(self._timeouts.operation, self._timeouts.check / 2)

    def _collected(self, played: list[WorkloadResult]) -> History:
        events = [event for each in played for event in each.events]
        self._heard(events)
        self._events += events
        history = History(self._events)
        for fault in (each.fault for each in played if each.fault):
            raise RuntimeError(f"a role broke:\n{fault}")
        if any(not each.over and not each.hangs for each in played):
            raise ContractViolation(
                f"rows to be claimed to their end within {self._timeouts.check / 2:g} s",
                f"{len(history.events)} calls, and no end of it",
            )
        return history
