"""What every trainer has: its problems, its crew, the version of its weights, and its state.

    fit ── step() ──▶ StepResult      once per step
        ── validate() ──▶ metrics     now and then
        ── save(folder), load(folder) its state on disk
        ── shutdown()

How a step's rows travel is the subclass's matter, and nobody else's.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from rlconform.grpo.actors import RunActors
from rlconform.grpo.config import MasterConfig
from rlconform.grpo.models import load_tokenizer
from rlconform.grpo.stage_timer import StageTimer
from rlconform.grpo.tasks import Dataloader, Problem, build_task
from rlconform.grpo.trainers.driver_step import prompts_to_generate

_STATE = "trainer.json"
_POLICY = "policy"


@dataclass(frozen=True)
class StepResult:
    """What came of a step.

    Attributes:
        sample_ids: N rows, in order.
        advantages: (N, S) float32.
        metrics: Numbers by name; of the updates, the rollout, the stages' seconds.
    """

    sample_ids: Sequence[str]
    advantages: Tensor
    metrics: dict[str, float]


class Trainer(ABC):
    """A run of GRPO (Shao et al. 2024, arXiv 2402.03300).

    Args:
        config: The run's.
        crew: Its actors, not yet built.
    """

    def __init__(self, config: MasterConfig, crew: RunActors) -> None:
        self.config = config
        self.crew = crew
        self.stopwatch = StageTimer()
        self.steps_done = 0
        tokenizer = load_tokenizer(config.policy.model_name, config.policy.tokenizer_name)
        self.pad_token_id = int(tokenizer.pad_token_id)
        self._loader = Dataloader(build_task(config.data, config.grpo.seed, "train"))
        crew.build(config)

    @property
    def weight_version(self) -> int:
        """Of the policy's weights: how many steps they were trained for."""
        return self.steps_done

    @abstractmethod
    def step(self) -> StepResult:
        """Generate, train, and bring the new weights to the engine."""

    @abstractmethod
    def validate(self) -> dict[str, float]:
        """Answer the validation's problems; ``val/...`` metrics."""

    @abstractmethod
    def shutdown(self) -> None:
        """Let go of whatever carried the rows; the crew is its starter's matter."""

    def save(self, folder: Path) -> None:
        """Write the run's state: weights, optimizer, generators, dataloader, step."""
        folder.mkdir(parents=True)
        self.crew.workers.all("save", folder / _POLICY)
        state = {"steps_done": self.steps_done, "dataloader": self._loader.state_dict()}
        (folder / _STATE).write_text(json.dumps(state), "utf-8")

    def load(self, folder: Path) -> None:
        """Go on from a saved state; the engine gets its weights too."""
        self.crew.workers.all("load", folder / _POLICY)
        state = json.loads((folder / _STATE).read_text("utf-8"))
        self.steps_done = state["steps_done"]
        self._loader.load_state_dict(state["dataloader"])
        self.crew.refit(self.weight_version)

    def next_problems(self) -> list[Problem]:
        """The problems of the next generation batch."""
        return self._loader.take(prompts_to_generate(self.config.grpo))

    def validation_problems(self) -> list[Problem]:
        """The same ones each time, as many as there are and the run asks for."""
        task = build_task(self.config.data, self.config.grpo.seed, "val")
        most = self.config.grpo.max_val_samples
        return [task.problem(i) for i in range(most if task.size is None else min(most, task.size))]

    def finish_update(self) -> None:
        """Count the step, and bring its weights to the engine."""
        self.steps_done += 1
        self.crew.refit(self.weight_version)
