"""Renders a bench document as one HTML file: ratios, figures, charts, without network access.

It needs matplotlib, from the extra ``bench``.
"""

from __future__ import annotations

from base64 import b64encode
from pathlib import Path

from rlconform._page import render_template
from rlconform.bench.document import MARK, BenchDocument
from rlconform.bench.report import units
from rlconform.bench.report.charts import charts, draw, styles_of
from rlconform.bench.report.headline import headline
from rlconform.bench.report.tables import absolute_tables, gaps, ratio_tables


def render_page(document: BenchDocument) -> str:
    """Return the page as HTML, with every string of the document escaped."""
    ratios, absolute, how = ratio_tables(document), absolute_tables(document), charts(document)
    styles = styles_of([target.label for target in document.targets])
    drawn = {t.key: draw(t, how[t.key], styles) for t in [*ratios, *absolute] if t.key in how}
    return render_template(
        "rlconform.bench.report",
        "page.html.j2",
        {"plain": units.plain, "size": units.size},
        document=document,
        mark=MARK,
        headline=headline(document),
        colours={label: colour for label, (colour, _) in styles.items()},
        ratio_tables=ratios,
        absolute_tables=absolute,
        gaps=gaps(document),
        captions={key: chart.caption for key, chart in how.items()},
        plots={
            key: f"data:image/svg+xml;base64,{b64encode(svg.encode()).decode()}"
            for key, svg in drawn.items()
            if svg
        },
    )


def write_page(document: BenchDocument, path: Path) -> None:
    """Write :func:`render_page`'s HTML to ``path``."""
    path.write_text(render_page(document), encoding="utf-8", errors="backslashreplace")
