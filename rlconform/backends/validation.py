"""Argument checks of the built-in planes' clients; a malformed call raises before it has an effect.

Each function returns the value in the type that the plane uses. It raises ``TypeError`` for a wrong
type and ``ValueError`` for a value out of range; both name the argument.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from numbers import Integral, Real
from typing import Any

import numpy as np
from tensordict import TensorDictBase

from rlconform.contract import Tags

_PRIMITIVES = (str, bool, int, float, type(None), np.generic)


def text(name: str, value: object) -> str:
    """Check that the value is a non-empty string."""
    if not isinstance(value, str):
        raise TypeError(f"{name} must be a str, got {type(value).__name__}")
    if not value:
        raise ValueError(f"{name} must not be empty")
    return value


def texts(name: str, values: object, *, least: int = 0, unique: bool = False) -> list[str]:
    """Check that the value is a list of at least ``least`` strings, all different if ``unique``."""
    if isinstance(values, str | bytes) or not isinstance(values, Sequence):
        raise TypeError(f"{name} must be a list of str, got {type(values).__name__}")
    for value in values:
        if not isinstance(value, str):
            raise TypeError(f"{name} must hold str only, got {value!r}")
    if len(values) < least:
        raise ValueError(f"{name} must name at least {least}")
    if unique and len(set(values)) != len(values):
        twice = next(value for value, times in Counter(values).items() if times > 1)
        raise ValueError(f"{name} names {twice!r} more than once")
    return list(values)


def whole(name: str, value: object, *, least: int) -> int:
    """Check that the value is an integer of at least ``least``; a bool is refused."""
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise TypeError(f"{name} must be an int, got {value!r}")
    if value < least:
        raise ValueError(f"{name} must be at least {least}, got {value}")
    return int(value)


def seconds(name: str, value: object) -> float:
    """Check that the value is a duration of zero or more; infinity is allowed."""
    if isinstance(value, bool) or not isinstance(value, Real):
        raise TypeError(f"{name} must be seconds, got {value!r}")
    duration = float(value)
    if math.isnan(duration) or duration < 0:
        raise ValueError(f"{name} must be zero or more seconds, got {value!r}")
    return duration


def flag(name: str, value: object) -> bool:
    """Check that the value is a bool; other truthy values are refused."""
    if not isinstance(value, bool):
        raise TypeError(f"{name} must be a bool, got {value!r}")
    return value


def enumerations(value: object) -> None:
    """Check a registration's ``enums``: a mapping of names to lists of names, or None."""
    if value is None:
        return
    if not isinstance(value, Mapping):
        raise TypeError(f"enums must be a mapping or None, got {type(value).__name__}")
    for name, members in value.items():
        texts(f"enums[{text('an enum name', name)!r}]", members, unique=True)


def batch(value: object, n_rows: int) -> None:
    """Check that the value is a TensorDict of ``n_rows`` rows, or None."""
    if value is None:
        return
    if not isinstance(value, TensorDictBase):
        raise TypeError(f"fields must be a TensorDict, got {type(value).__name__}")
    if tuple(value.batch_size) != (n_rows,):
        raise ValueError(f"fields has batch size {tuple(value.batch_size)} for {n_rows} sample_ids")


def tag_rows(tags: object, n_rows: int) -> list[Tags] | None:
    """Check and copy the tags, one dict of primitives per row; return None for None."""
    if tags is None:
        return None
    if isinstance(tags, str | bytes | Mapping) or not isinstance(tags, Sequence):
        raise TypeError(f"tags must be a list of dicts, got {type(tags).__name__}")
    if len(tags) != n_rows:
        raise ValueError(f"tags has {len(tags)} entries for {n_rows} sample_ids")
    rows = [row.copy() if type(row) is dict else _tag_row(row) for row in tags]
    # Rows are many and types of values are few: each type is checked once.
    for key in {key for row in rows for key in row}:
        text("a tag's key", key)
    for kind in {type(value) for row in rows for value in row.values()}:
        if not issubclass(kind, _PRIMITIVES):
            raise TypeError(f"a tag must be a primitive, got {kind.__name__}")
    return rows


def _tag_row(row: Any) -> Tags:
    if not isinstance(row, Mapping):
        raise TypeError(f"a row's tags must be a dict, got {type(row).__name__}")
    return dict(row)
