"""``build_task``: the task that a ``data:`` block names."""

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
    """The task of a ``data:`` block.

    Args:
        config: The block.
        seed: Draws made problems, and the order of a file's.
        split: Validation has problems and uids of its own.

    Raises:
        ConfigError: A file of problems that can't be used; none for ``val``.
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
        raise ConfigError(f"data.{key} is due: the file of the {split} problems")
    return JSONLines(
        path,
        seed,
        split,
        shuffle=config.shuffle and split == "train",
        system_prompt=config.system_prompt,
    )
