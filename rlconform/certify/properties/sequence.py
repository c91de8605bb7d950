"""``CallSequence``: one sequence of calls on the partitions of a profile."""

from __future__ import annotations

import uuid
from collections.abc import Callable

from rlconform.certify.properties.judge import Judge, SequenceStats, Unjudged
from rlconform.certify.properties.modelled_partition import ModelledPartition
from rlconform.certify.properties.requirement_sequences import SequenceProfile
from rlconform.certify.properties.runner import PropertyRunner


class CallSequence:
    """One sequence of calls on the partitions of a profile."""

    def __init__(
        self, runner: PropertyRunner, profile: SequenceProfile, stats: SequenceStats
    ) -> None:
        runner.begin(enough=stats.compared > 0)
        self.judge = Judge(runner, profile, stats)
        self._ended = False
        self._key = uuid.uuid4().hex[:8]
        self._partitions: dict[str, ModelledPartition] = {}

    def guarded(self, body: Callable[[], None]) -> None:
        """Run a step, unless the sequence has ended or the time is up."""
        if self._ended:
            return
        runner = self.judge.runner
        runner.check_time()
        self._ended = True  # also where the step raises
        with runner.watching():
            try:
                body()
            except Unjudged as end:
                self.judge.stats.unjudged = runner.failure_of(end.args[0])
            else:
                self._ended = False

    def partition(self, name: str) -> ModelledPartition:
        """Return the partition; register it at its first use."""
        if name not in self._partitions:
            self._partitions[name] = self._new_partition(name)
        return self._partitions[name]

    def _new_partition(self, name: str) -> ModelledPartition:
        judge, runner = self.judge, self.judge.runner
        if judge.values.universe.stem:
            try:
                part = runner.new_partition(f"{self._key}{judge.values.universe.stem}{name}")
                return ModelledPartition(judge, part)
            except (ValueError, TypeError):
                pass  # only ids are opaque: a plane may refuse a long name
        return ModelledPartition(judge, runner.new_partition(f"{self._key}-{name}"))

    def look_at_all(self) -> None:
        """Read and claim all rows at the end, which finds rows that were lost."""
        for partition in self._partitions.values():
            partition.look_at_all()
