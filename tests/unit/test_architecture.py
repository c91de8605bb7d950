"""Each part of the package imports only allowed parts, and no imports are circular."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import rlconform

ROOT = Path(rlconform.__file__).resolve().parent

_CONTRACT = {"contract"}
_WIRE = _CONTRACT | {"wire", "events"}
_PLANE = _WIRE | {"plane"}
_BACKENDS = _PLANE | {"backends"}
_GRPO = _BACKENDS | {"grpo"}
_CERTIFY = _GRPO | {"check_run", "certify"}

#: By part of the package, the parts that it may import. Mutants import the parts that they break.
#: All parts may import ``HELPERS``.
MAY_IMPORT: dict[str, set[str]] = {
    "contract": set(),
    "wire": _CONTRACT,
    "events": set(),
    "plane": _WIRE,
    "backends": _PLANE,
    "grpo": _BACKENDS,
    "check_run": {"events"},
    "mutants": _GRPO,
    "certify": _GRPO | {"check_run"},
    "selftest": _CERTIFY | {"mutants"},
    "bench": _CERTIFY,
    "soak": _CERTIFY,
    "integrations": _PLANE,
    "launch": _CERTIFY,
    "new_adapter": _CONTRACT,
    "pytest_plugin": set(),
    "cli": _CERTIFY
    | {"launch", "new_adapter", "mutants", "selftest", "bench", "soak", "integrations"},
    "__main__": {"cli"},
}


#: Modules with a leading underscore; they import only the contract.
HELPERS = {path.stem for path in ROOT.glob("_[a-z]*.py")}


def module_name(path: Path) -> str:
    """``rlconform.wire.jagged`` for ``rlconform/wire/jagged.py``."""
    return ".".join(path.relative_to(ROOT.parent).with_suffix("").parts).removesuffix(".__init__")


@cache
def imports() -> dict[str, set[str]]:
    """By module, all package modules that it imports, including lazy and type-only imports."""
    paths = {module_name(path): path for path in ROOT.rglob("*.py")}
    return {
        name: {
            one if one in paths else one.rpartition(".")[0]
            for one in _imported(ast.parse(path.read_text("utf-8")))
        }
        - {name}
        for name, path in paths.items()
    }


def _imported(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (one.name for one in node.names if one.name.startswith("rlconform."))
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("rlconform"):
            yield from (f"{node.module}.{one.name}" for one in node.names)


def part_of(module: str) -> str:
    """The part that contains a module: the first name after ``rlconform``, or ""."""
    return module.partition(".")[2].partition(".")[0]


def test_every_import_leads_to_a_lower_part() -> None:
    wrong = [
        f"{module} imports {imported}"
        for module, all_imported in imports().items()
        for imported in all_imported
        if (part := part_of(module)) != (other := part_of(imported))
        and other
        and other not in HELPERS
        and other not in (_CONTRACT if part in HELPERS else MAY_IMPORT[part])
    ]
    assert not wrong


def test_no_imports_form_a_circle() -> None:
    try:
        TopologicalSorter(imports()).prepare()
    except CycleError as error:
        pytest.fail(" <- ".join(error.args[1]))


def test_relative_imports_are_not_used() -> None:
    """The tests above only find absolute imports."""
    relative = [
        str(path)
        for path in ROOT.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.ImportFrom) and node.level
    ]
    assert not relative


def test_imports_are_found_lazy_ones_as_well() -> None:
    """Without this, the tests above could pass because they find no imports."""
    source = "def f():\n    from rlconform.wire import jagged\n    import rlconform.plane.columns\n"
    assert set(_imported(ast.parse(source))) == {"rlconform.wire.jagged", "rlconform.plane.columns"}
    assert "rlconform.cli.certify" in imports()["rlconform.cli"]
