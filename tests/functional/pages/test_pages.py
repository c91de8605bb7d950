"""The pages of reports in a real browser: they open, filter and stay quiet at every width.

With ``RLCONFORM_ARTIFACTS`` in the environment, the screenshots are kept in that folder.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from rlconform._resources import resource_dir
from rlconform.bench.document import BenchDocument
from rlconform.bench.report.html import write_page
from rlconform.cli import app
from rlconform.contract import load_requirements
from rlconform.mutants.registry import all_mutants
from rlconform.selftest.classify import TrialResult
from rlconform.selftest.kill_matrix import matrix_of, render_html

from .chromium import Chromium

#: The rows of the report that are visible, and those that are open, by id.
VISIBLE = "[...document.querySelectorAll('[data-row]')].filter(r => !r.hidden).map(r => r.id)"
OPEN = "[...document.querySelectorAll('details.row')].filter(r => r.open).map(r => r.id)"
#: The rows of the matrix that are visible.
MATRIX_ROWS = (
    "[...document.querySelectorAll('[data-row]')].filter(r => !r.hidden)"
    ".map(r => r.querySelector('b').innerText)"
)
CHECKS = "test_stat or test_get.py"


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[Chromium]:
    with Chromium(tmp_path / "profile") as opened:
        yield opened


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    return Path(os.environ.get("RLCONFORM_ARTIFACTS", tmp_path)) / "pages"


def choose(browser: Chromium, outcome: str) -> None:
    browser.run(f"document.querySelector('button[data-outcome={outcome}]').click()")


def choose_section(browser: Chromium, section: str) -> None:
    menu = "document.querySelector('select')"
    browser.run(f"{menu}.value = '{section}'; {menu}.dispatchEvent(new Event('change'))")


def check_texts(browser: Chromium, page: Path) -> None:
    """The plane's markup is text: neither its script nor its image has run."""
    browser.open(page)
    assert browser.run("document.title").startswith("hostile/<script>")
    assert browser.run("document.querySelector('h1').innerText").startswith("hostile/<script>")
    assert browser.run("document.querySelectorAll('img').length") == 0
    assert browser.run("document.body.innerText.split('<script>').length") > 10


def check_filters(browser: Chromium, page: Path, broken: list[str]) -> None:
    """Buttons and menu combine, the address keeps the choice, and an id opens its row."""
    browser.open(page)
    everything = browser.run(VISIBLE)
    assert {"GET-04", "GET-01", "STAT-01"} <= set(everything)
    choose(browser, "FAIL")
    assert browser.run(VISIBLE) == broken
    choose_section(browser, "STAT")
    in_stat = [one for one in broken if one.startswith("STAT")]
    assert browser.run(VISIBLE) == in_stat
    shown = browser.run("document.querySelector('.shown').innerText")
    assert shown == f"{len(in_stat)} of {len(everything)}"
    browser.open(page, fragment=browser.run("location.hash"))
    assert browser.run(VISIBLE) == in_stat
    choose(browser, "FAIL")
    choose_section(browser, "")
    assert browser.run(VISIBLE) == everything
    search = "document.querySelector('input')"
    browser.run(f"{search}.value = 'An unknown id'; {search}.dispatchEvent(new Event('input'))")
    assert "GET-04" in browser.run(VISIBLE)
    assert len(browser.run(VISIBLE)) < len(everything)
    browser.open(page, fragment="#GET-04")
    assert browser.run(OPEN) == ["GET-04"]


def check_looks(browser: Chromium, page: Path, pictures: Path) -> None:
    """Nothing is wider than the window, and a dark system gets a dark page."""
    for name, width, dark in (("wide", 1200, False), ("phone", 390, False), ("dark", 1200, True)):
        browser.open(page, width, dark=dark)
        assert browser.run("document.documentElement.scrollWidth") <= width, name
        light = (
            browser.run("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
        )
        assert light is not dark
        browser.screenshot(pictures / f"{page.stem}-{name}.png")


def check_print(browser: Chromium, page: Path, broken: list[str], pictures: Path) -> None:
    """What is broken is printed open."""
    browser.open(page)
    assert browser.run(OPEN) == []
    assert browser.pdf(pictures / f"{page.stem}.pdf").read_bytes().startswith(b"%PDF")
    assert sorted(browser.run(OPEN)) == sorted(broken)


def test_pages_open_filter_and_run_no_planted_script(
    certify: Callable[..., Any], browser: Chromium, pictures: Path, tmp_path: Path
) -> None:
    done = certify("hostile:says_script", "-k", CHECKS)
    broken = [one for one, outcome in done.outcomes().items() if outcome == "FAIL"]
    assert {"GET-04", "STAT-01"} <= set(broken)
    page = done.out / "report.html"
    check_texts(browser, page)
    check_filters(browser, page, broken)
    check_looks(browser, page, pictures)
    check_print(browser, page, broken, pictures)

    right = certify("memory", "-k", CHECKS, out=tmp_path / "right")
    matrix, diff = tmp_path / "matrix.html", tmp_path / "diff.html"
    folders = [str(right.out), str(done.out)]
    for typed, code in ((["matrix", *folders, "--out", str(matrix)], 0),
                        (["diff", *folders, "--html", str(diff)], 1)):  # fmt: skip
        assert CliRunner().invoke(app, typed).exit_code == code
    for one in (matrix, diff):
        check_looks(browser, one, pictures)
    browser.open(matrix)
    choose(browser, "broken")
    assert sorted(browser.run(MATRIX_ROWS)) == sorted(broken)
    assert browser.errors == [], "expected a silent console"


@pytest.fixture
def bench_page(tmp_path: Path) -> Path:
    text = (resource_dir("fixtures") / "bench" / "bench.json").read_text("utf-8")
    page = tmp_path / "bench.html"
    write_page(BenchDocument.model_validate_json(text), page)
    return page


@pytest.fixture
def self_test_page(tmp_path: Path) -> Path:
    """The page of a self-test of 100 mutants: a picture of all is 60,000 pixels high."""
    mutants = {name: held for name, (_, held) in sorted(all_mutants().items())[:100]}
    tried = [TrialResult(name, "killed", {}) for name in mutants]
    header = {"created": "now", "kit": "1", "host": "here", "summary": ""}
    page = tmp_path / "self-test.html"
    page.write_text(render_html(matrix_of(load_requirements(), mutants, tried), mutants, header))
    return page


def test_the_pages_of_bench_and_self_test_fit_every_width(
    browser: Chromium, bench_page: Path, self_test_page: Path, pictures: Path
) -> None:
    for page in (bench_page, self_test_page):
        check_looks(browser, page, pictures)
        browser.open(page)
        assert browser.pdf(pictures / f"{page.stem}.pdf").read_bytes().startswith(b"%PDF")
    matrix = "document.querySelector('.grid').getBoundingClientRect()"
    browser.open(self_test_page)
    assert browser.run(f"{matrix}.right") <= 1200  # no requirement is cut
    assert browser.run("document.querySelector('.wide').scrollHeight") > 1200  # nor a mutant
    assert browser.run("getComputedStyle(document.querySelector('.wide')).overflowY") == "visible"
    browser.open(bench_page, 390)
    assert browser.run("[...document.querySelectorAll('table')].every(t => t.closest('.wide'))")
    assert browser.errors == [], "expected a silent console"
