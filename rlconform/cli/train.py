"""The ``train`` command."""

from __future__ import annotations

import logging
import signal
import sys
import threading
from contextlib import closing
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from rlconform._exit_codes import ExitCode
from rlconform.cli.console import fail, new_console
from rlconform.cli.output_folder import check_writable
from rlconform.cli.ray_address import RayAddress, use_ray_at
from rlconform.contract import ConfigError, DataPlaneError

if TYPE_CHECKING:  # the configuration imports torch, which takes seconds
    from rlconform.grpo.config import MasterConfig
    from rlconform.grpo.training_loop import StepReport


EPILOG = (
    "Examples:\n\n"
    "rlconform train tiny_llama_copy\n\n"
    "rlconform train tiny_moe_copy grpo.max_num_steps=20 policy.packing.mode=sequence_packing\n\n"
    "rlconform train tiny_llama_copy data_plane=transfer_queue_simple\n\n"
    "rlconform train tiny_llama_copy_async async_rl.sampler.name=windowed\n\n"
    "rlconform train my_run.yaml data_plane.enabled=false logger.log_dir=logs/legacy\n\n"
    "SIGUSR1 stops a run with checkpoints after its step; the same command goes on from there.\n\n"
    "Exit codes: 0 finished, 1 the run failed, 2 the configuration can't be used, 75 stopped by "
    "SIGUSR1, 130 interrupted."
)

#: Metrics in the line of a step, by heading.
_SHOWN = {
    "reward": "train/reward",
    "loss": "train/loss",
    "grad norm": "train/grad_norm",
    "s": "time/step",
    "s in plane": "plane/s",
    "staleness": "staleness/total/max",
    "validation": "val/reward",
}


def train(
    config: Annotated[
        str, typer.Argument(help="A YAML file, or the name of a reference configuration.")
    ],
    overrides: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[KEY=VALUE]...",
            help="e.g. grpo.max_num_steps=20; data_plane=NAME takes a whole block.",
        ),
    ] = None,
    ray_address: RayAddress = None,
) -> None:
    """Train a policy with GRPO, with batches in a data plane or in memory."""
    console = new_console()
    if missing := [name for name in ("ray", "transformers") if find_spec(name) is None]:
        fail(f'train: {" and ".join(missing)} not installed: pip install "rlconform[grpo]"')
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # a cancelled job cleans up too
    stop = threading.Event()
    signal.signal(signal.SIGUSR1, lambda *_: stop.set())
    use_ray_at(ray_address)
    try:
        finished = _train(console, config, overrides or [], stop)
    except ConfigError as error:
        fail(f"train: {error}")
    except (DataPlaneError, RuntimeError, ValueError) as error:
        fail(f"train: {type(error).__name__}: {error}", ExitCode.FAILURE)
    except KeyboardInterrupt:
        fail("train: interrupted", ExitCode.INTERRUPTED)
    if not finished:
        fail(
            "train: stopped by SIGUSR1 at a checkpoint; the same command goes on", ExitCode.STOPPED
        )


def _train(console: Console, source: str, overrides: list[str], stop: threading.Event) -> bool:
    """Run to the end, or until ``stop`` is set; return whether it is the end."""
    from rlconform.grpo.config import load_config  # noqa: PLC0415 - imports torch
    from rlconform.grpo.training_loop import train as run  # noqa: PLC0415

    logging.getLogger("torch.fx").setLevel(logging.ERROR)  # its warnings are not for users
    config = load_config(source, overrides)
    check_writable(Path(config.logger.log_dir), "logger.log_dir")
    console.print(_headline(config), highlight=False)
    columns = (TextColumn("step"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, disable=not sys.stdout.isatty()) as progress:
        finished = True  # also if a checkpoint had the last step
        bar = progress.add_task("steps", total=config.grpo.max_num_steps)
        with closing(run(config, stop)) as reports:  # an interrupt ends the run first
            for report in reports:
                progress.update(bar, completed=report.step)
                progress.console.print(_line(report), highlight=False)
                finished = not report.stopped
    console.print(f"metrics in {config.logger.log_dir}", highlight=False, soft_wrap=True)
    return finished


def _headline(config: MasterConfig) -> str:
    plane = config.data_plane
    engine = f"{plane.impl}/{plane.backend}" if plane.backend else plane.impl
    carried = f"through {engine}" if plane.enabled else "in memory (legacy)"
    ranks = config.cluster.dp_size * config.policy.megatron_cfg.replica_ranks
    ahead = "" if config.async_rl is None else f", asynchronous ({config.async_rl.arrangement})"
    return escape(
        f"{config.policy.model_name} on {config.data.task}: {config.grpo.max_num_steps} steps of "
        f"{config.grpo.rows_per_step} rows on {ranks} ranks, batches {carried}"
        f"{ahead}"
    )


def _line(report: StepReport) -> str:
    """Return the line of a step; a figure is in the same column in each, the last ones aside."""
    metrics = report.metrics
    shown = [f"{word} {metrics[name]:<9.4g}" for word, name in _SHOWN.items() if name in metrics]
    return escape(f"{report.step:>6}  {' '.join(shown)}".rstrip())
