"""The event log of a simulated run: two writers, of the driver and of the engine.

The controller writes the driver's events itself. This module writes those that rollout workers and
policy workers write, from what the simulated engine really does. Clocks show simulated time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import pytest
from msgspec.structs import replace

from rlconform.events import EventWriter, writer
from rlconform.events.schema import (
    DropCause,
    RewardComputed,
    RolloutAborted,
    RolloutFailed,
    RolloutFinished,
    RolloutStarted,
    Segment,
    WeightsApplied,
    WeightsPublished,
)
from rlconform.grpo.config.async_rl import AsyncRLConfig
from rlconform.grpo.event_log import declared_async_run
from rlconform.grpo.replay.budget import REASON_OF
from rlconform.grpo.replay.slots import Failure
from rlconform.grpo.run_events import RunEvents

GROUP = 2
ENGINE = "engine-0"


class SimulatedLog:
    """Writes the events of one run, with its restarts, to a folder."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._folder = folder
        self._past = 0.0  # simulated seconds of the parts before a restart
        self._now = 0.0
        self.driver: RunEvents
        self.engine: EventWriter
        clock = SimpleNamespace(time_ns=self._time_ns, monotonic_ns=self._time_ns)
        monkeypatch.setattr(writer, "time", clock)

    def _time_ns(self) -> int:
        with suppress(RuntimeError):  # between two parts of the run no loop runs
            self._now = asyncio.get_running_loop().time()
        return int((self._past + self._now) * 1e9)

    def begin(self, config: AsyncRLConfig, prompts: int) -> RunEvents:
        """Open both files, and declare the run."""
        self._past, self._now = self._past + self._now + 1.0, 0.0
        self.driver = RunEvents(EventWriter(self._folder, run="simulated", role="driver"))
        self.engine = EventWriter(self._folder, run="simulated", role="rollout")
        declared = declared_async_run(config, prompts, GROUP)
        features = [one for one in declared.features if one.value != "plane"]
        self.driver.begin(replace(declared, features=features))
        return self.driver

    def engine_has(self, version: int) -> None:
        """Write the weights with which the engine begins."""
        self.engine.observe(self.driver.stamp())
        self.engine.write(WeightsApplied(version=version, engine=ENGINE))

    def transferred(self, version: int) -> None:
        """Write that new weights are published and applied, in one moment."""
        self.engine.observe(self.driver.stamp())
        self.engine.write(WeightsPublished(version=version, digest=f"of {version}"))
        self.engine.write(WeightsApplied(version=version, engine=ENGINE, digest=f"of {version}"))
        self.driver.observe(self.engine.stamp())

    def generation(self, group_id: str, version: Callable[[], int]) -> Generation:
        """Write the start of a group's rows."""
        return Generation(self, group_id, version)

    def end(self, fates: Mapping[str, int], *, completed: bool) -> None:
        """Close both files."""
        self.driver.observe(self.engine.stamp())
        self.engine.close()
        self.driver.finish("completed" if completed else "cancelled", fates)


class Generation:
    """One call of the engine for a group."""

    def __init__(self, log: SimulatedLog, group_id: str, version: Callable[[], int]) -> None:
        self._log, self._group_id, self._version = log, group_id, version
        self._start = version()
        log.engine.observe(log.driver.stamp())
        for row in range(GROUP):
            log.engine.write(
                RolloutStarted(
                    group_id=group_id, row=row, weight_version=self._start, engine=ENGINE
                )
            )

    def _tokens(self) -> None:
        """Write a token of the version of the start, and one of the version now."""
        for row in range(GROUP):
            for version in dict.fromkeys((self._start, self._version())):
                self._log.engine.write(
                    Segment(group_id=self._group_id, row=row, weight_version=version, tokens=1)
                )

    def _answered(self) -> None:
        self._log.driver.observe(self._log.engine.stamp())

    def aborted(self) -> None:
        """Write that the rows were cut."""
        self._tokens()
        cause = DropCause.ABORTED_SYNC
        for row in range(GROUP):
            self._log.engine.write(RolloutAborted(group_id=self._group_id, row=row, cause=cause))
        self._answered()

    def failed(self, failure: Failure) -> None:
        """Write that the generation of the rows failed."""
        cause = DropCause(REASON_OF[failure].value)
        for row in range(GROUP):
            self._log.engine.write(RolloutFailed(group_id=self._group_id, row=row, cause=cause))
        self._answered()

    def finished(self, rewards: Sequence[float]) -> None:
        """Write that the rows are done, with their rewards."""
        self._tokens()
        for row, reward in enumerate(rewards):
            output = f"{self._group_id}/{row}"
            self._log.engine.write(RolloutFinished(group_id=self._group_id, row=row, output=output))
            self._log.engine.write(
                RewardComputed(group_id=self._group_id, row=row, reward=reward, output=output)
            )
        self._answered()
