"""``Trainer``: the base class of trainers, with problems, actors, weight version, checkpoints.

    fit ── step() ──▶ StepResult        once per step
        ── validate() ──▶ metrics       every ``grpo.val_period`` steps
        ── save(folder), load(folder)   checkpoints
        ── shutdown()

A subclass implements ``step`` and ``validate`` for its way of moving rows between the rollout
worker and the policy workers. ``trainers.driver_step`` has functions for all subclasses.
"""

from __future__ import annotations

import json
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from torch import Tensor

from rlconform.events.schema import EventSource
from rlconform.grpo.actors import RunActors
from rlconform.grpo.config import MasterConfig
from rlconform.grpo.event_log import open_event_log
from rlconform.grpo.models import load_tokenizer
from rlconform.grpo.run_events import RunEnd
from rlconform.grpo.tasks import Dataloader, Problem, build_task
from rlconform.grpo.trainers.driver_step import prompts_to_generate
from rlconform.grpo.trainers.step_groups import StepGroups
from rlconform.grpo.workers.policy_worker import PolicyWorker

_STATE = "trainer.json"
_POLICY = "policy"


@dataclass(frozen=True)
class StepResult:
    """The N rows of a step with their advantages, and the step's metrics."""

    sample_ids: Sequence[str]
    advantages: Tensor  # (N, S) float32
    metrics: dict[str, float]  # of the rollout and the updates, and the seconds of each stage


class Trainer(ABC):
    """Trains a policy with GRPO (Shao et al. 2024, arXiv 2402.03300) on the given actors."""

    #: Whether rows are in a data plane.
    has_plane = True

    def __init__(self, config: MasterConfig, actors: RunActors) -> None:
        self.config = config
        self.actors = actors
        self.timer = StageTimer()
        self.steps_done = 0
        #: Whether the run has ended as configured; ``fit`` sets it.
        self.completed = False
        tokenizer = load_tokenizer(config.policy.model_name, config.policy.tokenizer_name)
        self.pad_token_id = int(tokenizer.pad_token_id)
        task = build_task(config.data, config.grpo.seed, "train")
        self._loader = Dataloader(task)
        self.problems = task.size  # of an epoch, if it has a size
        actors.build(config)
        self.events = open_event_log(config, actors, plane=self.has_plane, problems=task.size)

    @property
    def weight_version(self) -> int:
        """Version of the policy's weights: the number of steps that they were trained for."""
        return self.steps_done

    @property
    def finished(self) -> bool:
        """Whether the run has made its last step, or too few problems are left for another one.

        A step that generates again under dynamic sampling may go beyond the last epoch.
        """
        done = self.steps_done >= self.config.grpo.max_num_steps
        epochs = self.config.grpo.max_num_epochs
        return done or not self._loader.has(prompts_to_generate(self.config.grpo), epochs)

    @abstractmethod
    def step(self) -> StepResult:
        """Generate rows, train on them, and copy the new weights to the engine."""

    @abstractmethod
    def validate(self) -> dict[str, float]:
        """Generate answers to the validation problems and return ``val/...`` metrics."""

    def shutdown(self) -> None:
        """Release what the trainer opened; the caller, who started the actors, ends them."""
        self.actors.close_events()
        reason: RunEnd = "completed" if self.completed or self.finished else "cancelled"
        self.events.finish(reason, self.fates())

    def end_after_error(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,  # noqa: ARG002
        trace: TracebackType | None,  # noqa: ARG002
    ) -> None:
        """End the event log of a run that failed; an exit callback. The caller kills the actors."""
        if kind is None or not self.events.enabled:
            return
        self.events.lost(self.event_sources(), "the run has failed, and ends it")
        cancelled = issubclass(kind, GeneratorExit | KeyboardInterrupt)
        self.events.finish("cancelled" if cancelled else "failed")

    def event_sources(self) -> list[EventSource]:
        """Return the living actors with open files of events."""
        return self.actors.event_sources

    def fates(self) -> Mapping[str, int] | None:
        """Return the trainer's own counts of groups by fate, if it has any."""
        return None

    def groups_in(self, folder: Path) -> list[str]:  # noqa: ARG002
        """Return the groups that a checkpoint holds with their rows."""
        return []

    def save(self, folder: Path) -> None:
        """Write a checkpoint: weights, optimizer, random generators, dataloader, step."""
        folder.mkdir(parents=True)
        self.actors.workers.all(PolicyWorker.save, folder / _POLICY)
        state = {"steps_done": self.steps_done, "dataloader": self._loader.state_dict()}
        (folder / _STATE).write_text(json.dumps(state), "utf-8")

    def note_checkpoint(self) -> None:
        """Write into the event log that a checkpoint is complete."""
        self.events.checkpoint_saved(self.steps_done)

    def load(self, folder: Path) -> None:
        """Load a checkpoint and copy its weights to the engine."""
        self.actors.workers.all(PolicyWorker.load, folder / _POLICY)
        state = json.loads((folder / _STATE).read_text("utf-8"))
        self.steps_done = state["steps_done"]
        self._loader.load_state_dict(state["dataloader"])
        self.events.resumed_from(self.steps_done, self.groups_in(folder))
        self._refit()

    def next_problems(self) -> list[Problem]:
        """Take the problems of the next generation batch."""
        return self._loader.take(prompts_to_generate(self.config.grpo))

    def validation_batches(self) -> list[list[Problem]]:
        """Return the first ``grpo.max_val_samples`` validation problems, the same each time.

        Each batch has ``grpo.val_batch_size`` problems, and the last one the rest.
        """
        task = build_task(self.config.data, self.config.grpo.seed, "val")
        most = self.config.grpo.max_val_samples
        count = most if task.size is None else min(most, task.size)
        problems = [task.problem(index) for index in range(count)]
        size = self.config.grpo.val_batch_size or count
        return [problems[start : start + size] for start in range(0, count, size)]

    def finish_update(self) -> None:
        """Count the step, and copy the updated weights to the engine."""
        self.steps_done += 1
        self._refit()

    def step_groups(self) -> StepGroups:
        """Begin to note the groups of the next step."""
        tolerance = self.config.grpo.dynamic_sampling_std_tolerance
        return StepGroups(self.events, self.actors, self.steps_done, tolerance)

    def _refit(self) -> None:
        self.actors.refit(self.weight_version, self.events.stamp())


class StageTimer:
    """Adds up the seconds spent in named stages; ``take`` returns them as ``time/<stage>``."""

    def __init__(self) -> None:
        self._seconds: dict[str, float] = {}
        #: Set it to a list to keep each stage as (name, start, end), on ``time.perf_counter``.
        self.spans: list[tuple[str, float, float]] | None = None

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Add the time of the ``with`` block to the stage."""
        started = time.perf_counter()
        with self.span(name):
            try:
                yield
            finally:
                elapsed = time.perf_counter() - started
                self._seconds[name] = self._seconds.get(name, 0.0) + elapsed

    @contextmanager
    def span(self, name: str) -> Iterator[None]:
        """Keep the time of the ``with`` block among ``spans``, in no stage; blocks may overlap."""
        started = time.perf_counter()
        try:
            yield
        finally:
            if self.spans is not None:
                self.spans.append((name, started, time.perf_counter()))

    def take(self, total: str = "") -> dict[str, float]:
        """Return the seconds since the last call as ``time/<stage>``; ``total`` adds their sum."""
        taken, self._seconds = self._seconds, {}
        if total:
            taken[total] = sum(taken.values())
        return {f"time/{name}": seconds for name, seconds in taken.items()}
