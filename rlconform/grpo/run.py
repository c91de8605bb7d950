"""A whole run: its Ray, its crew, its trainer, and the loop over the steps.

    train(config) ── Ray ── crew ── plane ── trainer, resumed ── fit ──▶ a report after each step
                                                                          └─▶ the metrics file

What is started is ended in the opposite order, however the run ends.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Generator, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from rlconform.backends.factory import build_data_plane_client
from rlconform.backends.ray_runtime import ensure_ray
from rlconform.grpo.actors import RunActors
from rlconform.grpo.checkpoint import Checkpoints
from rlconform.grpo.config import MasterConfig
from rlconform.grpo.metrics.writer import MetricWriter
from rlconform.grpo.models import load_tokenizer
from rlconform.grpo.rollout.plane_worker import PlaneRolloutWorker
from rlconform.grpo.rollout.worker import RolloutWorker
from rlconform.grpo.tasks import build_task
from rlconform.grpo.trainers.base import StepResult, Trainer
from rlconform.grpo.trainers.legacy import LegacyTrainer
from rlconform.grpo.trainers.plane import PlaneTrainer
from rlconform.grpo.workers.plane_policy_worker import PlanePolicyWorker
from rlconform.grpo.workers.policy_worker import PolicyWorker


@dataclass(frozen=True)
class StepReport:
    """What a step came to.

    Attributes:
        step: From 1; 0 for a validation before the first one.
        metrics: Numbers by name, the validation's among them.
        result: The step's; None at step 0.
    """

    step: int
    metrics: dict[str, float]
    result: StepResult | None = None


def train(config: MasterConfig) -> Generator[StepReport, None, None]:
    """Train from the start, or from the newest checkpoint, to ``grpo.max_num_steps``.

    Runs on this process's Ray if it has one, else on a local Ray that ends with the run. Metrics
    are in their file before a report is given; a caller who closes the generator ends the run.

    Raises:
        ConfigError: The model, the data or the engine can't be used.
        PlaneUnavailable: The plane did not start, or was lost.
        WorkerLost: An actor died.
    """
    _check(config)
    with ExitStack() as stack:
        trainer = _start(config, stack)
        resume(trainer)
        if trainer.steps_done >= config.grpo.max_num_steps:
            return
        writer = MetricWriter(
            Path(config.logger.log_dir),
            config.grpo.max_num_steps,
            first_step=trainer.steps_done + 1,
            tensorboard=config.logger.tensorboard_enabled,
        )
        stack.enter_context(writer)
        for report in fit(trainer):
            writer.write(report.step, report.metrics)
            yield report
        trainer.shutdown()  # not where the run failed: actors that hang or died can't be asked


def _check(config: MasterConfig) -> None:
    """Raise here, and not a minute later in an actor, what is wrong with the model or the data."""
    load_tokenizer(config.policy.model_name, config.policy.tokenizer_name)
    build_task(config.data, config.grpo.seed, "train")


def _start(config: MasterConfig, stack: ExitStack) -> Trainer:
    """The trainer that the run's ``data_plane`` block asks for; ``stack`` ends what it needs."""
    if not config.data_plane.enabled:
        with _own_sigterm():
            stack.enter_context(ensure_ray())
        crew = RunActors(PolicyWorker, RolloutWorker, config.cluster)
        stack.callback(crew.shutdown)
        return LegacyTrainer(config, crew)
    with _own_sigterm():
        client = build_data_plane_client(config.data_plane)  # starts Ray, of the size it needs
    stack.callback(client.close)
    crew = RunActors(PlanePolicyWorker, PlaneRolloutWorker, config.cluster)
    stack.callback(crew.shutdown)
    attach = partial(build_data_plane_client, config.data_plane, bootstrap=False)
    return PlaneTrainer(config, crew, client, attach)


@contextmanager
def _own_sigterm() -> Iterator[None]:
    """Keep this process's way of ending: Ray's takes SIGTERM over, and aborts without an end."""
    is_main = threading.current_thread() is threading.main_thread()
    before = signal.getsignal(signal.SIGTERM)
    yield
    if is_main and before is not None:
        signal.signal(signal.SIGTERM, before)


def resume(trainer: Trainer) -> None:
    """Go on from the newest checkpoint, if the run has one."""
    if newest := Checkpoints(trainer.config.checkpointing).newest():
        trainer.load(newest)


def fit(trainer: Trainer) -> Iterator[StepReport]:
    """Step to the run's last step, validating and saving on the way."""
    config = trainer.config
    checkpoints = Checkpoints(config.checkpointing)
    if config.grpo.val_at_start and trainer.steps_done == 0:
        yield StepReport(0, trainer.validate())
    while trainer.steps_done < config.grpo.max_num_steps:
        result = trainer.step()
        step, metrics = trainer.steps_done, dict(result.metrics)
        if config.grpo.val_period and step % config.grpo.val_period == 0:
            metrics |= trainer.validate()
        if checkpoints.is_due(step, config.grpo.max_num_steps):
            checkpoints.write(step, trainer.save)
        yield StepReport(step, metrics, result)
