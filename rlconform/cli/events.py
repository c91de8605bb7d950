"""The commands ``schema``, ``events export`` and ``events import``."""

from __future__ import annotations

import json
import sys
from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from rlconform.certify.report.document import report_schema
from rlconform.cli.console import fail, new_console
from rlconform.events.perfetto import write_trace
from rlconform.events.reader import LogReader, log_files
from rlconform.events.schema import json_schema
from rlconform.integrations.prime_rl import COVERAGE, PrimeRun, import_prime_rl

SCHEMA_EPILOG = (
    "Examples:\n\n"
    "rlconform schema events > events.schema.json\n\n"
    "rlconform schema report > report.schema.json"
)
EXPORT_EPILOG = (
    "Example: rlconform events export --to perfetto run/events --out trace.json\n\n"
    "Open the file at ui.perfetto.dev, or in chrome://tracing."
)
IMPORT_EPILOG = (
    "Example: rlconform events import --from prime-rl outputs/run --out run/events --group-size 8 "
    "--staleness-bound 8\n\n"
    "Then: rlconform check-run run/events. docs/integrations.md says which rules are decided."
)


class SchemaName(Enum):
    """What has a JSON schema."""

    EVENTS = "events"
    REPORT = "report"


class LogFormat(Enum):
    """Logs that can be imported."""

    PRIME_RL = "prime-rl"


class TraceFormat(Enum):
    """What a log can be exported to."""

    PERFETTO = "perfetto"


app = typer.Typer(help="Work with the events of a run.")


def schema(
    name: Annotated[SchemaName, typer.Argument(help="What to describe.")],
) -> None:
    """Print a JSON schema: that of a line of a file of events, or that of report.json."""
    described = json_schema() if name is SchemaName.EVENTS else report_schema()
    sys.stdout.write(json.dumps(described, indent=2) + "\n")


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
    except ValueError as error:
        fail(f"events export: {error}")
    except OSError as error:
        fail(f"events export: {error.filename}: {error.strerror}; name another --out")
    if count == 1:  # the track of groups, which every trace has
        reason = f"; {reader.defects[0].message}" if reader.defects else ""
        fail(f"events export: no event can be read in {', '.join(map(str, paths))}{reason}")
    console = new_console()
    console.print(f"{out}: {count:,} trace events of {len(reader.files)} processes", markup=False)
    for defect in reader.defects:
        console.print(f"{defect.path.name}: {defect.message}", markup=False)


@app.command("import", epilog=IMPORT_EPILOG)
def import_log(
    source: Annotated[Path, typer.Argument(metavar="DIR", help="The output folder of the run.")],
    from_: Annotated[LogFormat, typer.Option("--from", help="The framework.")],  # noqa: ARG001
    out: Annotated[Path, typer.Option(help="The folder to write events to.")],
    run: Annotated[str | None, typer.Option(help="Name of the run; by default its id.")] = None,
    group_size: Annotated[
        int | None, typer.Option(min=1, help="Traces of a group that can be trained on.")
    ] = None,
    staleness_bound: Annotated[
        int | None, typer.Option(min=0, help="The run's max_off_policy_steps.")
    ] = None,
) -> None:
    """Import the log of a run of another framework, for check-run."""
    try:
        log = import_prime_rl(source, out, PrimeRun(run, group_size, staleness_bound))
    except FileExistsError as error:
        fail(f"events import: {error.filename} is there already; name another --out")
    except ValueError as error:
        fail(f"events import: {error}")
    except OSError as error:
        fail(f"events import: {error.filename}: {error.strerror}; name another --out")
    console = new_console()
    console.print(f"{log.path}: {log.count:,} events", markup=False)
    console.print(f"Decided are {', '.join(COVERAGE.decided)}. Not decided:", markup=False)
    for rule, why in COVERAGE.undecided.items():
        console.print(f"  {rule}: {why}", markup=False)


@app.callback()
def root() -> None:
    """Work with the events of a run."""
