"""Reads files that anybody may have written; whatever is wrong with one is a ``ConfigError``.

read_bytes ─▶ read_text ─▶ parse_json, parse_toml, parse_model      a value, nothing executed
limits: bytes of a file, levels of nesting; also refused: a key that occurs twice, NaN
"""

from __future__ import annotations

import json
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, TypeVar

from rlconform.contract.errors import ConfigError

if TYPE_CHECKING:  # readers of events do without pydantic
    from pydantic import BaseModel, ValidationError

#: Bytes of the largest document, such as a report or a history. The largest of our own has 6 MB.
LARGEST = 256 << 20
#: Bytes of the largest file that people write by hand, such as a configuration.
LARGEST_BY_HAND = 1 << 20
#: Levels of lists and mappings within each other; a report has 8.
DEEPEST = 64
#: Most characters of what a file says in an error message.
LONGEST_EXCERPT = 200
#: Most characters of what a rule says of a value, which may quote the value.
LONGEST_MESSAGE = 600
#: Bytes that are read at once.
_PIECE = 1 << 20

M = TypeVar("M", bound="BaseModel")


def read_bytes(path: Path, hint: str, largest: int = LARGEST) -> bytes:
    """Return what is in the file; ``hint`` says in an error what to name instead.

    Raises:
        ConfigError: The file can't be read, or is larger than ``largest`` bytes.
    """
    try:
        with path.open("rb") as file:
            data = b"".join(_pieces(file, largest + 1))
    except OSError as error:
        raise ConfigError(f"{excerpt(str(path))}: {error.strerror}; {hint}") from error
    except ValueError as error:  # a name that no file can have
        raise ConfigError(f"{excerpt(str(path))}: {error}; {hint}") from error
    if len(data) > largest:
        raise ConfigError(f"{path}: expected at most {largest >> 20} MiB; got more; {hint}")
    return data


def _pieces(file: BinaryIO, most: int) -> Iterator[bytes]:
    """Yield what the file holds, up to ``most`` bytes; it may be a pipe, or ``/dev/zero``."""
    while most and (piece := file.read(min(most, _PIECE))):
        most -= len(piece)
        yield piece


def is_file(path: Path) -> bool:
    """Whether there is such a file; False also for a name that no file can have."""
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False


def read_text(path: Path, hint: str, largest: int = LARGEST) -> str:
    """Return the text of a file, as ``read_bytes``; ``ConfigError`` if it is not UTF-8."""
    return decode(read_bytes(path, hint, largest), str(path))


def lines_of(path: Path, largest: int = LARGEST) -> Iterator[bytes]:
    """Yield the lines of a file; ``ConfigError`` for one of more than ``largest`` bytes.

    Raises:
        OSError: The file can't be read.
    """
    with path.open("rb") as file:
        while line := file.readline(largest + 1):
            if len(line) > largest:
                raise ConfigError(f"{path}: expected lines of at most {largest >> 20} MiB")
            yield line


def decode(data: bytes, where: str) -> str:
    """Return the bytes as text; ``ConfigError`` if they are not UTF-8."""
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ConfigError(f"{where}: not UTF-8: {error.reason} at byte {error.start}") from error


def parse_json(text: str, where: str, *, finite: bool = True) -> Any:
    """Return the value of a JSON text; the keys of an object differ, and numbers are ``finite``.

    Raises:
        ConfigError: It is none, or nested too deeply; the message begins with ``where``.
    """
    try:
        loaded = json.loads(
            text,
            object_pairs_hook=_object,
            parse_constant=_refuse_number if finite else float,
            parse_float=_finite if finite else float,
        )
    except RecursionError:
        raise _too_deep(where) from None
    except ValueError as error:
        raise ConfigError(f"{where}: not JSON: {excerpt(str(error))}") from error
    check_depth(loaded, where)
    return loaded


def parse_toml(text: str, where: str) -> dict[str, Any]:
    """Return the value of a TOML text; ``ConfigError`` if it is none, or nested too deeply."""
    try:
        loaded = tomllib.loads(text)
    except RecursionError:
        raise _too_deep(where) from None
    except ValueError as error:
        raise ConfigError(f"{where}: not TOML: {excerpt(str(error))}") from error
    check_depth(loaded, where)
    return loaded


def parse_model(model: type[M], text: str, where: str, *, strict: bool | None = None) -> M:
    """Return a JSON text as the model; ``ConfigError`` names the first key that is wrong."""
    from pydantic import ValidationError  # noqa: PLC0415 - see above

    parse_json(text, where)
    try:
        return model.model_validate_json(text, strict=strict)
    except ValidationError as error:
        raise ConfigError(f"{where}: {first_error(error)}") from error


def check_depth(value: Any, where: str) -> None:
    """Raise ``ConfigError`` if lists and mappings are nested in more than ``DEEPEST`` levels."""
    level: list[Any] = [value]
    for _ in range(DEEPEST):
        level = [below for one in level for below in _below(one)]
        if not level:
            return
    raise _too_deep(where)


def _below(value: Any) -> Iterable[Any]:
    """Return the parts of a list or a mapping that are lists and mappings themselves."""
    if isinstance(value, dict):
        return (one for one in value.values() if isinstance(one, dict | list))
    if isinstance(value, list):
        return (one for one in value if isinstance(one, dict | list))
    return ()


def first_error(invalid: ValidationError) -> str:
    """Return where the first error is and what it is, in one short line."""
    wrong = invalid.errors(include_url=False)[0]
    where = ".".join(map(str, wrong["loc"]))
    return ": ".join(filter(None, [excerpt(where), excerpt(wrong["msg"], LONGEST_MESSAGE)]))


def excerpt(text: str, most: int = LONGEST_EXCERPT) -> str:
    """Return a text of a file as a message can hold it: one line, short, and printable."""
    line = " ".join("".join(one if one.isprintable() else " " for one in text).split())
    return line if len(line) <= most else f"{line[: most - 3]}..."


def _too_deep(where: str) -> ConfigError:
    return ConfigError(f"{where}: expected at most {DEEPEST} levels of nesting; got more")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        twice = Counter(key for key, _ in pairs).most_common(1)[0][0]
        raise ValueError(f"the key {excerpt(twice)!r} occurs twice in an object")
    return made


def _refuse_number(name: str) -> float:
    raise ValueError(f"expected a finite number; got {name}")


def _finite(text: str) -> float:
    value = float(text)
    return value if abs(value) != float("inf") else _refuse_number(excerpt(text))
