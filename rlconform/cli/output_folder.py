"""Checks that a command can write to its output folder, before it works for minutes."""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
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


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """Make the folder and keep other commands from holding it; remove it if it stays empty.

    The lock is one of the kernel, which ends with this process, however it ends.

    Raises:
        ConfigError: Another command holds the folder.
    """
    missing = [path for path in (folder, *folder.absolute().parents) if not path.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        _lock(descriptor, folder)
        yield
    finally:
        os.close(descriptor)
        with suppress(OSError):  # it has a report now
            for path in missing:
                path.rmdir()


def _lock(descriptor: int, folder: Path) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise ConfigError(
            f"--out {folder}: another certification is about to write its report there; name "
            f"another folder, or wait for its end"
        ) from None
    except OSError:
        return  # a file system without locks
