"""Where a command writes: whether it can is known before the work, not after it."""

from __future__ import annotations

import os
from pathlib import Path

from rlconform.contract import ConfigError


def check_writable(folder: Path) -> None:
    """Raise unless the folder is there and can be written to, or can be made. Makes nothing.

    Raises:
        ConfigError: It can't; the message says what stands in the way.
    """
    there = next(path for path in (folder.absolute(), *folder.absolute().parents) if path.exists())
    if not there.is_dir():
        raise ConfigError(f"--out {folder}: {there} is a file; name a folder")
    if not os.access(there, os.W_OK | os.X_OK):
        raise ConfigError(f"--out {folder}: {there} can't be written to; name another folder")
