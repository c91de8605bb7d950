"""The README agrees with the code."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from rlconform._resources import resource_dir
from rlconform.contract import load_requirements
from rlconform.grpo.config import load_config
from rlconform.mutants.registry import all_mutants
from rlconform.selftest.kill_matrix import matrix_of, render_markdown

README = resource_dir("suites").parent / "README.md"

pytestmark = pytest.mark.skipif(
    not README.is_file(), reason="an installed wheel carries the suites without the README"
)


def test_its_example_is_the_one_that_is_tested() -> None:
    example = (resource_dir("fixtures") / "planes" / "acme_target.py").read_text("utf-8")
    assert f"```python\n{example}```" in README.read_text("utf-8")
    assert len(example.splitlines()) <= 40


def test_its_files_in_docs_exist() -> None:
    named = set(re.findall(r"\]\((docs/[^)]+)\)", README.read_text("utf-8")))
    assert named
    assert [name for name in named if not (README.parent / name).is_file()] == []


def test_folders_that_it_names_exist() -> None:
    named = re.findall(r"^\| (`.*?`(?:, `.*?`)*) \|", README.read_text("utf-8"), re.MULTILINE)
    folders = [folder for cell in named for folder in re.findall(r"`(.*?)`", cell)]
    assert len(folders) > 5
    assert [f for f in folders if not (README.parent / Path(f)).exists()] == []


@pytest.mark.parametrize("page", ["README.md", "docs/grpo.md"])
def test_runs_that_it_shows_are_configured(page: str) -> None:
    text = (README.parent / page).read_text("utf-8")
    shown = re.findall(r"^rlconform train (.*?)(?:  +#.*)?$", text, re.MULTILINE)
    assert shown
    for line in shown:
        source, *overrides = line.split()
        load_config(source, overrides)  # raises if a key or a value is invalid


def test_requirements_that_it_names_exist() -> None:
    named = set(re.findall(r"\b[A-Z][A-Z0-9]*-\d\d\b", README.read_text("utf-8")))
    assert named
    assert named <= load_requirements().keys()


def test_the_docs_have_the_matrix_of_mutants_as_it_is_declared() -> None:
    mutants = {name: mutant for name, (_, mutant) in all_mutants().items()}
    table = render_markdown(matrix_of(load_requirements(), mutants))
    page = (README.parent / "docs" / "mutants.md").read_text("utf-8")
    assert page.endswith(f"\n\n{table}"), "`rlconform self-test` writes this table: self-test.md"
