"""The page is one file without network access that shows a vendor's strings as text."""

from __future__ import annotations

import re
from base64 import b64decode
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from matplotlib.ticker import EngFormatter

from rlconform._resources import resource_dir
from rlconform.bench.document import BenchDocument
from rlconform.bench.report import html as page
from rlconform.bench.report.charts import Chart, Place, draw, styles_of
from rlconform.bench.report.headline import headline
from rlconform.bench.report.pivot import Entry, PivotCell, pivot
from rlconform.bench.report.tables import absolute_tables, ratio_tables

VOID = {"meta", "link", "br", "img", "hr", "input"}
HOSTILE = "<script>alert(1)</script> \"' & $x$ {{ 7*7 }} \N{CJK UNIFIED IDEOGRAPH-6C34}"


class Reader(HTMLParser):
    """Parses a page: elements with attributes, text, and whether all elements are closed."""

    def __init__(self) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.text: list[str] = []
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)

    def said(self) -> str:
        return " ".join(" ".join(self.text).split())

    def plots(self) -> list[str]:
        """The SVG texts of the page's images."""
        return [
            b64decode(attributes["src"].removeprefix("data:image/svg+xml;base64,")).decode()
            for tag, attributes in self.elements
            if tag == "img"
        ]

    def count(self, tag: str) -> int:
        return sum(name == tag for name, _ in self.elements)


@pytest.fixture(scope="module")
def document() -> BenchDocument:
    text = (resource_dir("fixtures") / "bench" / "bench.json").read_text("utf-8")
    return BenchDocument.model_validate_json(text)


@pytest.fixture(scope="module")
def html(document: BenchDocument) -> str:
    return page.render_page(document)


@pytest.fixture(scope="module")
def whole(html: str) -> Reader:
    return read(html)


def read(html: str) -> Reader:
    reader = Reader()
    reader.feed(html)
    reader.close()
    assert reader.open == []
    return reader


def renamed(document: BenchDocument, old: str, new: str) -> BenchDocument:
    """``document`` with another spec, name and reason for one target, wherever they occur."""

    def of(rows: list[Any]) -> list[Any]:
        return [r.model_copy(update={"target": new}) if r.target == old else r for r in rows]

    changes = {"spec": new, "name": new, "vendor": new, "version": new, "reason": new}
    return document.model_copy(
        update={name: of(getattr(document, name)) for name in ("operations", "growth", "wake")}
        | {
            "claim_rate": of(document.claim_rate),
            "targets": [
                t.model_copy(update=changes | {"status": "failed"}) if t.spec == old else t
                for t in document.targets
            ],
        }
    )


def test_every_table_and_plot_is_on_the_page_ratios_first(
    document: BenchDocument, html: str
) -> None:
    titles = [table.title for table in [*ratio_tables(document), *absolute_tables(document)]]
    places = [
        re.search(f"<(h3|details)[^>]*>(<summary>)?{re.escape(title)}<", html) for title in titles
    ]
    assert all(places)
    assert all(a.start() < b.start() for a, b in pairwise(places) if a and b)
    assert [plot.count("<svg") for plot in read(html).plots()] == [1] * 6


def test_the_page_needs_no_network(whole: Reader) -> None:
    assert whole.count("script") == whole.count("link") == whole.count("svg") == 0
    for _, attributes in whole.elements:
        for name, value in attributes.items():
            if name in {"src", "href", "xlink:href", "action"}:
                assert value.startswith(("data:image/svg+xml;base64,", "#"))
            assert "url(" not in value
    styles = "".join(whole.text)
    assert "@import" not in styles
    assert "url(" not in styles
    policies = [a["content"] for tag, a in whole.elements if tag == "meta" and "content" in a]
    assert "default-src 'none'; style-src 'unsafe-inline'; img-src data:" in policies
    for plot in whole.plots():
        for _, attributes in read(plot).elements:
            assert attributes.get("xlink:href", "#").startswith("#")
            assert not any(re.search(r"url\((?!#)", value) for value in attributes.values())


def test_the_page_opens_with_its_result_and_a_contents_list(
    document: BenchDocument, html: str, whole: Reader
) -> None:
    assert html.index(headline(document)) < html.index("<h2")
    links = [a["href"][1:] for tag, a in whole.elements if tag == "a"]
    titles = {table.key for table in [*ratio_tables(document), *absolute_tables(document)]}
    assert titles | {"measured", "how", "ratios", "figures", "batches"} <= set(links)
    assert set(links) <= {attributes.get("id") for _, attributes in whole.elements}


def test_the_result_names_the_cheapest_plane_first(document: BenchDocument) -> None:
    assert headline(document).startswith(
        "Cost of a batch in copies of as many bytes, the cheapest plane first: memory † put 1.42 "
        "to 60.5, get 1.20 to 56.8; acme/shm put 2.62 to 1,490"
    )
    assert headline(document).endswith("; failed: umbrella/grid.")


def test_a_run_without_a_comparison_says_so(document: BenchDocument) -> None:
    empty = document.model_copy(update={"operations": []})
    assert headline(empty).startswith("Nothing was compared with a copy of the same bytes")


def test_a_vendors_strings_are_text(document: BenchDocument) -> None:
    reader = read(page.render_page(renamed(document, "umbrella/grid", HOSTILE)))
    assert reader.count("script") == 0
    said = reader.said()
    assert f"failed: {HOSTILE}" in said
    assert said.count(HOSTILE) > 5  # tables and reasons; the template did not run
    legends = [plot for plot in reader.plots() if HOSTILE[:20] in read(plot).said()]
    assert legends
    assert all(read(plot).count("script") == 0 for plot in legends)


def test_a_target_has_one_colour_everywhere(document: BenchDocument, html: str) -> None:
    drawn = "".join(read(html).plots()).lower()
    styles = styles_of([target.label for target in document.targets])
    assert len({colour for colour, _ in styles.values()}) == len(styles)
    for label, (colour, _) in styles.items():
        swatches = re.findall(
            rf'<i class="swatch" style="background:(#\w+)"></i>{re.escape(label)}<', html
        )
        assert set(swatches) == {colour}
        assert colour.lower() in drawn, label


def test_colour_and_marker_together_are_unique() -> None:
    styles = styles_of([f"target {number}" for number in range(50)])
    assert len(set(styles.values())) == 50


def test_a_lost_target_keeps_its_colour(document: BenchDocument, html: str) -> None:
    rest = [row for row in document.operations if row.target != "acme/shm"]
    lost = page.render_page(document.model_copy(update={"operations": rest}))
    swatches = [
        set(re.findall(r'<i class="swatch" style="background:(#\w+)"></i>([^<]+)<', made))
        for made in (html, lost)
    ]
    assert swatches[0] == swatches[1]


def test_the_page_shows_refusals_failures_and_single_process_targets(whole: Reader) -> None:
    said = whole.said()
    assert "failed: its process ended by signal 11 (SIGSEGV) during get of llama8b" in said
    assert "CapacityExceeded: 210.6 MB asked for, storage_capacity leaves 134.2 MB" in said
    assert "within one process †" in said
    assert "Example CPU 9000 @ 2.90GHz, 8 cores, 31.2 GiB" in said
    assert "no figure" in whole.plots()[0]


@pytest.mark.parametrize(
    ("changes", "banner"),
    [({"complete": False}, "Partial. The run was interrupted"), ({"quick": True}, "A quick run:")],
)
def test_a_partial_or_quick_run_has_a_banner(
    document: BenchDocument, whole: Reader, changes: dict[str, Any], banner: str
) -> None:
    assert banner not in whole.said()
    assert banner in read(page.render_page(document.model_copy(update=changes))).said()


def test_a_run_that_measured_nothing_has_a_page(document: BenchDocument) -> None:
    empty = ("shapes", "memcpy", "operations", "claim_rate", "growth", "wake", "targets")
    reader = read(page.render_page(document.model_copy(update={name: [] for name in empty})))
    assert reader.count("img") == 0
    assert "Nothing was measured" in reader.said()


def test_one_target_on_one_shape_has_a_page(document: BenchDocument) -> None:
    rows = [r for r in document.operations if (r.target, r.shape) == ("memory", "tiny")]
    alone = document.model_copy(
        update={
            "targets": document.targets[:1],
            "shapes": document.shapes[:1],
            "memcpy": document.memcpy[:1],
            "operations": rows,
            "claim_rate": [],
            "growth": [],
            "wake": [],
        }
    )
    reader = read(page.render_page(alone))
    assert reader.count("img") == 3
    assert "target against target" not in reader.said()


def test_a_document_always_makes_the_same_page(
    document: BenchDocument, html: str, tmp_path: Path
) -> None:
    page.write_page(document, tmp_path / "bench.html")
    assert (tmp_path / "bench.html").read_text("utf-8") == html


@pytest.mark.parametrize("low", [0.0, -1.0])
def test_figures_below_zero_or_at_it_do_not_break_a_plot(low: float) -> None:
    cells = [PivotCell("x", drawn=(2.0, low, 3.0)), PivotCell("y", drawn=(2.0, 1.0, 3.0))]
    entries = [Entry(("a",), cell.text, cell) for cell in cells]
    chart = Chart(lambda target, column: Place("", column, target), "s", EngFormatter(), "")
    svg = [
        draw(pivot("key", "Title", "How to read it.", ("Target",), shown), chart, {"a": ("r", "o")})
        for shown in (entries[:1], entries)
    ]
    assert svg[0] == ""
    assert "<svg" in svg[1]


def test_a_plot_has_a_text_for_screen_readers(document: BenchDocument, whole: Reader) -> None:
    alts = [attributes["alt"] for tag, attributes in whole.elements if tag == "img"]
    titles = {f"Plot: {t.title}" for t in [*ratio_tables(document), *absolute_tables(document)]}
    assert len(alts) == 6
    assert set(alts) <= titles
