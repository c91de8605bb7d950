"""The docs agree with the repository: links have targets, and generated pages are current."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from rlconform._resources import resource_dir
from rlconform.contract import load_requirements
from rlconform.mutants.registry import all_mutants
from rlconform.selftest.evidence import evidence_of
from rlconform.selftest.requirement_pages import pages, trainer_defects_page, write_pages

ROOT = resource_dir("suites").parent
WRITTEN = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])


@pytest.mark.parametrize("page", WRITTEN, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_to_files(page: Path) -> None:
    links = re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text("utf-8"))
    local = [link for link in links if "://" not in link]
    assert [link for link in local if not (page.parent / link).exists()] == []


def test_the_requirement_pages_are_current() -> None:
    folder = ROOT / "docs" / "requirements"
    written = {path.name: path.read_text("utf-8") for path in folder.glob("*.md")}
    stale = [name for name, text in pages().items() if written.get(name) != text]
    assert stale == [], "expected the pages that `nox -s docs` writes; got others"
    assert written.keys() == pages().keys()


def test_the_page_of_the_trainers_defects_is_current() -> None:
    written = (ROOT / "docs" / "trainer_defects.md").read_text("utf-8")
    assert written == trainer_defects_page(), "expected what `nox -s docs` writes; got another page"


def test_pages_of_removed_sections_are_deleted(tmp_path: Path) -> None:
    (tmp_path / "gone.md").write_text("# GONE\n")
    write_pages(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == pages().keys()


def test_a_page_leads_from_the_id_to_checks_and_mutants() -> None:
    page = pages()["get.md"]
    section = page[page.index("## GET-04") : page.index("## GET-05")]
    evidence = evidence_of(load_requirements()["GET-04"])
    assert evidence.requirement.sentence in section
    for check in evidence.checks:
        assert f"(../../{check.partition('::')[0]})" in section
    assert evidence.checks
    assert evidence.mutants
    assert all(f"(../../{mutant.file})" in section for mutant in evidence.mutants)


def test_the_mutants_read_from_source_are_those_that_can_be_opened() -> None:
    read = {
        (mutant.name, requirement.id, mutant.file)
        for requirement in load_requirements().values()
        for mutant in evidence_of(requirement).mutants
    }
    assert read == {
        (name, requirement, spec.partition(":")[0].replace(".", "/") + ".py")
        for name, (spec, mutant) in all_mutants().items()
        for requirement in mutant.fails
    }


def test_evidence_names_files_that_exist() -> None:
    for requirement in load_requirements().values():
        evidence = evidence_of(requirement)
        named = {check.partition("::")[0] for check in evidence.checks}
        named |= {mutant.file for mutant in evidence.mutants}
        assert [path for path in named if not (ROOT / path).is_file()] == []
