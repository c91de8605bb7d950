"""The ``new-adapter`` command."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from rlconform.cli.console import fail, new_console
from rlconform.contract import ConfigError
from rlconform.new_adapter import NewAdapter, write_package

EPILOG = "Examples:\n\nrlconform new-adapter acme-shm\n\nrlconform new-adapter acme-shm --out acme"


def new_adapter(
    name: Annotated[str, typer.Argument(help="Of the package and the target, e.g. acme-shm.")],
    out: Annotated[
        Path | None, typer.Option(help="A new or empty folder; default: NAME, here.")
    ] = None,
) -> None:
    """Write the package of an adapter: client, target, test, CI workflow, configuration."""
    folder = out or Path(name)
    try:
        adapter = NewAdapter(name)
        written = write_package(adapter, folder)
    except ConfigError as error:
        fail(str(error))
    console = new_console()
    for path in written:
        console.print(escape(str(path)), highlight=False, soft_wrap=True)
    console.print(
        f"\nWrite the methods in {escape(str(folder / adapter.package / 'client.py'))}, then\n"
        f"  cd {escape(str(folder))} && rlconform certify {adapter.target} --config plane.yaml",
        highlight=False,
        soft_wrap=True,
    )
