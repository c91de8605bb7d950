"""Runs a GRPO training: starts Ray, actors and plane, builds the trainer, and loops over steps.

    train(config) ── Ray ── actors ── plane client ── trainer, resumed ── fit ──▶ report per step
                                                                           └─▶ metrics file

Everything that was started is ended in reverse order, also when the run fails.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Generator, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from math import inf
from pathlib import Path

from rlconform.backends.factory import build_data_plane_client
from rlconform.backends.ray_runtime import ensure_ray
from rlconform.contract import ConfigError
from rlconform.grpo.actors import RunActors
from rlconform.grpo.checkpoint_folders import Checkpoints
from rlconform.grpo.config import GRPOConfig, MasterConfig
from rlconform.grpo.metrics.writer import MetricWriter
from rlconform.grpo.models import load_tokenizer
from rlconform.grpo.rewards.build import check_rewards
from rlconform.grpo.rollout.plane_worker import PlaneRolloutWorker
from rlconform.grpo.rollout.worker import RolloutWorker
from rlconform.grpo.tasks import Dataloader, build_task
from rlconform.grpo.trainers.async_plane import AsyncPlaneTrainer
from rlconform.grpo.trainers.base import StepResult, Trainer
from rlconform.grpo.trainers.driver_step import prompts_to_generate
from rlconform.grpo.trainers.legacy import LegacyTrainer
from rlconform.grpo.trainers.plane import PlaneTrainer
from rlconform.grpo.workers.plane_policy_worker import PlanePolicyWorker
from rlconform.grpo.workers.policy_worker import PolicyWorker

#: Metrics of a validation, by their names in NeMo-RL.
_STOP_METRICS = {"accuracy": "val/reward", "pass_k": "val/pass_k"}


@dataclass(frozen=True)
class StepReport:
    """The metrics and the result of a step."""

    step: int  # counted from 1; 0 for a validation before the first step
    metrics: dict[str, float]  # including those of a validation after the step
    result: StepResult | None = None  # None at step 0
    stopped: bool = False  # whether the run ends here, at a checkpoint, before its last step


def train(
    config: MasterConfig, stop: threading.Event | None = None
) -> Generator[StepReport, None, None]:
    """Train from the newest checkpoint, or from the start, to the run's last step.

    That is ``grpo.max_num_steps``, the last step of ``grpo.max_num_epochs``, or the step whose
    validation reaches ``grpo.stop_at_validation_threshold``.

    The run uses this process's Ray if it is connected to one, else it starts a local Ray and ends
    it afterwards. When ``stop`` is set, it writes a checkpoint after its step and ends before the
    last one, if checkpoints are enabled. Metrics are written to their file before the report is
    yielded. Closing the generator ends the run.

    Raises:
        ConfigError: The model, the data or the engine can't be used.
        PlaneUnavailable: The plane did not start, or was lost.
        WorkerLost: An actor died or did not answer in time.
    """
    _check(config)
    with ExitStack() as stack:
        trainer = _start(config, stack)
        stack.push(trainer.end_after_error)
        resume(trainer)
        if trainer.finished:
            trainer.shutdown()
            return
        writer = MetricWriter(
            Path(config.logger.log_dir),
            config.grpo.max_num_steps,
            first_step=trainer.steps_done + 1,
            tensorboard=config.logger.tensorboard_enabled,
        )
        stack.enter_context(writer)
        for report in fit(trainer, stop):
            writer.write(report.step, report.metrics)
            yield report
            if report.stopped:
                writer.stop()
        writer.end_at(trainer.steps_done)
        trainer.shutdown()  # not after a failure: actors that hang or died can't answer


def _check(config: MasterConfig) -> None:
    """Load the tokenizer, the data and a reward function, whose errors then come first."""
    load_tokenizer(config.policy.model_name, config.policy.tokenizer_name)
    check_rewards(config)
    task = build_task(config.data, config.grpo.seed, "train")
    count = prompts_to_generate(config.grpo)
    if not Dataloader(task).has(count, config.grpo.max_num_epochs):
        raise ConfigError(
            f"the {task.size} problems of {config.grpo.max_num_epochs} epochs are too few for one "
            f"step, which takes {count}; raise grpo.max_num_epochs"
        )


def _start(config: MasterConfig, stack: ExitStack) -> Trainer:
    """Start the actors, with or without a plane, and build the trainer; ``stack`` ends them."""
    if not config.data_plane.enabled:
        with _keep_sigterm_handler():
            stack.enter_context(ensure_ray())
        actors = RunActors(
            PolicyWorker,
            RolloutWorker,
            config.cluster,
            reward_model=config.reward_model,
            replica_ranks=config.policy.megatron_cfg.replica_ranks,
        )
        stack.callback(actors.shutdown)
        return LegacyTrainer(config, actors)
    with _keep_sigterm_handler():
        client = build_data_plane_client(config.data_plane)  # starts a Ray of the size it needs
    stack.callback(client.close)
    in_flight = 1 if config.async_rl is None else config.async_rl.max_inflight_prompts
    actors = RunActors(
        PlanePolicyWorker,
        PlaneRolloutWorker,
        config.cluster,
        groups_in_flight=in_flight,
        reward_model=config.reward_model,
        replica_ranks=config.policy.megatron_cfg.replica_ranks,
    )
    stack.callback(actors.shutdown)
    attach = partial(build_data_plane_client, config.data_plane, bootstrap=False)
    trainer = PlaneTrainer if config.async_rl is None else AsyncPlaneTrainer
    return trainer(config, actors, client, attach)


@contextmanager
def _keep_sigterm_handler() -> Iterator[None]:
    """Restore this process's SIGTERM handler, because Ray installs one that aborts at once."""
    is_main = threading.current_thread() is threading.main_thread()
    before = signal.getsignal(signal.SIGTERM)
    yield
    if is_main and before is not None:
        signal.signal(signal.SIGTERM, before)


def resume(trainer: Trainer) -> None:
    """Load the newest checkpoint, if the run has one."""
    if newest := Checkpoints(trainer.config.checkpointing).newest():
        trainer.load(newest)


def fit(trainer: Trainer, stop: threading.Event | None = None) -> Iterator[StepReport]:
    """Run the remaining steps, with validations and checkpoints where they are due.

    It ends before the last one after a checkpoint, if ``stop`` is set and checkpoints are enabled.
    """
    config = trainer.config.grpo
    checkpoints = Checkpoints(trainer.config.checkpointing)
    if config.val_at_start and trainer.steps_done == 0:
        metrics = trainer.validate()
        yield StepReport(0, metrics)
        if reaches_threshold(metrics, config):
            trainer.completed = True
            return
    is_last = trainer.finished
    while not is_last:
        result = trainer.step()
        step, metrics, is_last = trainer.steps_done, dict(result.metrics), trainer.finished
        if is_validation_due(step, is_last, config):
            validation = trainer.validate()
            metrics |= validation
            is_last |= reaches_threshold(validation, config)
        asked = stop is not None and stop.is_set() and not is_last
        stopped = asked and may_stop(step, trainer.config)
        if checkpoints.is_due(step, is_last or stopped):
            checkpoints.write(step, trainer.save)
            trainer.note_checkpoint()
        trainer.completed = is_last
        yield StepReport(step, metrics, result, stopped)
        if stopped:
            return


def may_stop(step: int, config: MasterConfig) -> bool:
    """Whether a checkpoint can be made after ``step``, from which the run can go on.

    A queue hands out the prompts of several steps at once, and a checkpoint has no half quota.
    """
    every = 1 if config.async_rl is None else config.async_rl.queue.trigger_parameter_sync_step
    return config.checkpointing.enabled and step % every == 0


def is_validation_due(step: int, is_last: bool, config: GRPOConfig) -> bool:
    """Whether to validate after ``step``: every ``val_period`` steps, or the last (val_at_end)."""
    periodic = config.val_period > 0 and step % config.val_period == 0
    return (periodic and step >= config.val_start_at) or (config.val_at_end and is_last)


def reaches_threshold(metrics: Mapping[str, float], config: GRPOConfig) -> bool:
    """Whether a validation's metrics end the run, see ``stop_at_validation_metric``."""
    if config.stop_at_validation_metric is None or config.stop_at_validation_threshold is None:
        return False
    value = metrics.get(_STOP_METRICS[config.stop_at_validation_metric], -inf)  # without rewards
    return value >= config.stop_at_validation_threshold
