"""One HTML file that shows a bench document: ratios, figures, plots; it asks no network.

Needs matplotlib, the extra ``bench``; nothing else in ``rlconform.bench`` does.
"""

from __future__ import annotations

from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from rlconform.bench.document import BenchDocument
from rlconform.bench.report import plots, tables, units

#: Below the plot that stands with the table of this key.
CAPTIONS = {
    "costs": "Dashed: one copy of as many bytes into memory already touched. Whiskers: bounds "
    "from the quartiles.",
    "throughput": "Medians and quartiles. The copy is the one that ratios are set against.",
    "latency": "The smallest batch: what a call costs before it carries much. A whisker reaches "
    "from the median to the p99.",
    "claim_rate": "Medians and quartiles. A flat line is a plane that more consumers don't speed "
    "up.",
    "growth": "Medians and quartiles. A flat line is a cost that doesn't depend on what else the "
    "partition holds; a line that ends early is told of under Not measured.",
}


def render_page(document: BenchDocument) -> str:
    """The page as HTML; every string of the document is escaped."""
    environment = Environment(
        loader=PackageLoader("rlconform.bench.report", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"plain": units.plain, "size": units.size}
    drawn = {
        "costs": plots.cost_plot(document),
        "throughput": plots.throughput_plot(document),
        "latency": plots.latency_plot(document),
        "claim_rate": plots.claim_rate_plot(document),
        "growth": plots.growth_plot(document),
    }
    return environment.get_template("page.html.j2").render(
        document=document,
        looks=plots.looks(document),
        mark=tables.MARK,
        ratio_tables=tables.ratio_tables(document),
        absolute_tables=tables.absolute_tables(document),
        gaps=tables.gaps(document),
        alone=[t.spec for t in document.targets if tables.in_one_process(t)],
        captions=CAPTIONS,
        # matplotlib has escaped what the figures quote.
        plots={name: Markup(svg) for name, svg in drawn.items() if svg},
    )


def write_page(document: BenchDocument, path: Path) -> None:
    """Write :func:`render_page`'s HTML to ``path``."""
    path.write_text(render_page(document), encoding="utf-8", errors="backslashreplace")
