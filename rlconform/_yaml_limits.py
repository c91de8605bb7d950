"""Limits on what a YAML file may grow to when it is read.

    text ──events──▶ check_aliases          each alias counts as all that it stands for
    tree ──strings─▶ check_interpolations   each ${key} counts as all that it resolves to

Without them a file of a few lines fills the memory: ten lines whose every value names the line
before ten times are 10^10 values.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import yaml  # type: ignore[import-untyped]

from rlconform._files import DEEPEST, excerpt
from rlconform.contract.errors import ConfigError

#: Values of a file, those that aliases repeat included; the largest reference configuration has
#: 300.
MOST_VALUES = 100_000
#: Characters of a string once its interpolations are resolved.
LONGEST_RESOLVED = 1 << 20

#: A key in an interpolation, with dots and indexes.
_NAME = re.compile(r"[\w.\[\]/-]+")


def check_aliases(text: str, where: str) -> None:
    """Raise ``ConfigError`` for too many values or levels, and an alias of what it lies in.

    Raises ``yaml.YAMLError`` if it is not YAML.
    """
    sizes: dict[str, int | None] = {}  # of what an anchor names; None while it is open
    open_ones: list[tuple[str | None, int]] = [(None, 0)]  # anchor, values so far
    for event in yaml.parse(text, Loader=yaml.CSafeLoader):
        anchor = getattr(event, "anchor", None)
        size = 1
        if isinstance(event, yaml.AliasEvent):
            known = sizes.get(event.anchor, 0)
            if known is None:
                raise ConfigError(f"{where}: the alias *{anchor} stands for what it lies in")
            size = known
        elif isinstance(event, yaml.CollectionStartEvent):
            open_ones.append((anchor, 0))
            if anchor:
                sizes[anchor] = None
            if len(open_ones) > DEEPEST:
                raise ConfigError(f"{where}: expected at most {DEEPEST} levels of nesting")
            continue
        elif isinstance(event, yaml.CollectionEndEvent):
            anchor, below = open_ones.pop()
            size += below
        elif not isinstance(event, yaml.ScalarEvent):
            continue
        if anchor and not isinstance(event, yaml.AliasEvent):
            sizes[anchor] = size
        outer, so_far = open_ones.pop()
        if so_far + size > MOST_VALUES:
            raise ConfigError(f"{where}: expected at most {MOST_VALUES:,} values; got more")
        open_ones.append((outer, so_far + size))


def check_interpolations(tree: Any, where: str) -> None:
    """Raise ``ConfigError`` if interpolations would make more than ``LONGEST_RESOLVED`` of a value.

    ``tree`` has the file's values as they are written. A name that leads nowhere, or back to where
    it stands, counts as one character: OmegaConf says that it can't be resolved.
    """
    nodes = dict(_nodes(tree, ""))
    sizes: dict[str, int] = {}
    visiting: set[str] = set()

    def size_of(name: str) -> int:
        if name in visiting or name not in nodes:
            return 1
        if name not in sizes:
            visiting.add(name)
            own, below = nodes[name]
            sizes[name] = own + sum(map(size_of, below))
            visiting.remove(name)
            if sizes[name] > LONGEST_RESOLVED:
                raise ConfigError(f"{where}: {excerpt(name)} resolves to more than 1 MiB")
        return sizes[name]

    for name in nodes:
        size_of(name)


def _nodes(value: Any, name: str) -> Iterator[tuple[str, tuple[int, list[str]]]]:
    """Yield the path of each value, with its own size and the paths that it resolves to."""
    if isinstance(value, dict | list):
        pairs = value.items() if isinstance(value, dict) else enumerate(value)
        below = {f"{name}.{key}".removeprefix("."): one for key, one in pairs}
        yield name, (1, list(below))
        for path, one in below.items():
            yield from _nodes(one, path)
    elif isinstance(value, str):
        yield name, (len(value), _references(value, name))


def _references(text: str, name: str) -> list[str]:
    """Return the paths that interpolations in a text may stand for, arguments included."""
    inside, depth, found = [], 0, text.split("${")
    for part in found[1:]:
        depth += 1
        for one in part:
            depth -= one == "}"
            if not depth:
                break
            inside.append(one)
        inside.append(" ")
    return [_absolute(one, name) for one in _NAME.findall("".join(inside))]


def _absolute(reference: str, name: str) -> str:
    """Return the path of a reference in the value ``name``; each dot before it leads one up."""
    below = reference.lstrip(".")
    path = re.sub(r"\[(\w+)\]", r".\1", below).strip(".")
    dots = len(reference) - len(below)
    if not dots:
        return path
    above = name.split(".")[:-dots]
    return ".".join([*above, path] if path else above)
