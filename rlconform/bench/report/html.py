"""Renders a bench document as one HTML file: ratios, figures, plots, without network access.

It needs matplotlib, the extra ``bench``; nothing else in ``rlconform.bench`` does.
"""

from __future__ import annotations

from base64 import b64encode
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined

from rlconform.bench.document import BenchDocument
from rlconform.bench.report import plots, tables, units

#: Captions of the plots, by the key of the table that each is shown with.
CAPTIONS = {
    "costs": "Dashed: one copy of as many bytes into memory already touched. Whiskers: bounds "
    "from the quartiles.",
    "throughput": "Medians and quartiles. Ratios are relative to the copy shown here.",
    "latency": "The smallest batch: what a call costs before it carries much. A whisker reaches "
    "from the median to the p99.",
    "claim_rate": "Medians and quartiles. A flat line is a plane that more consumers don't speed "
    "up.",
    "growth": "Medians and quartiles. A flat line is a cost that doesn't depend on the other rows "
    "of the partition; a line that ends early is explained under Not measured.",
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
    drawn = {key: draw(document) for key, draw in plots.PLOTS.items()}
    styles = plots.styles(document)
    return environment.get_template("page.html.j2").render(
        document=document,
        names={spec: style.label for spec, style in styles.items()},
        colours={style.label: style.colour for style in styles.values()},
        mark=tables.MARK,
        ratio_tables=tables.ratio_tables(document),
        absolute_tables=tables.absolute_tables(document),
        gaps=tables.gaps(document),
        one_process=[t.spec for t in document.targets if tables.in_one_process(t)],
        captions=CAPTIONS,
        plots={key: _data_uri(svg) for key, svg in drawn.items() if svg},
    )


def write_page(document: BenchDocument, path: Path) -> None:
    """Write :func:`render_page`'s HTML to ``path``."""
    path.write_text(render_page(document), encoding="utf-8", errors="backslashreplace")


def _data_uri(svg: str) -> str:
    return f"data:image/svg+xml;base64,{b64encode(svg.encode()).decode()}"
