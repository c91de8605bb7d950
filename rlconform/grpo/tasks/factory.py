"""``build_task``: creates the task of a ``data:`` block."""

from __future__ import annotations

from typing import Literal

from rlconform.contract import ConfigError
from rlconform.grpo.config import DataConfig
from rlconform.grpo.tasks.base import RolloutTask
from rlconform.grpo.tasks.digits import Copy, DigitTask, DigitTaskShape, Emit, Sort, Sum
from rlconform.grpo.tasks.guess_digit import GuessDigit
from rlconform.grpo.tasks.jsonl import JSONLines

Split = Literal["train", "val"]

_DIGIT_TASKS: dict[str, type[DigitTask]] = {"copy": Copy, "sort": Sort, "sum": Sum}


def build_task(config: DataConfig, seed: int, split: Split = "train") -> RolloutTask:
    """Create the task of a ``data:`` block.

    Args:
        config: The block.
        seed: Seed of synthetic problems, and of the order of a file's problems.
        split: Training and validation have different problems and uids.

    Raises:
        ConfigError: The file of problems can't be used, or there is none for ``val``.
    """
    if config.task == "jsonl":
        return _jsonl(config, seed, split)
    if config.task == "guess":
        return GuessDigit(seed, split, digits=config.digits)
    shape = DigitTaskShape(
        config.min_length, config.max_length, config.digits, config.partial_credit
    )
    if config.task == "emit":
        return Emit(seed, split, shape, config.target)
    return _DIGIT_TASKS[config.task](seed, split, shape)


def _jsonl(config: DataConfig, seed: int, split: Split) -> JSONLines:
    path = config.path if split == "train" else config.val_path
    if path is None:
        key = "path" if split == "train" else "val_path"
        raise ConfigError(f"expected data.{key}, the file of the {split} problems")
    return JSONLines(
        path,
        seed,
        split,
        shuffle=config.shuffle and split == "train",
        system_prompt=config.system_prompt,
    )
