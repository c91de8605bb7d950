"""Measures how the reference GRPO learns, and where the time of a step goes on each plane.

    python benchmarks/training.py                       docs/grpo: training.json, two plots
    python benchmarks/training.py my_adapter:TARGET     a plane of your own

One Ray and one set of actors per trainer serve all runs, one after the other; the machine should
be otherwise idle. Learning is measured on the first plane only, because all planes train alike.
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from matplotlib.figure import Figure
from rich.console import Console
from rich.table import Table

from rlconform.backends.ray_runtime import ensure_ray
from rlconform.certify.target import open_target
from rlconform.grpo.actors import RunActors
from rlconform.grpo.config import ClusterConfig, load_config
from rlconform.grpo.rollout.plane_worker import PlaneRolloutWorker
from rlconform.grpo.rollout.worker import RolloutWorker
from rlconform.grpo.trainers.base import Trainer
from rlconform.grpo.trainers.legacy import LegacyTrainer
from rlconform.grpo.trainers.plane import PlaneTrainer
from rlconform.grpo.training_loop import fit
from rlconform.grpo.workers.plane_policy_worker import PlanePolicyWorker
from rlconform.grpo.workers.policy_worker import PolicyWorker

Metrics = list[dict[str, float]]

PLANES = ("ray_store", "transfer_queue/simple", "transfer_queue/mooncake_cpu")
LEARNING = [("tiny_llama_copy", seed) for seed in range(3)] + [("tiny_moe_copy", 0)]
RANKS = "cluster.dp_size=2"
#: The timed run, with a reference policy; its first steps warm up.
TIMED = (RANKS, "grpo.max_num_steps=14", "loss_fn.reference_policy_kl_penalty=0.01")
WARM_UP = 2

console = Console(width=None if sys.stdout.isatty() else 140)


def main(
    planes: Annotated[
        list[str] | None, typer.Argument(help="Planes that several processes can use.")
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder for the results.")] = Path("docs/grpo"),
) -> None:
    """Train, measure, and draw the plots."""
    timed: dict[str, Metrics] = {}
    learned: dict[str, Metrics] = {}
    with ensure_ray(object_store_bytes=2**28):
        cluster = ClusterConfig(dp_size=2)
        in_memory = RunActors(PolicyWorker, RolloutWorker, cluster)
        through_plane = RunActors(PlanePolicyWorker, PlaneRolloutWorker, cluster)
        timed["in memory"] = run(LegacyTrainer(load_config("tiny_llama_copy", TIMED), in_memory))
        for name in planes or PLANES:
            client = open_target(name)
            attach = partial(open_target, name, bootstrap=False)
            config = load_config("tiny_llama_copy", TIMED)
            timed[name] = run(PlaneTrainer(config, through_plane, client, attach))
            for model, seed in [] if learned else LEARNING:
                config = load_config(model, [RANKS, f"grpo.seed={seed}"])
                trainer = PlaneTrainer(config, through_plane, client, attach)
                learned[f"{model}, seed {seed}"] = run(trainer)
            client.close()
        through_plane.shutdown()
        in_memory.shutdown()
    out.mkdir(parents=True, exist_ok=True)
    (out / "training.json").write_text(json.dumps({"timed": timed, "learned": learned}) + "\n")
    draw_rewards(learned).savefig(out / "reward.svg")
    draw_times(timed).savefig(out / "step_time.svg")
    console.print(time_table(timed))
    for name, metrics in learned.items():
        rewards = [step["train/reward"] for step in metrics]
        console.print(f"{name}: {statistics.fmean(rewards[-10:]):.3f} over the last 10 steps")


def run(trainer: Trainer) -> Metrics:
    """Run to the end; return the metrics of each step."""
    try:
        return [report.metrics for report in fit(trainer)]
    finally:
        trainer.shutdown()


def median(metrics: Sequence[dict[str, float]], name: str) -> float:
    """Median over the steps after the warm-up; 0 if the run has no such metric."""
    return statistics.median(step.get(name, 0.0) for step in metrics[WARM_UP:])


def time_table(timed: dict[str, Metrics]) -> Table:
    """Medians in seconds: the step, the plane's calls in it, and its stages."""
    stages = list(timed_stages(timed))
    table = Table("Rows travel", "Step, s", "In the plane, s", *stages, box=None, pad_edge=False)
    for name, metrics in timed.items():
        values = [median(metrics, f"time/{stage}") for stage in ("step", *stages)]
        values.insert(1, median(metrics, "plane/s"))
        table.add_row(name, *(f"{value:.3f}" for value in values))
    return table


def timed_stages(timed: dict[str, Metrics]) -> dict[str, None]:
    """Names of the stages in the order of a step through a plane."""
    longest = max(timed.values(), key=lambda metrics: len(metrics[0]))
    names = (name for name in longest[0] if name.startswith("time/") and name != "time/step")
    return dict.fromkeys(name.removeprefix("time/") for name in names)


def draw_rewards(learned: dict[str, Metrics]) -> Figure:
    """Plot the mean reward of each step, one line per run."""
    figure = Figure(figsize=(7, 3.6), layout="constrained")
    axes = figure.subplots()
    for name, metrics in learned.items():
        axes.plot([step["train/reward"] for step in metrics], label=name, linewidth=1.2)
    axes.axhline(0.9, color="grey", linestyle=":", linewidth=1, label="to reach, 0.9")
    axes.set(xlabel="step", ylabel="mean reward", ylim=(0, 1.02), title="Learning to copy a digit")
    axes.legend(frameon=False, fontsize=8)
    return figure


def draw_times(timed: dict[str, Metrics]) -> Figure:
    """Plot a step's time by stage for each plane, with the plane's calls hatched."""
    figure = Figure(figsize=(7, 3.2), layout="constrained")
    axes = figure.subplots()
    names = list(timed)[::-1]
    left = [0.0] * len(names)
    for stage in timed_stages(timed):
        widths = [median(timed[name], f"time/{stage}") for name in names]
        axes.barh(names, widths, left=left, label=stage, height=0.55)
        left = [start + width for start, width in zip(left, widths, strict=True)]
    plane = [median(timed[name], "plane/s") for name in names]
    axes.barh(
        names, plane, height=0.18, facecolor="none", edgecolor="black", hatch="////",
        label="of it in the plane's calls",
    )  # fmt: skip
    axes.set(xlabel="seconds of a step (median)", title="Where the time of a step goes")
    figure.legend(loc="outside lower center", frameon=False, fontsize=7, ncols=5)
    return figure


if __name__ == "__main__":
    typer.run(main)
