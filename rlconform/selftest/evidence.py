"""Collects the evidence for each requirement: incidents, checks and mutants, with their files.

``rlconform explain`` prints one requirement's evidence; ``requirement_pages`` renders all.
Checks and mutants are read from their source, so that neither torch nor pytest is imported.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path

from rlconform._python_source import parse
from rlconform.certify.requirement_index import checks_of_suites
from rlconform.contract import Requirement, load_requirements
from rlconform.contract.incidents import Incident, load_incidents
from rlconform.mutants.mutant import mutant_name


@dataclass(frozen=True)
class MutantSource:
    """A mutant that a requirement must kill; ``file`` is relative to the root of the checkout.

    ``definition`` is its class or function in the file. ``defect`` is one sentence; ``alone`` says
    that no other requirement must kill it.
    """

    name: str
    file: str
    definition: str
    defect: str
    alone: bool


@dataclass(frozen=True)
class Evidence:
    """A requirement with its incidents, checks and mutants.

    ``checks`` are ``path::function``, with the path relative to the root of the checkout.
    """

    requirement: Requirement
    incidents: tuple[Incident, ...]
    checks: tuple[str, ...]
    mutants: tuple[MutantSource, ...]

    @property
    def why_no_mutant(self) -> str:
        """Why no mutant breaks the requirement; "" if one does."""
        instead = "rlconform's own functions are changed instead: docs/source_mutation.md."
        return "" if self.mutants else self.requirement.excluded or instead


def evidence_of(requirement: Requirement) -> Evidence:
    """Return the requirement with its incidents, checks and mutants, in file order."""
    incidents = load_incidents()
    return Evidence(
        requirement,
        tuple(incidents[seen] for seen in requirement.seen),
        _checks().get(requirement.id, ()),
        _mutants().get(requirement.id, ()),
    )


def evidence_by_section() -> Mapping[str, tuple[Evidence, ...]]:
    """Return the evidence of all requirements, by section, in the contract's order."""
    sections: dict[str, list[Evidence]] = {}
    for requirement in load_requirements().values():
        sections.setdefault(requirement.section, []).append(evidence_of(requirement))
    return {section: tuple(rows) for section, rows in sections.items()}


@cache
def _checks() -> Mapping[str, tuple[str, ...]]:
    found: dict[str, list[str]] = {}
    for name, ids in checks_of_suites().items():
        path = name if name.startswith("tests/") else f"suites/{name}"
        for requirement in ids:
            found.setdefault(requirement, []).append(path)
    return {requirement: tuple(sorted(paths)) for requirement, paths in found.items()}


@cache
def _mutants() -> Mapping[str, tuple[MutantSource, ...]]:
    """Return mutants by requirement, read from source because importing them takes seconds."""
    found: dict[str, list[MutantSource]] = {}
    package = files("rlconform.mutants")
    assert isinstance(package, Path)  # a folder, in a checkout and in a wheel
    for path in sorted(package.rglob("*.py")):
        file = f"rlconform/mutants/{path.relative_to(package).as_posix()}"
        for node in parse(path.read_text("utf-8")).body:
            if isinstance(node, ast.ClassDef | ast.FunctionDef):
                for requirement, source in _declared(node, file):
                    found.setdefault(requirement, []).append(source)
    return {requirement: tuple(sources) for requirement, sources in found.items()}


def _declared(
    node: ast.ClassDef | ast.FunctionDef, file: str
) -> Iterator[tuple[str, MutantSource]]:
    """Yield each requirement that a ``@..._mutant("ID", ...)`` decorator names, with the mutant."""
    for decorator in node.decorator_list:
        match decorator:
            case ast.Call(func=ast.Name(id=name), args=args) if name.endswith("mutant"):
                ids = [i for a in args if isinstance(a, ast.Constant) for i in str(a.value).split()]
                defect = " ".join((ast.get_docstring(node) or "").partition("\n\n")[0].split())
                source = MutantSource(
                    mutant_name(node.name), file, node.name, defect, len(ids) == 1
                )
                yield from ((requirement, source) for requirement in ids)
