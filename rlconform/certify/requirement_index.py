"""Reads which tests check which requirement from the tests' source, without importing it."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType

from rlconform._python_source import parse
from rlconform._resources import resource_dir


@cache
def checks_of_suites() -> Mapping[str, frozenset[str]]:
    """Return ``checks_by_requirement`` of this installation's suites, read once."""
    return MappingProxyType(checks_by_requirement(resource_dir("suites")))


def checks_by_requirement(suites: Path) -> dict[str, frozenset[str]]:
    """Return every check and test of rlconform, with the requirements in its marks.

    A check's name is as in a report, ``path below suites/::function``, with the class of a method
    in between, and without parameters. Requirements of rlconform itself are checked by its tests:
    their names begin with ``tests/``, and a wheel does not contain them.
    """
    found: dict[str, frozenset[str]] = {}
    for base, folder in ((suites, suites), (suites.parent, suites.parent / "tests")):
        for path in sorted(folder.rglob("test_*.py")):
            tree = parse(path.read_text("utf-8"))
            place, names = path.relative_to(base).as_posix(), _decorators_of(tree)
            found |= _tests_in(tree, place, frozenset(), names)
    return found


def _decorators_of(module: ast.Module) -> frozenset[str]:
    """Return ``requirement`` and the names of the module for it with some arguments given."""
    names = {"requirement"}
    for node in module.body:
        match node:
            case ast.Assign(
                targets=[ast.Name(id=name)],
                value=ast.Call(func=ast.Name(id="partial"), args=[ast.Name(id="requirement"), *_]),
            ):
                names.add(name)
    return frozenset(names)


def _tests_in(
    tree: ast.AST, place: str, inherited: frozenset[str], names: frozenset[str]
) -> Iterator[tuple[str, frozenset[str]]]:
    """Yield the tests of a module or class, with their own marks and those of their class."""
    for node in ast.iter_child_nodes(tree):
        if not isinstance(node, ast.FunctionDef | ast.ClassDef):
            continue
        here = f"{place}::{node.name}"
        marks = inherited.union(*(_requirements_of(each, names) for each in node.decorator_list))
        if isinstance(node, ast.ClassDef):
            yield from _tests_in(node, here, marks, names)
        elif node.name.startswith("test"):
            yield here, marks


def _requirements_of(decorator: ast.expr, names: frozenset[str]) -> set[str]:
    """Return the id in ``@requirement("ID", ...)``; an empty set for any other decorator."""
    match decorator:
        case ast.Call(func=ast.Name(id=used), args=[ast.Constant(value=str(named)), *_]):
            return {named} if used in names else set()
    return set()
