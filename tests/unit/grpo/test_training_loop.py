"""The loop over steps: validations, checkpoints, epochs and early ends, with a scripted trainer."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import cast

import pytest
import torch

from rlconform.contract import ConfigError
from rlconform.grpo.actors import RunActors
from rlconform.grpo.config import MasterConfig, load_config
from rlconform.grpo.metrics.reader import read_metrics
from rlconform.grpo.metrics.writer import MetricWriter
from rlconform.grpo.trainers.base import StepResult, Trainer
from rlconform.grpo.training_loop import fit, may_stop, train


class ScriptedTrainer(Trainer):
    """Takes problems and trains nothing; validation n has the reward n / 10."""

    def step(self) -> StepResult:
        self.next_problems()
        self.steps_done += 1
        return StepResult([], torch.empty(0), {})

    def validate(self) -> dict[str, float]:
        self.validations = getattr(self, "validations", 0) + 1
        return {"val/reward": self.validations / 10, "val/pass_k": 0.0}

    def save(self, folder: Path) -> None:
        folder.mkdir()


class NoActors:
    """Actors that do nothing."""

    def build(self, config: MasterConfig) -> None:
        pass


def trainer(*overrides: str) -> ScriptedTrainer:
    sizes = ("grpo.num_prompts_per_step=2", "grpo.max_num_steps=7")
    config = load_config("tiny_llama_copy", [*sizes, *overrides])
    return ScriptedTrainer(config, cast(RunActors, NoActors()))


def validated(*overrides: str) -> list[int]:
    """The steps after which there was a validation, and the last step with a minus sign."""
    reports = list(fit(trainer(*overrides)))
    steps = [report.step for report in reports if "val/reward" in report.metrics]
    return [*steps, -reports[-1].step]


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        ([], [-7]),
        (["grpo.val_period=3"], [3, 6, -7]),
        (["grpo.val_period=2", "grpo.val_start_at=4"], [4, 6, -7]),
        (["grpo.val_at_start=true"], [0, -7]),
        (["grpo.val_at_end=true"], [7, -7]),
        (["grpo.val_period=7", "grpo.val_at_end=true"], [7, -7]),
    ],
)
def test_validations_are_where_they_are_due(overrides: list[str], expected: list[int]) -> None:
    assert validated(*overrides) == expected


STOP = ("grpo.stop_at_validation_metric=accuracy", "grpo.val_period=1")


@pytest.mark.parametrize(("threshold", "last"), [(0.1, 1), (0.3, 3), (0.9, 7)])
def test_a_run_ends_when_a_validation_is_good_enough(threshold: float, last: int) -> None:
    reached = validated(*STOP, f"grpo.stop_at_validation_threshold={threshold}")
    assert reached == [*range(1, last + 1), -last]


def test_a_run_may_end_before_its_first_step() -> None:
    stop = ("grpo.val_at_start=true", "grpo.stop_at_validation_threshold=0.1")
    assert validated(*STOP, *stop) == [0, 0]


def test_the_last_step_has_a_checkpoint_wherever_it_is(tmp_path: Path) -> None:
    stop = (*STOP, "grpo.stop_at_validation_threshold=0.3")
    saved = ("checkpointing.enabled=true", f"checkpointing.checkpoint_dir={tmp_path}")
    list(fit(trainer(*stop, *saved)))
    assert [path.name for path in tmp_path.iterdir()] == ["step_000003"]


def jsonl(tmp_path: Path, problems: int) -> tuple[str, ...]:
    path = tmp_path / "problems.jsonl"
    path.write_text('{"question": "1", "answer": "1"}\n' * problems)
    return ("data.task=jsonl", f"data.path={path}")


@pytest.mark.parametrize(("epochs", "steps"), [("1", 2), ("2", 5), ("3", 7), ("null", 7)])
def test_a_run_ends_with_its_last_epoch(tmp_path: Path, epochs: str, steps: int) -> None:
    made = trainer(f"grpo.max_num_epochs={epochs}", *jsonl(tmp_path, 5))
    assert len(list(fit(made))) == steps
    assert made.finished


def test_too_few_problems_for_a_step_are_refused(tmp_path: Path) -> None:
    config = load_config("tiny_llama_copy", ["grpo.max_num_epochs=2", *jsonl(tmp_path, 3)])
    with pytest.raises(ConfigError, match="3 problems of 2 epochs are too few"):
        next(train(config))


def test_problems_of_a_validation_come_in_batches() -> None:
    made = trainer("grpo.max_val_samples=5", "grpo.val_batch_size=2")
    batches = made.validation_batches()
    assert [len(batch) for batch in batches] == [2, 2, 1]
    whole = trainer("grpo.max_val_samples=5", "grpo.val_batch_size=null").validation_batches()
    assert whole == [[problem for batch in batches for problem in batch]]


def test_a_run_that_ended_by_its_configuration_is_complete(tmp_path: Path) -> None:
    with MetricWriter(tmp_path, 7) as writer:
        for step in range(1, 4):
            writer.write(step, {"a": 1.0})
        writer.end_at(3)
    assert read_metrics(writer.path).ended_early() == ""
    failed = MetricWriter(tmp_path, 7)
    failed.end_at(3)
    failed.close(finished=False)
    assert "failed" in read_metrics(failed.path).ended_early()


def stopped_at(step: int, *overrides: str) -> list[tuple[int, bool]]:
    """The steps of a run that is asked to stop during ``step``, and whether each was the last."""
    asked, made = threading.Event(), []
    for report in fit(trainer(*overrides), asked):
        made.append((report.step, report.stopped))
        if report.step == step - 1:
            asked.set()
    return made


def checkpoints(folder: Path) -> list[str]:
    return [f"checkpointing.checkpoint_dir={folder}", "checkpointing.enabled=true"]


def test_a_run_that_is_asked_to_stop_ends_after_a_checkpoint(tmp_path: Path) -> None:
    made = stopped_at(3, *checkpoints(tmp_path))
    assert made == [(1, False), (2, False), (3, True)]
    assert [path.name for path in tmp_path.iterdir()] == ["step_000003"]


def test_a_run_without_checkpoints_does_not_stop() -> None:
    assert stopped_at(3)[-1] == (7, False)


def test_a_run_that_is_asked_during_its_last_step_is_complete(tmp_path: Path) -> None:
    assert stopped_at(7, *checkpoints(tmp_path))[-1] == (7, False)


def test_a_queue_stops_after_a_weight_sync(tmp_path: Path) -> None:
    queue = ["async_rl.transport=queue", "async_rl.queue.trigger_parameter_sync_step=2"]
    sizes = ["async_rl.max_buffered_rollouts=64", "checkpointing.save_period=100"]
    config = load_config("tiny_llama_copy_async", [*queue, *sizes, *checkpoints(tmp_path)])
    assert [step for step in range(1, 7) if may_stop(step, config)] == [2, 4, 6]
