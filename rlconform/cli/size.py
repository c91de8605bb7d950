"""The ``size`` command: memory, capacity and ports that a recipe asks of its plane."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from rlconform._exit_codes import ExitCode
from rlconform.cli.console import fail, new_console
from rlconform.contract import ConfigError

if TYPE_CHECKING:  # recipes import torch, which takes seconds
    from rlconform.launch.sizing import Need, PlaneSize

EPILOG = (
    "Examples:\n\n"
    "rlconform size grpo-qwen3-30ba3b-2n8g-megatron-tp2-r3-ray_store\n\n"
    "rlconform size grpo-llama3.1-8b-instruct-2n8g-fsdp2-tq_simple --row-tokens 1500 "
    "grpo.num_prompts_per_step=128\n\n"
    "docs/recipes.md has the formula.\n\n"
    "Exit codes: 0 the recipe gives enough, or leaves it open, 1 it gives too little, 2 the recipe "
    "can't be used."
)


def size(
    recipe: Annotated[str, typer.Argument(help="A recipe's name, see docs/recipes.md.")],
    overrides: Annotated[
        list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="As of launch.")
    ] = None,
    row_tokens: Annotated[
        float | None,
        typer.Option(help="Mean tokens of a row; by default the longest that the recipe allows."),
    ] = None,
) -> None:
    """Print what a recipe's rows take in its plane, and whether the recipe gives it."""
    from rlconform.launch import sizing  # noqa: PLC0415 - imports torch
    from rlconform.launch.recipes import load_recipe  # noqa: PLC0415

    try:
        loaded = load_recipe(recipe, overrides or [])
        if not loaded.config.data_plane.enabled:
            raise ConfigError(f"{recipe} has no plane: append one, such as -ray_store")
        found = sizing.plane_size(loaded.config, row_tokens)
    except ConfigError as error:
        fail(f"size: {error}")
    console = new_console()
    needs = sizing.needs(loaded.config, found, loaded.job.object_store_bytes)
    _print_size(console, recipe, found)
    console.print(_needs_table(needs))
    for whose, which in sizing.ports(loaded.config).items():
        console.print(f"ports of {whose}: {which}", highlight=False, soft_wrap=True)
    short = [need for need in needs if not need.suffices]
    for need in short:
        console.print(f"[bold red]too small:[/] {escape(need.key)}", soft_wrap=True)
    raise typer.Exit(ExitCode.FAILURE if short else ExitCode.SUCCESS)


def _print_size(console: Console, recipe: str, size: PlaneSize) -> None:
    per_token = sum(size.token_bytes.values())
    console.print(
        f"{recipe}: {size.rows} rows x {bytes_text(size.bytes_per_row)} = "
        f"{bytes_text(size.total)} in the plane at once",
        highlight=False,
        soft_wrap=True,
    )
    columns = ", ".join(f"{name} {count}" for name, count in size.token_bytes.items())
    console.print(
        f"a row: {size.row_tokens:g} tokens x {per_token} bytes ({columns})",
        highlight=False,
        soft_wrap=True,
    )


def _needs_table(needs: list[Need]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("", "Needed", "Given", "Where"):
        table.add_column(heading, overflow="fold")
    for need in needs:
        text = bytes_text if need.what == "bytes" else "{:g}".format
        given = "open" if need.given is None else text(need.given)
        table.add_row(need.what, text(need.needed), given, escape(need.key))
    return table


def bytes_text(count: float) -> str:
    """Return a number of bytes with a unit, such as ``1.5 GiB``."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.3g} {unit}"
        count /= 1024
    return f"{count:.3g} TiB"
