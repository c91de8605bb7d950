"""Loads the contract's TOML files. pydantic checks each row; errors name the file, row and key."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from importlib import resources
from typing import Any, TypeVar

from pydantic import ConfigDict, TypeAdapter, ValidationError
from pydantic_core import ErrorDetails

from rlconform.contract.errors import ConfigError

#: Configuration of the pydantic dataclasses that describe a row.
ROW_CONFIG = ConfigDict(extra="forbid")

_EXPECTED = {"string_type": "text", "tuple_type": "a list"}


Row = TypeVar("Row")


def read_text(file: str) -> str:
    """Read a text file beside this module."""
    return (resources.files("rlconform.contract") / file).read_text("utf-8")


def load_rows(model: type[Row], file: str, table: str) -> dict[str, Row]:
    """Load all rows of a file's ``table`` by id, in the file's order.

    ``ConfigError`` if a row lacks a key, has an unknown key or a value that isn't allowed, or if
    two rows have the same id.
    """
    rows: dict[str, Row] = {}
    for values in tomllib.loads(read_text(file))[table]:
        row = parse_row(model, file, values)
        if values["id"] in rows:
            raise ConfigError(f"{file}: {values['id']} occurs twice")
        rows[values["id"]] = row
    return rows


def parse_row(model: type[Row], file: str, values: Mapping[str, Any]) -> Row:
    """Build one row. ``ConfigError`` names its id and the key that is missing, unknown or wrong."""
    try:
        return TypeAdapter(model).validate_python(dict(values))
    except ValidationError as invalid:
        row_id = values.get("id", "a row without id")
        raise ConfigError(f"{file}: {row_id}{_reason(invalid.errors()[0])}") from None


def _reason(error: ErrorDetails) -> str:
    """Describe the error in words that continue a sentence after the row's id."""
    key, in_list = next(iter(error["loc"]), ""), len(error["loc"]) > 1
    match error["type"]:
        case "missing":
            return f" lacks {key}"
        case "unexpected_keyword_argument":
            return f" has unknown {key}"
        case "literal_error":
            return f".{key} is {error['input']!r}: expected {error['ctx']['expected']}"
        case "value_error":
            return f": {error['ctx']['error']}"
        case kind:
            expected = _EXPECTED.get(kind, error["msg"])
            return f".{key} must be {'a list of ' if in_list else ''}{expected}"
