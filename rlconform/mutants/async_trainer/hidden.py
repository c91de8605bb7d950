"""Defects that no log can show, and why."""

from __future__ import annotations

from rlconform.grpo.replay.buffer import ReplayBuffer
from rlconform.grpo.replay.samplers import WindowedSampler, oldest_first
from rlconform.grpo.replay.slots import Prompt
from rlconform.grpo.simulation.scenario import Scenario
from rlconform.mutants.async_trainer.defect import hidden_defect


@hidden_defect(
    "which of several right groups a step takes is the sampler's choice",
    seen="NeMo-RL#3747",
    when=Scenario(sampler="windowed_freshest", options={"max_buffered_rollouts": 12}),
)
class FreshestFirstIgnored(WindowedSampler):
    """Takes the oldest groups first, although the freshest are asked for."""

    def _choose(self, version: int, most: int) -> list[str]:
        return self._of_versions(oldest_first(self._buffer.ready_by_start(), most))


@hidden_defect(
    "a group may be stamped before its first token, so its drop as stale may be right",
    seen="SkyRL admission",
    when=Scenario(
        sampler="windowed",
        options={
            "in_flight_weight_updates": True,
            "rollout_failure": {"max_stale_attempts_per_prompt": 50},
        },
    ),
)
class JudgedByDispatch(ReplayBuffer):
    """Counts the age of a group from its prompt's dispatch, so that good groups are dropped."""

    def reserve(self, prompt: Prompt, weight_version: int) -> str:
        return super().reserve(prompt, prompt.dispatch_version)
