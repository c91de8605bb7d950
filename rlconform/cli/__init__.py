"""The ``rlconform`` command: each module parses the options of a command, calls it and prints."""

from __future__ import annotations

import sys
from typing import Annotated, cast

import typer

import rlconform
from rlconform._exit_codes import ExitCode
from rlconform.cli import (
    bench,
    certify,
    check_metrics,
    check_r3,
    check_run,
    diff,
    events,
    launch,
    matrix,
    new_adapter,
    requirements,
    self_test,
    size,
    soak,
    train,
    verify,
    waivers,
)
from rlconform.cli.console import new_console, report

app = typer.Typer(
    help="Conformance of RL data planes.", no_args_is_help=True, rich_markup_mode="rich",
    pretty_exceptions_enable=False,
)  # fmt: skip

#: Typer exports this subclass alone, be it of click's errors or of those in its own copy of click.
_USAGE_ERROR = cast(type[typer.BadParameter], typer.BadParameter.__bases__[0])


def _version(wanted: bool) -> None:
    if wanted:
        new_console().print(rlconform.__version__)
        raise typer.Exit


@app.callback()
def root(
    _version_wanted: Annotated[
        bool,
        typer.Option("--version", callback=_version, is_eager=True, help="Print the version."),
    ] = False,
) -> None:
    """Check an RL data plane against its contract."""


app.command("new-adapter", epilog=new_adapter.EPILOG)(new_adapter.new_adapter)
app.command("certify", epilog=certify.EPILOG)(certify.certify)
app.command("verify", epilog=verify.EPILOG)(verify.verify)
app.command("matrix", epilog=matrix.EPILOG)(matrix.matrix)
app.command("diff", epilog=diff.EPILOG)(diff.diff)
app.command("waivers", epilog=waivers.EPILOG)(waivers.waivers)
app.command("bench", epilog=bench.EPILOG)(bench.bench)
app.command("soak", epilog=soak.EPILOG)(soak.soak)
app.command("self-test", epilog=self_test.EPILOG)(self_test.self_test)
app.command("train", epilog=train.EPILOG)(train.train)
app.command("launch", epilog=launch.EPILOG)(launch.launch)
app.command("judge", epilog=launch.JUDGE_EPILOG)(launch.judge)
app.command("size", epilog=size.EPILOG)(size.size)
app.command("check-metrics", epilog=check_metrics.EPILOG)(check_metrics.check_metrics)
app.command("check-run", epilog=check_run.EPILOG)(check_run.check_run)
app.command("check-r3", epilog=check_r3.EPILOG)(check_r3.check_r3)
app.command("schema", epilog=events.SCHEMA_EPILOG)(events.schema)
app.add_typer(events.app, name="events")
app.command("list", epilog=requirements.LIST_EPILOG)(requirements.list_requirements)
app.command("explain", epilog=requirements.EPILOG)(requirements.explain)


def main() -> None:
    """Run the ``rlconform`` command, as its entry point.

    Typer shows a wrong option in a box of five lines; here it is one sentence, like any mistake.
    """
    try:
        code = app(sys.argv[1:] or ["--help"], prog_name="rlconform", standalone_mode=False)
    except _USAGE_ERROR as error:
        where = " ".join(error.ctx.command_path.split()[1:]) if error.ctx else ""
        message = " ".join(error.format_message().split()).rstrip(".")
        message = message.replace("Value error, ", "")  # pydantic's, of an option's choices
        message = f"{where}: {message}" if where else message
        sys.exit(report(f"{message}; see rlconform {where} --help".replace("  ", " ")))
    except (KeyboardInterrupt, typer.Abort):
        sys.exit(report("interrupted", ExitCode.INTERRUPTED))
    sys.exit(code)
