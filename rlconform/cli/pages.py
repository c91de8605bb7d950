"""Writes what commands render, and says in a sentence if that is not possible."""

from __future__ import annotations

from pathlib import Path

from rlconform.contract import ConfigError


def write_page(path: Path, text: str) -> None:
    """Write a text to a file; raise ``ConfigError`` if it can't be written."""
    try:
        path.write_text(text, "utf-8", errors="backslashreplace")
    except OSError as error:
        raise ConfigError(f"{path} can't be written: {error.strerror}") from error
