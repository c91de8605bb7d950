"""``benchmarks.field``: which reports count, and the page that is made of them."""

from __future__ import annotations

import ast
import shutil
from pathlib import Path

import pytest

from benchmarks.field.certified import ADAPTERS, FieldResult, arguments, certified, kept
from benchmarks.field.page import field_page
from benchmarks.field.planes import FieldPlane, chosen, load_planes
from rlconform._resources import resource_dir
from rlconform.backends import BUILTIN

PLANES = load_planes()
ACME = FieldPlane(name="acme", about="an example", target="acme.plane:TARGET")


@pytest.fixture
def folder(right_report: Path, tmp_path: Path) -> Path:
    """A folder in which the plane ``acme`` has a report."""
    shutil.copytree(right_report, tmp_path / "acme" / "report")
    return tmp_path


def test_the_planes_have_names_of_their_own() -> None:
    assert len({plane.name for plane in PLANES}) == len(PLANES) >= 12


@pytest.mark.parametrize("plane", [plane for plane in PLANES if plane.target], ids=str)
def test_each_target_exists(plane: FieldPlane) -> None:
    module, _, name = plane.target.partition(":")
    if plane.target not in BUILTIN:
        source = (ADAPTERS / f"{module}.py").read_text("utf-8")
        assigned = [node.targets[0] for node in ast.parse(source).body if type(node) is ast.Assign]
        assert name in [target.id for target in assigned if isinstance(target, ast.Name)]


def test_a_plane_has_a_target_or_a_reason() -> None:
    with pytest.raises(ValueError, match="expected either target or not_run"):
        FieldPlane(name="acme", about="neither")


def test_an_unknown_name_is_refused() -> None:
    with pytest.raises(ValueError, match=r"expected one of memory, .*; got acme"):
        chosen(PLANES, ["memory", "acme"])
    assert [plane.name for plane in chosen(PLANES, ["memory"])] == ["memory"]
    assert chosen(PLANES, []) == PLANES


@pytest.mark.parametrize(("jobs", "options"), [(None, []), (2, ["--jobs", "2"])])
def test_only_a_plane_that_names_jobs_sets_them(jobs: int | None, options: list[str]) -> None:
    given = arguments(ACME.model_copy(update={"jobs": jobs}), Path("out"))
    assert given == ["acme.plane:TARGET", "--level", "unit", "--out", "out", *options]


def test_a_report_of_an_earlier_run_counts(folder: Path) -> None:
    assert kept(ACME, folder).report is not None


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"level": "functional"}, "its report is of level unit: run it again"),
        ({"target": "acme.plane:OTHER"}, "its report is not whole: run it again"),
        ({"name": "other"}, "it was not run yet"),
        ({"target": "", "not_run": "it needs a GPU"}, "it needs a GPU"),
    ],
)
def test_another_report_does_not_count(folder: Path, change: dict[str, str], reason: str) -> None:
    result = kept(ACME.model_copy(update=change), folder)
    assert (result.report, result.reason) == (None, reason)


def test_a_plane_without_its_checkout_is_a_row_with_the_reason(tmp_path: Path) -> None:
    plane = ACME.model_copy(update={"checkout": "nemo-rl"})
    result = certified(plane, tmp_path, {}, 60.0)
    assert result.reason == kept(plane, tmp_path).reason == "it needs --nemo-rl PATH, a checkout"
    assert "| it needs --nemo-rl PATH, a checkout |" in field_page([result])


def test_the_page_has_verdict_causes_and_matrix(folder: Path) -> None:
    page = field_page([kept(ACME, folder), *(kept(plane, folder) for plane in PLANES)])
    row = next(line for line in page.splitlines() if line.startswith("| `acme` |"))
    assert "| 1.4 | unit | 2026-11-26 | not certified |" in row
    assert "2 FAIL" in row
    assert "- **GET-04**: expected an error; got 2 rows" in page
    assert "| GET-04 An unknown id raises | FAIL |" in page
    torchstore = next(line for line in page.splitlines() if "`torchstore" in line)
    assert "libcuda" in torchstore


def test_the_page_names_no_folder_of_the_machine() -> None:
    reason = 'it raised: File "/home/me/.venv/lib/python3.11/site-packages/acme/store.py"'
    page = field_page([FieldResult(ACME, None, reason)])
    assert 'File "site-packages/acme/store.py"' in page


def test_the_page_in_the_docs_has_all_planes() -> None:
    page = (resource_dir("suites").parent / "docs" / "field.md").read_text("utf-8")
    assert [plane.name for plane in PLANES if f"| `{plane.name}` |" not in page] == []
