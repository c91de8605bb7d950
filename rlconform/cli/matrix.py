"""The ``matrix`` command: planes by requirement, as a page and as Markdown."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from rlconform.certify.report.document import read_report
from rlconform.certify.report.page.comparison_pages import matrix_markdown, names_of, render_matrix
from rlconform.cli.console import fail, new_console
from rlconform.cli.pages import write_page
from rlconform.contract import ConfigError

EPILOG = (
    "Examples:\n\n"
    "rlconform matrix reports/tq reports/mooncake reports/acme\n\n"
    "rlconform matrix reports/* --out field.html --markdown docs/field.md"
)


def matrix(
    reports: Annotated[
        list[Path], typer.Argument(metavar="DIR...", help="The --out folders of certify.")
    ],
    out: Annotated[Path, typer.Option(help="The page to write.")] = Path("matrix.html"),
    markdown: Annotated[Path | None, typer.Option(help="Write Markdown here, too.")] = None,
) -> None:
    """Show several reports side by side: planes by requirement."""
    try:
        documents = [read_report(place) for place in reports]
        write_page(out, render_matrix(documents))
        if markdown is not None:
            write_page(markdown, matrix_markdown(documents))
    except ConfigError as error:
        fail(f"matrix: {error}")
    console = new_console()
    for name, document in zip(names_of(documents), documents, strict=True):
        counts = Counter(part.outcome for part in document.requirements)
        tally = ", ".join(f"{count} {outcome}" for outcome, count in counts.most_common())
        text = f"{name}: {document.verdict.verdict} at level {document.header.level}; {tally}"
        console.print(escape(text), highlight=False, soft_wrap=True)
    for path in filter(None, (out, markdown)):
        console.print(f"written: {escape(str(path))}", soft_wrap=True)
