"""The terminal shows the tables of a bench document and the progress of a run."""

from __future__ import annotations

from collections.abc import Callable
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from rlconform._resources import resource_dir
from rlconform.bench.document import BenchDocument, Summary
from rlconform.bench.report import console as report_console
from rlconform.bench.report import units
from rlconform.bench.report.pivot import Entry, pivot, ratio_cell, seconds_cell, throughput_cell
from rlconform.bench.report.ratios import Ratio
from rlconform.bench.report.tables import absolute_tables, gaps, ratio_tables
from rlconform.bench.runner import BenchProgress

EMPTY: dict[str, Any] = {
    name: [] for name in ("shapes", "memcpy", "operations", "claim_rate", "growth", "wake")
}


@pytest.fixture
def document() -> BenchDocument:
    text = (resource_dir("fixtures") / "bench" / "bench.json").read_text("utf-8")
    return BenchDocument.model_validate_json(text)


def summary(median: float) -> Summary:
    return Summary(
        n=7, median=median, p25=median / 2, p75=median * 2, p99=median * 9, min=0, max=median * 9
    )


def printed(document: BenchDocument, width: int = 120) -> str:
    console = Console(width=width, record=True, file=StringIO())
    report_console.print_document(console, document)
    return console.export_text()


def failing(document: BenchDocument, spec: str, **changes: Any) -> BenchDocument:
    targets = [t.model_copy(update=changes) if t.spec == spec else t for t in document.targets]
    return document.model_copy(update={"targets": targets})


@pytest.mark.parametrize(
    ("spell", "value", "text"),
    [
        (units.plain, 0, "0"),
        (units.plain, 0.012345, "0.0123"),
        (units.plain, 9.996, "10.0"),
        (units.plain, 1234.5, "1,230"),
        (units.plain, -20, "-20.0"),
        (units.plain, float("inf"), "Infinity"),
        (units.times, 8.3, "8.30\N{MULTIPLICATION SIGN}"),
        (units.duration, 12e-6, "12.0 \N{MICRO SIGN}s"),
        (units.duration, 999.6e-6, "1.00 ms"),
        (units.duration, 0.9996, "1.00 s"),
        (units.duration, 74.25, "74.2 s"),
        (units.size, 512, "512 B"),
        (units.size, 999_600, "1.00 MB"),
        (units.throughput, 8.76e9, "8.76 GB/s"),
    ],
)
def test_figures_are_formatted_with_three_digits_and_a_unit(
    spell: Callable[[float], str], value: float, text: str
) -> None:
    assert spell(value) == text


def test_a_shared_unit_is_written_once() -> None:
    assert seconds_cell(summary(2e-3)).spread == "1.00\N{EN DASH}4.00 ms"
    assert seconds_cell(summary(0.6)).spread == "300 ms\N{EN DASH}1.20 s"


def test_throughput_swaps_the_quartiles() -> None:
    cell = throughput_cell(8_000_000, summary(4e-3))
    assert (cell.text, cell.spread) == ("2.00 GB/s", "1.00\N{EN DASH}4.00 GB/s")


def test_zero_seconds_give_no_throughput() -> None:
    assert throughput_cell(1, summary(0)).kind == "gap"


def test_a_missing_entry_is_a_dash() -> None:
    cell = ratio_cell(Ratio(2, 1, 3))
    entries = [Entry(("a",), "x", cell), Entry(("b",), "y", cell)]
    table = pivot("key", "Title", "How to read it.", ("Target",), entries)
    assert table.headings == ("Target", "x", "y")
    assert [[c.text for c in row.cells] for row in table.rows] == [
        ["2.00\N{MULTIPLICATION SIGN}", "\N{EN DASH}"],
        ["\N{EN DASH}", "2.00\N{MULTIPLICATION SIGN}"],
    ]


def test_ratios_are_printed_before_figures(document: BenchDocument) -> None:
    text = printed(document)
    shown = [table for table in ratio_tables(document) if not table.minor]
    places = [text.index(f"\n{t.title}\n") for t in [*shown, *absolute_tables(document)]]
    assert places == sorted(places)
    assert len(places) == 10


def test_rows_are_sorted_by_shape_and_target(
    document: BenchDocument,
) -> None:
    turned = document.model_copy(update={"operations": document.operations[::-1]})
    for made in (document, turned):
        labels = [row.labels for row in ratio_tables(made)[0].rows]
        assert labels[:3] == [("tiny", "memory †"), ("tiny", "acme/shm"), ("tiny", "globex/store")]
        assert [shape for shape, _ in labels] == sorted(
            (shape for shape, _ in labels), key=[s.name for s in document.shapes].index
        )


def test_a_comparison_shows_each_pair_once_from_the_faster_side(document: BenchDocument) -> None:
    table = next(t for t in ratio_tables(document) if t.key == "put_compared")
    figures = {
        (*row.labels, heading): cell.text
        for row in table.rows
        for heading, cell in zip(table.headings[2:], row.cells, strict=True)
    }
    assert figures["llama8b", "acme/shm", "globex/store"] == "9.99\N{MULTIPLICATION SIGN}"
    assert ("llama8b", "globex/store", "acme/shm") not in figures  # slower than all others
    assert figures["llama8b", "acme/shm", "memory †"] == ""
    assert figures["llama8b", "acme/shm", "umbrella/grid"] == "\N{EN DASH}"


def test_failures_and_refusals_have_a_reason(document: BenchDocument) -> None:
    text = " ".join(printed(document).split())
    assert "umbrella/grid 3.0, across processes, failed: its process ended by signal 11" in text
    assert "CapacityExceeded: the partition is full at 100,000 rows" in text
    assert "4 of 5 targets measured on 5 shapes in 743 s" in text


def test_equal_refusals_are_one_row(document: BenchDocument) -> None:
    assert [row.labels for row in gaps(document).rows] == [
        ("umbrella/grid", "the target"),
        ("globex/store", "put, get, get_in_order, claim, clear on qwen30b-r3"),
        ("globex/store", "put beside 100,000 rows"),
    ]


def test_a_plane_of_one_process_is_marked_everywhere(document: BenchDocument) -> None:
    assert document.targets[0].label == "memory †"
    tables = [*ratio_tables(document), *absolute_tables(document)]
    labels = {label for table in tables for row in table.rows for label in row.labels}
    assert "memory †" in labels
    assert "memory" not in labels
    assert "† measured within one process" in printed(document)


def test_a_target_that_never_opened_is_not_called_single_process(document: BenchDocument) -> None:
    lost = failing(document, "umbrella/grid", name="", version="", processes=False)
    assert lost.targets[-1].label == "umbrella/grid"
    assert "umbrella/grid: failed: its process" in " ".join(printed(lost).split())


@pytest.mark.parametrize("width", [80, 120, 200])
def test_no_line_is_wider_than_the_terminal(document: BenchDocument, width: int) -> None:
    assert max(map(len, printed(document, width).splitlines())) <= width


def test_a_narrow_terminal_keeps_every_figure(document: BenchDocument) -> None:
    wide, narrow = printed(document, 300), printed(document, 110)
    put = ratio_tables(document)[0].rows[0].cells[0]
    assert f"{put.text} {put.spread}" in wide
    assert put.text in narrow
    assert put.spread in narrow


def test_a_vendors_text_is_not_markup(document: BenchDocument) -> None:
    hostile = failing(document, "umbrella/grid", name="[bold]x[/]", reason="[red]no[/red] [/]")
    text = printed(hostile)
    assert "[bold]x[/]" in text
    assert "[red]no[/red] [/]" in text


def test_quick_and_partial_runs_are_labelled(document: BenchDocument) -> None:
    assert "quick" not in printed(document)
    assert "Partial" not in printed(document)
    text = printed(document.model_copy(update={"quick": True, "complete": False}))
    assert "A quick run" in text
    assert "Partial" in text


def test_a_document_without_figures_is_printed(document: BenchDocument) -> None:
    text = printed(document.model_copy(update=EMPTY))
    assert "Cost in copies" not in text
    assert "4 of 5 targets measured on 0 shapes" in text


def test_without_matplotlib_there_is_no_page_and_a_hint(
    document: BenchDocument, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        report_console, "find_spec", lambda name: None if name == "matplotlib" else object()
    )
    console = Console(width=60, record=True, file=StringIO())
    assert report_console.write_page(console, document, tmp_path / "bench.html") is False
    text = console.export_text()
    assert text.strip() == (
        "No page with plots: it needs matplotlib; run `pip install 'rlconform[bench]'`."
    )
    assert list(tmp_path.iterdir()) == []


def shown(run: Callable[[BenchProgress], object], terminal: bool = False) -> str:
    console = Console(width=100, record=True, file=StringIO(), force_terminal=terminal)
    with BenchProgress(console) as progress:
        run(progress)
    return console.export_text()


def test_lines_that_stay_name_the_target_and_the_reason() -> None:
    def run(progress: BenchProgress) -> None:
        progress.line("ready", "acme/[x]")
        progress.line("failed", "b", "signal 11")
        progress.line("refused", "c", "put vlm", "CapacityExceeded")

    assert [line.split() for line in shown(run).splitlines() if line.strip()] == [
        ["ready", "acme/[x]"],
        ["failed", "b:", "signal", "11"],
        ["refused", "c:", "put", "vlm:", "CapacityExceeded"],
    ]


def test_a_measurement_is_a_line_where_no_bar_shows_it() -> None:
    assert shown(lambda progress: progress.measurement("llama8b")).split() == ["measure", "llama8b"]
    assert "llama8b" not in shown(lambda progress: progress.measurement("llama8b"), terminal=True)
