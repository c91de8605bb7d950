"""The ``soak`` command."""

from __future__ import annotations

import signal
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from rlconform._exit_codes import ExitCode
from rlconform._yaml import read_config
from rlconform.backends.ray_worker_server import NEEDED_BY_WORKERS, start_worker_server
from rlconform.certify.isolation.client_actor import NEEDED_BY_CLIENTS
from rlconform.cli.console import fail, new_console
from rlconform.cli.output_folder import check_writable
from rlconform.cli.ray_address import RayAddress, use_ray_at
from rlconform.contract import ConfigError, DataPlaneError

EPILOG = (
    "Examples:\n\n"
    "rlconform soak memory --minutes 1\n\n"
    "rlconform soak ray_store --minutes 20 --producers 6 --claimers 6 --readers 2\n\n"
    "rlconform soak my_adapter:TARGET --config plane.yaml --out soak-report\n\n"
    "Exit codes: 0 nothing lost and no process leaks, 1 otherwise or indeterminate, "
    "2 the target or the kit failed."
)


def soak(
    target: Annotated[str, typer.Argument(help="As for rlconform certify.")],
    minutes: Annotated[float, typer.Option(help="How long the load lasts.", min=0.02)] = 20.0,
    producers: Annotated[int, typer.Option(help="Processes that put.", min=1)] = 2,
    claimers: Annotated[int, typer.Option(help="Processes that claim, read, clear.", min=1)] = 2,
    readers: Annotated[int, typer.Option(help="Processes that read at random.", min=0)] = 1,
    config: Annotated[Path | None, typer.Option(help="YAML file for the target.")] = None,
    out: Annotated[Path, typer.Option(help="Folder for soak.json and soak.html.")] = Path(
        "rlconform-soak"
    ),
    seed: Annotated[int, typer.Option(help="Seeds the random reads.", min=0)] = 0,
    ray_address: RayAddress = None,
) -> None:
    """Put a plane under realistic load for minutes; check every byte, memory and descriptors."""
    console = new_console()
    use_ray_at(ray_address)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # a cancelled job reports too
    try:
        block = read_config(config)
        check_writable(out)
        if find_spec("ray"):  # before torch is loaded: a fork has only the thread that forks
            start_worker_server((*NEEDED_BY_WORKERS, *NEEDED_BY_CLIENTS))
        from rlconform.soak.dashboard import Dashboard  # noqa: PLC0415 - imports torch
        from rlconform.soak.report import write_soak  # noqa: PLC0415
        from rlconform.soak.run import SoakOptions, SoakRun  # noqa: PLC0415

        options = SoakOptions(target, minutes, producers, claimers, readers, block, seed)
        with Dashboard(console) as dashboard:
            state = SoakRun(options, dashboard.show).run()
    except (ConfigError, DataPlaneError) as error:
        fail(f"soak {target}: {error}")
    write_soak(state, out)
    verdict = state.verdict
    assert verdict is not None  # ``run`` judges whatever there is
    for text in state.ledger.texts[:5]:
        console.print(text, markup=False, soft_wrap=True)
    console.print(f"[bold]{verdict.answer.value}[/]: {escape('; '.join(verdict.reasons))}")
    console.print(f"written to {out / 'soak.html'}", markup=False, soft_wrap=True)
    raise typer.Exit(ExitCode.SUCCESS if verdict.answer.value == "pass" else ExitCode.FAILURE)
