"""The ``bench`` command: measures planes, writes and prints the figures."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from rlconform._exit_codes import ExitCode
from rlconform.cli.console import fail, new_console
from rlconform.cli.output_folder import check_writable
from rlconform.cli.ray_address import RayAddress, use_ray_at
from rlconform.contract import ConfigError

if TYPE_CHECKING:  # measuring imports torch, which takes seconds
    from rlconform.bench.document import BenchDocument


EPILOG = (
    "Examples:\n\n"
    "rlconform bench memory --quick\n\n"
    "rlconform bench transfer_queue/simple my_adapter:TARGET --shape llama8b --out reports\n\n"
    "rlconform bench --show reports/bench.json\n\n"
    "Exit codes: 0 measured, 1 partial or a target lost, 2 the kit failed, 3 nothing measured."
)


def bench(
    targets: Annotated[
        list[str] | None,
        typer.Argument(metavar="TARGET...", help="Built-in names, entry points, module:attribute."),
    ] = None,
    shape: Annotated[
        list[str] | None, typer.Option(help="Measure only this shape; may be repeated.")
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Fewer turns and rows; shows orders of magnitude.")
    ] = False,
    out: Annotated[Path, typer.Option(help="Folder for bench.json and the page.")] = Path(
        "rlconform-bench"
    ),
    show: Annotated[
        Path | None, typer.Option(help="Print a bench.json again and write its page beside it.")
    ] = None,
    ray_address: RayAddress = None,
) -> None:
    """Measure planes in alternation, and compare them with a plain copy of the same bytes."""
    console = new_console()
    use_ray_at(ray_address)
    try:
        if (show is None) == (not targets):
            raise ConfigError("give targets to measure, or a document to --show")
        if show and (shape or quick):
            raise ConfigError("--show prints what was measured: leave out --shape and --quick")
        folder = show.parent if show else out
        check_writable(folder)
        document = _read(show) if show else _measure(console, targets or [], shape or [], quick)
    except ConfigError as error:
        fail(f"bench: {error}")
    _present(console, document, folder, write=show is None)
    raise typer.Exit(_exit_code(document))


def _measure(console: Console, targets: list[str], names: list[str], quick: bool) -> BenchDocument:
    from rlconform.bench.plan import load_plan, load_shape, shape_names  # noqa: PLC0415
    from rlconform.bench.runner import BenchProgress, BenchRunner  # noqa: PLC0415 - imports torch

    shapes = [load_shape(name, quick) for name in dict.fromkeys(names or shape_names())]
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # a cancelled job reports too
    with BenchProgress(console) as progress:
        return BenchRunner(targets, shapes, load_plan(quick), quick, progress).measure()


def _read(path: Path) -> BenchDocument:
    from rlconform._files import parse_model, read_text  # noqa: PLC0415 - only --show needs it
    from rlconform.bench.document import BenchDocument  # noqa: PLC0415

    text = read_text(path, "name a bench.json")
    return parse_model(BenchDocument, text, f"{path}: not a document of a bench run")


def _present(console: Console, document: BenchDocument, folder: Path, write: bool) -> None:
    from rlconform.bench.report.console import print_document, write_page  # noqa: PLC0415

    folder.mkdir(parents=True, exist_ok=True)
    if write:
        (folder / "bench.json").write_text(document.to_json(), "utf-8")
    print_document(console, document)
    write_page(console, document, folder / "bench.html")
    console.print(f"written to {folder}", markup=False, highlight=False, soft_wrap=True)


def _exit_code(document: BenchDocument) -> ExitCode:
    if not any((document.operations, document.claim_rate, document.growth, document.wake)):
        return ExitCode.NOTHING_RAN
    lost = any(target.status == "failed" for target in document.targets)
    return ExitCode.FAILURE if lost or not document.complete else ExitCode.SUCCESS
