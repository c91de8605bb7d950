"""``MetricWriter``: writes a run's metrics as JSON lines, and TensorBoard files beside them.

    with MetricWriter(folder, num_steps=10) as writer:
        for step in range(1, 11):
            writer.write(step, {"train/loss": loss, "train/reward": reward})

The first record has the planned number of steps, the last one the final status, so a reader can
tell a killed run from a complete one. A resumed run appends to the file.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from rlconform.contract import ConfigError
from rlconform.grpo.metrics.records import METRICS_FILE, RunEnd, RunStart, StepMetrics

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter


class MetricWriter:
    """Writes a run's metrics; each record is flushed before ``write`` returns.

    As a context manager it records the run as finished, or as failed after an exception.
    ``num_steps`` is the run's last step; ``first_step`` is above 1 if the run is resumed.

    Raises:
        ConfigError: TensorBoard is requested but not installed.
        ValueError: ``first_step`` is below 1 or above ``num_steps``.
    """

    def __init__(
        self, folder: Path, num_steps: int, *, first_step: int = 1, tensorboard: bool = False
    ) -> None:
        if not 1 <= first_step <= num_steps:
            raise ValueError(f"steps count from 1, got {first_step} to {num_steps}")
        self._board = _open_board(folder, first_step) if tensorboard else None
        folder.mkdir(parents=True, exist_ok=True)
        self.path = folder / METRICS_FILE
        torn = _has_half_written_line(self.path)
        self._file = self.path.open("a", encoding="utf-8")
        if torn:
            self._file.write("\n")
        self._last_step = 0
        self._end: int | None = None
        self._stopped = False
        self._append(RunStart(first_step=first_step, num_steps=num_steps))

    def write(self, step: int, metrics: Mapping[str, Any]) -> None:
        """Record metrics of a step; several calls with different names may have the same step.

        The step is 0 before training. Values are numbers, or tensors and arrays of one element.

        Raises:
            TypeError: A value is a bool, or not a number.
            ValueError: The step is below the last call's step, or the writer is closed.
        """
        if step < self._last_step:
            raise ValueError(f"step {step} comes after step {self._last_step}")
        numbers = {name: _number(name, value) for name, value in metrics.items()}
        self._append(StepMetrics(step=step, metrics=numbers))
        self._last_step = step
        if self._board is not None:
            for name, number in numbers.items():
                self._board.add_scalar(name, number, step)

    def end_at(self, step: int) -> None:
        """Set the run's last step; below ``num_steps`` if the run ended by its configuration."""
        self._end = step

    def stop(self) -> None:
        """Note that the run ends at a checkpoint, to go on when it is started again."""
        self._stopped = True

    def close(self, *, finished: bool) -> None:
        """Record how the run ended, and close the files. Idempotent."""
        if self._file.closed:
            return
        if not finished:
            self._append(RunEnd(status="failed"))
        elif self._stopped:
            self._append(RunEnd(status="stopped"))
        else:
            self._append(RunEnd(status="finished", last_step=self._end))
        self._file.close()
        if self._board is not None:
            self._board.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.close(finished=kind is None)

    def _append(self, record: RunStart | StepMetrics | RunEnd) -> None:
        self._file.write(record.model_dump_json() + "\n")
        self._file.flush()  # a killed run keeps all of its steps


def _number(name: str, value: Any) -> float:
    if hasattr(value, "item") and math.prod(value.shape) == 1:
        value = value.item()
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"metric {name!r} must be a number, got {value!r}")
    return float(value)


def _has_half_written_line(path: Path) -> bool:
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
    # TensorBoard drops the steps that a resumed run repeats, as the reader does.
    return SummaryWriter(str(folder), purge_step=first_step)
