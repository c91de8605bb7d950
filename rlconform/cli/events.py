"""The commands ``schema`` and ``events export``."""

from __future__ import annotations

import json
import sys
from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from rlconform.cli.console import fail, new_console
from rlconform.events.perfetto import write_trace
from rlconform.events.reader import LogReader, log_files
from rlconform.events.schema import json_schema

SCHEMA_EPILOG = "Example: rlconform schema events > events.schema.json"
EXPORT_EPILOG = (
    "Example: rlconform events export --to perfetto run/events --out trace.json\n\n"
    "Open the file at ui.perfetto.dev, or in chrome://tracing."
)


class SchemaName(Enum):
    """What has a JSON schema."""

    EVENTS = "events"


class TraceFormat(Enum):
    """What a log can be exported to."""

    PERFETTO = "perfetto"


app = typer.Typer(help="Work with the events of a run.", no_args_is_help=True)


def schema(
    name: Annotated[SchemaName, typer.Argument(help="What to describe.")],  # noqa: ARG001
) -> None:
    """Print a JSON schema: that of a line of a file of events."""
    sys.stdout.write(json.dumps(json_schema(), indent=2) + "\n")


@app.command("export", epilog=EXPORT_EPILOG)
def export(
    paths: Annotated[
        list[Path], typer.Argument(metavar="DIR|FILE...", help="Files of events, or their folder.")
    ],
    to: Annotated[TraceFormat, typer.Option(help="The format.")],  # noqa: ARG001
    out: Annotated[Path, typer.Option(help="The file to write.")] = Path("trace.json"),
) -> None:
    """Export the events of a run as a trace."""
    try:
        reader = LogReader(log_files(paths))
        with out.open("wb") as file:
            count = write_trace(reader, file)
    except (OSError, ValueError) as error:
        fail(f"events export: {error}")
    console = new_console()
    console.print(f"{out}: {count:,} trace events of {len(reader.files)} processes", markup=False)
    for defect in reader.defects:
        console.print(f"{defect.path.name}: {defect.message}", markup=False)


@app.callback()
def root() -> None:
    """Work with the events of a run."""
