"""Checkpoints of a run: whole or not there, the newest to go on from, old ones dropped.

    checkpoint_dir/step_000010/   a trainer's state, see ``Trainer.save``
    checkpoint_dir/.step_000020   one that is being written, or was when the run died

The folder must be one that all nodes of the run see.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path

from rlconform.grpo.config import CheckpointingConfig

_NAME = re.compile(r"step_(\d{6,})")


class Checkpoints:
    """The folders of a run's checkpoints.

    Example:
        checkpoints = Checkpoints(config.checkpointing)
        if newest := checkpoints.newest():
            trainer.load(newest)
        checkpoints.write(trainer.steps_done, trainer.save)

    Args:
        config: Where they are, how often one is due, how many are kept.
    """

    def __init__(self, config: CheckpointingConfig) -> None:
        self._config = config
        self._folder = Path(config.checkpoint_dir)

    def newest(self) -> Path | None:
        """The newest checkpoint; None where there is none, or none are written at all."""
        every = self._every() if self._config.enabled else []
        return every[-1] if every else None

    def is_due(self, step: int, last_step: int) -> bool:
        """Whether one is to be written after ``step``: every so often, and after the last."""
        due = step % self._config.save_period == 0 or step == last_step
        return self._config.enabled and due

    def write(self, step: int, save: Callable[[Path], None]) -> Path:
        """Have ``save`` write to a folder, which counts as a checkpoint once it has; its path.

        A folder takes its name only when it is complete, so that a run that dies while it writes
        leaves no half a checkpoint to resume from.
        """
        final = self._folder / f"step_{step:06d}"
        unfinished = self._folder / f".{final.name}"
        self._folder.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(unfinished, ignore_errors=True)
        save(unfinished)
        shutil.rmtree(final, ignore_errors=True)
        os.replace(unfinished, final)
        self._drop_old()
        return final

    def _drop_old(self) -> None:
        keep = self._config.keep_last
        for folder in self._every()[:-keep] if keep else []:
            shutil.rmtree(folder)

    def _every(self) -> list[Path]:
        """Whole checkpoints, the oldest first."""
        if not self._folder.is_dir():
            return []
        named = [(_NAME.fullmatch(path.name), path) for path in self._folder.iterdir()]
        return [path for _, path in sorted((int(m[1]), path) for m, path in named if m)]
