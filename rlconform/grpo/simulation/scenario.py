"""``Scenario``: the configuration of a simulated run, and what goes wrong in it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from rlconform.grpo.config.async_rl import AsyncRLConfig
from rlconform.grpo.replay.slots import Failure
from rlconform.grpo.simulation.log import SimulatedLog
from rlconform.grpo.simulation.run import SimulatedOutcome, run_steps
from rlconform.grpo.simulation.world import Faults, OpenPlane, World, memory_plane

#: The samplers, each with a window of one version.
SAMPLERS: Mapping[str, Mapping[str, Any]] = {
    "in_order": {"name": "in_order", "max_lookahead_versions": 1},
    "windowed": {"name": "windowed", "max_staleness_versions": 1},
    "windowed_freshest": {
        "name": "windowed", "max_staleness_versions": 1, "sample_freshest_first": True,
    },
    "ready_first": {"name": "ready_first", "max_staleness_versions": 1},
    "weight_fifo": {"name": "weight_fifo", "max_staleness_versions": 1},
}  # fmt: skip


def uneven(group_id: str) -> float:
    """Return 0.2 to 3 seconds, so that the groups of a step straddle a weight sync."""
    return 0.2 + 2.8 * Random(group_id).random()


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """A run of ``steps`` steps of ``prompts`` prompts.

    Attributes:
        options: Of the section ``async_rl``, beside the sampler.
        seconds_of: Of a group's generation, by group id.
        failing: Groups whose generation fails.
        deaths: Groups whose worker dies while it generates them.
        restarts: Steps before which the run starts anew from a checkpoint.
    """

    sampler: str = "in_order"
    options: Mapping[str, Any] = field(default_factory=dict)
    prompts: int = 4
    steps: int = 8
    workers: int = 2
    seconds_of: Callable[[str], float] = uneven
    train_s: float = 1.0
    sync_s: float = 0.1
    failing: Mapping[str, Failure] = field(default_factory=dict)
    deaths: tuple[str, ...] = ()
    uniform: tuple[str, ...] = ()
    restarts: tuple[int, ...] = ()

    def config(self) -> AsyncRLConfig:
        """Return the section ``async_rl``."""
        defaults = {
            "sampler": dict(SAMPLERS[self.sampler]),
            "min_groups_for_streaming_train": self.prompts,
            "max_inflight_prompts": 2 * self.prompts,
            "max_buffered_rollouts": 2 * self.prompts,
            "rollout_failure": {"max_skipped_prompts": 0},
        }
        return AsyncRLConfig.model_validate(defaults | dict(self.options))

    def world(self, folder: Path | None, open_plane: OpenPlane = memory_plane) -> World:
        """Return what is around the controller; events go to ``folder``."""
        faults = Faults(dict(self.failing), set(self.uniform), set(self.deaths))
        return World(
            self.seconds_of, self.train_s, self.sync_s, faults, self.workers,
            SimulatedLog(folder), open_plane,
        )  # fmt: skip

    def run(self, folder: Path | None, open_plane: OpenPlane = memory_plane) -> SimulatedOutcome:
        """Run it; the outcome has one of the errors with which a run may end, others are raised."""
        return run_steps(
            self.config(), self.world(folder, open_plane), prompts=self.prompts, steps=self.steps,
            restarts=self.restarts,
        )  # fmt: skip


#: What goes wrong in clean runs, and is handled rightly.
TROUBLES: Mapping[str, Mapping[str, Any]] = {
    "no fault": {},
    "retry across a sync": {
        "failing": dict.fromkeys(("p1", "p5", "p6"), Failure.INFRA),
    },
    "a refused and an empty answer": {
        "failing": {"p2": Failure.DATA, "p6": Failure.MODEL},
    },
    "groups without rewards": {
        "failing": dict.fromkeys(("p1", "p5", "p6"), Failure.REWARD),
    },
    "a worker dies": {"deaths": ("p9",)},
    "uniform groups": {"uniform": ("p3", "p8")},
    "in flight < prompts": {"options": {"max_inflight_prompts": 2}},
    "chunked select": {"options": {"min_groups_for_streaming_train": 1}},
    "restart": {"restarts": (3, 5)},
    "restart without rows": {"restarts": (3,), "options": {"checkpoint_rows": False}},
    "partial rollouts": {"options": {"partial_rollouts": True}},
    "in-flight weight updates": {"options": {"in_flight_weight_updates": True}},
}  # fmt: skip


#: A trajectory queue in the place of the replay buffer; with a refusing one each refusal is an
#: attempt.
OVER_A_QUEUE: Mapping[str, Any] = {
    "transport": "queue",
    "queue": {"staleness_threshold": 1.0},
    "rollout_failure": {"max_infra_attempts_per_prompt": 20},
}


def clean_scenarios() -> dict[str, Scenario]:
    """Return every sampler, and the trajectory queue, with every trouble, by name."""
    over_buffer = {
        f"{sampler}: {trouble}": Scenario(sampler=sampler, **how)
        for sampler in SAMPLERS
        for trouble, how in TROUBLES.items()
    }
    over_queue = {
        f"queue: {trouble}": Scenario(
            **{**how, "options": {**OVER_A_QUEUE, **how.get("options", {})}}
        )
        for trouble, how in TROUBLES.items()
    }
    return over_buffer | over_queue
