"""What stands behind a requirement: incidents, checks and mutants, each with its file.

``rlconform explain`` prints it for one requirement; ``pages`` renders it for all of them. It lies
on the self-test's floor because it needs both the checks and the mutants.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from rlconform._resources import resource_dir
from rlconform.certify.requirement_index import checks_by_requirement
from rlconform.contract import Requirement, load_requirements
from rlconform.contract.incidents import Incident, load_incidents
from rlconform.mutants.registry import all_mutants


@dataclass(frozen=True)
class MutantSource:
    """A mutant that a requirement must kill.

    Attributes:
        name: Its short name, as ``rlconform self-test --mutant`` takes it.
        file: Path of its module, from the root of the checkout.
        defect: What is wrong with it, in one sentence.
        alone: Whether this requirement is the only one that must kill it.
    """

    name: str
    file: str
    defect: str
    alone: bool


@dataclass(frozen=True)
class Evidence:
    """A requirement with what supports it.

    ``checks`` are ``path::function``, the path from the root of the checkout.
    """

    requirement: Requirement
    incidents: tuple[Incident, ...]
    checks: tuple[str, ...]
    mutants: tuple[MutantSource, ...]


def evidence_of(requirement: Requirement) -> Evidence:
    """Everything that the requirement rests on, in the order of the files."""
    incidents = load_incidents()
    return Evidence(
        requirement,
        tuple(incidents[seen] for seen in requirement.seen),
        _checks().get(requirement.id, ()),
        _mutants().get(requirement.id, ()),
    )


def evidence_by_section() -> Mapping[str, tuple[Evidence, ...]]:
    """The evidence of all requirements, by section, in the contract's order."""
    sections: dict[str, list[Evidence]] = {}
    for requirement in load_requirements().values():
        sections.setdefault(requirement.section, []).append(evidence_of(requirement))
    return {section: tuple(rows) for section, rows in sections.items()}


@cache
def _checks() -> Mapping[str, tuple[str, ...]]:
    found: dict[str, list[str]] = {}
    for name, ids in checks_by_requirement(resource_dir("suites")).items():
        path = name if name.startswith("tests/") else f"suites/{name}"
        for requirement in ids:
            found.setdefault(requirement, []).append(path)
    return {requirement: tuple(sorted(paths)) for requirement, paths in found.items()}


@cache
def _mutants() -> Mapping[str, tuple[MutantSource, ...]]:
    found: dict[str, list[MutantSource]] = {}
    for name, (spec, mutant) in all_mutants().items():
        file = spec.partition(":")[0].replace(".", "/") + ".py"
        defect = " ".join(mutant.rationale.partition("\n\n")[0].split())
        for requirement in mutant.fails:
            source = MutantSource(name, file, defect, len(mutant.fails) == 1)
            found.setdefault(requirement, []).append(source)
    return {requirement: tuple(sources) for requirement, sources in found.items()}
