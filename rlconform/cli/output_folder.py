"""Checks that a command can write to its output folder, before the command works for minutes."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from rlconform.contract import ConfigError


def check_writable(folder: Path, option: str = "--out") -> None:
    """Write a file in the folder (or in its nearest existing parent), and remove it.

    Permissions do not suffice: root may write to ``/proc``, but can't create files there.

    Raises:
        ConfigError: The file can't be written; the message says why.
    """
    there = next(path for path in (folder.absolute(), *folder.absolute().parents) if path.exists())
    if not there.is_dir():
        raise ConfigError(f"{option} {folder}: {there} is a file; name a folder")
    try:
        with tempfile.TemporaryDirectory(prefix=".rlconform-", dir=there) as tried:
            (Path(tried) / "file").write_text("written", "utf-8")
    except OSError as error:
        raise ConfigError(
            f"{option} {folder}: {there} can't be written to ({os.strerror(error.errno or 0)}); "
            f"name another folder"
        ) from error
