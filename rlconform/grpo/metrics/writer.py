"""Metrics on disk: a record per line, as the run goes, and TensorBoard's files beside them.

    with MetricWriter(folder, num_steps=10) as writer:
        for step in range(1, 11):
            writer.write(step, {"train/loss": loss, "train/reward": reward})

A run begins with a record that says how far it means to go, and closes with another, so that a
reader can tell a run that was killed from one that is through. A resumed run appends to the file.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self

from rlconform.contract import ConfigError
from rlconform.grpo.metrics.records import METRICS_FILE, RunEnd, RunStart, StepMetrics

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter


class MetricWriter:
    """Writes a run's metrics; each record is with the system before ``write`` returns.

    Leaving it without an exception marks the run as finished, any exception as failed.

    Args:
        folder: Where ``metrics.jsonl`` and TensorBoard's files go; made if it isn't there.
        num_steps: The run's last step, counted from 1.
        first_step: The first one that is written now: above 1 when a run is resumed.
        tensorboard: Write TensorBoard's files as well.

    Attributes:
        path: The metrics file.

    Raises:
        ConfigError: TensorBoard is asked for and not installed.
        ValueError: ``first_step`` below 1, or ``num_steps`` below it.
    """

    def __init__(
        self, folder: Path, num_steps: int, *, first_step: int = 1, tensorboard: bool = False
    ) -> None:
        if not 1 <= first_step <= num_steps:
            raise ValueError(f"steps count from 1, got {first_step} to {num_steps}")
        self._board = _open_board(folder, first_step) if tensorboard else None
        folder.mkdir(parents=True, exist_ok=True)
        self.path = folder / METRICS_FILE
        torn = _ends_within_a_line(self.path)
        self._file = self.path.open("a", encoding="utf-8")
        if torn:
            self._file.write("\n")
        self._last_step = 0
        self._append(RunStart(first_step=first_step, num_steps=num_steps))

    def write(self, step: int, metrics: Mapping[str, Any]) -> None:
        """Record numbers of a step; it may be given more than once, with other names.

        Args:
            step: From 0, which is before training, and never falling.
            metrics: Numbers, or tensors and arrays of one element, by name, e.g. ``train/loss``.

        Raises:
            TypeError: A value that is no number; a bool is none.
            ValueError: A step before the one that was written last, or a closed writer.
        """
        if step < self._last_step:
            raise ValueError(f"step {step} comes after step {self._last_step}")
        numbers = {name: _number(name, value) for name, value in metrics.items()}
        self._append(StepMetrics(step=step, metrics=numbers))
        self._last_step = step
        if self._board is not None:
            for name, number in numbers.items():
                self._board.add_scalar(name, number, step)

    def close(self, *, finished: bool) -> None:
        """Record whether the run is through, or failed. Closing again changes nothing."""
        if self._file.closed:
            return
        status: Literal["finished", "failed"] = "finished" if finished else "failed"
        self._append(RunEnd(status=status))
        self._file.close()
        if self._board is not None:
            self._board.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close(finished=kind is None)

    def _append(self, record: RunStart | StepMetrics | RunEnd) -> None:
        self._file.write(record.model_dump_json() + "\n")
        self._file.flush()  # a run that is killed leaves all of its steps


def _number(name: str, value: Any) -> float:
    """``value`` as a float, whatever number it is."""
    if hasattr(value, "item") and math.prod(value.shape) == 1:
        value = value.item()
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"metric {name!r} must be a number, got {value!r}")
    return float(value)


def _ends_within_a_line(path: Path) -> bool:
    """Whether a run that was killed left a record half written."""
    if not path.exists() or path.stat().st_size == 0:
        return False
    with path.open("rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read() != b"\n"


def _open_board(folder: Path, first_step: int) -> SummaryWriter:
    try:
        from torch.utils.tensorboard import SummaryWriter  # noqa: PLC0415 - only when asked for
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"logger.tensorboard_enabled needs {error.name}, which is not installed: "
            "pip install tensorboard, or set it to false"
        ) from error
    # What a resumed run repeats is taken off the board, as it is from the file.
    return SummaryWriter(str(folder), purge_step=first_step)
