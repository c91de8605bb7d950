"""The contract's TOML files: their text, and their rows with every key looked at."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from typing import Any

from rlconform.contract.errors import ConfigError

_KINDS = {str: "text", tuple: "a list"}


@dataclass(frozen=True)
class TomlTable:
    """What the rows of one file hold.

    Attributes:
        file: Name of the file, beside this module.
        name: What a row's table is called in it.
        required: Keys that every row has; their values are text.
        optional: Other keys, each with the value that it has where a row leaves it out: text, or a
            tuple for a list.
    """

    file: str
    name: str
    required: frozenset[str]
    optional: Mapping[str, str | tuple[str, ...]]

    def text(self) -> str:
        """The file as it stands."""
        return (resources.files("rlconform.contract") / self.file).read_text("utf-8")

    def rows(self) -> list[dict[str, Any]]:
        """The rows in the file's order, as they are written."""
        rows: list[dict[str, Any]] = tomllib.loads(self.text())[self.name]
        return rows

    def filled(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """The row with all of its keys; lists have become tuples.

        Raises:
            ConfigError: The row lacks a key, has one too many, or holds a value of another type;
                the message names the file, the row and the key.
        """
        name = f"{self.file}: {row.get('id', 'a row without id')}"
        if missing := self.required - row.keys():
            raise ConfigError(f"{name} lacks {', '.join(sorted(missing))}")
        if unknown := row.keys() - self.required - self.optional.keys():
            raise ConfigError(f"{name} has unknown {', '.join(sorted(unknown))}")
        filled: dict[str, Any] = {
            key: tuple(value) if isinstance(value, list) else value
            for key, value in (dict(self.optional) | dict(row)).items()
        }
        for key, value in filled.items():
            kind = type(self.optional.get(key, ""))
            if type(value) is not kind:
                raise ConfigError(f"{name}.{key} must be {_KINDS[kind]}")
            if kind is tuple and not all(isinstance(item, str) for item in value):
                raise ConfigError(f"{name}.{key} must be a list of text")
        return filled
