"""Writes a run's checkpoint folders atomically, finds the newest one, and deletes old ones.

    checkpoint_dir/step_000010/   a complete checkpoint, see ``Trainer.save``
    checkpoint_dir/.step_000020   an incomplete checkpoint: it is being written, or the run died

All nodes of the run must see the folder.
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
    """The checkpoint folders of a run."""

    def __init__(self, config: CheckpointingConfig) -> None:
        self._config = config
        self._folder = Path(config.checkpoint_dir)

    def newest(self) -> Path | None:
        """Return the newest checkpoint, or None if there is none or checkpoints are disabled."""
        complete = self._complete() if self._config.enabled else []
        return complete[-1] if complete else None

    def is_due(self, step: int, is_last: bool) -> bool:
        """Whether a checkpoint is due after ``step``: every ``save_period`` steps, and the last."""
        due = step % self._config.save_period == 0 or is_last
        return self._config.enabled and due

    def write(self, step: int, save: Callable[[Path], None]) -> Path:
        """Write a checkpoint with ``save(folder)`` and return its path.

        ``save`` writes to a hidden folder that is renamed when it is complete, so a run that dies
        while writing leaves no half-written checkpoint to resume from.
        """
        final = self._folder / f"step_{step:06d}"
        unfinished = self._folder / f".{final.name}"
        self._folder.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(unfinished, ignore_errors=True)
        save(unfinished)
        shutil.rmtree(final, ignore_errors=True)
        os.replace(unfinished, final)
        if keep := self._config.keep_last:
            for old in self._complete()[:-keep]:
                shutil.rmtree(old)
        return final

    def _complete(self) -> list[Path]:
        """Return the complete checkpoints, the oldest first."""
        if not self._folder.is_dir():
            return []
        named = [(_NAME.fullmatch(path.name), path) for path in self._folder.iterdir()]
        return [path for _, path in sorted((int(m[1]), path) for m, path in named if m)]
