"""Measures asynchronous against synchronous GRPO: the time of a step, and what is learned.

    python benchmarks/async_training.py              docs/grpo: async.json, three plots
    python benchmarks/async_training.py --no-learn   the step times and their plots alone

Both trainers train on the same samples, group by group, through ``ray_store``, in one process group
after the other in one run. Generation is configured to cost as much as training, by real work: the
rows are long enough. The machine should be otherwise idle and have two cores.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine

from rlconform.backends.ray_runtime import ensure_ray
from rlconform.certify.target import open_target
from rlconform.contract import DataPlaneClient
from rlconform.grpo.actors import RunActors
from rlconform.grpo.config import ClusterConfig, MasterConfig, load_config
from rlconform.grpo.rollout.plane_worker import PlaneRolloutWorker
from rlconform.grpo.trainers.async_plane import AsyncPlaneTrainer
from rlconform.grpo.trainers.plane import PlaneTrainer
from rlconform.grpo.training_loop import fit
from rlconform.grpo.workers.plane_policy_worker import PlanePolicyWorker

#: Sizes with which generation and training of the synchronous run take about the same time, by
#: work enough that calls and puts cost little beside it.
TIMED = (
    "grpo.max_num_steps=20",
    "grpo.num_prompts_per_step=8",
    "grpo.num_generations_per_prompt=64",
    "generation.batch_size=64",
    "generation.max_new_tokens=48",
    "policy.max_total_sequence_length=56",
    "policy.train_micro_batch_size=8",
    "policy.logprob_batch_size=8",
    "policy.optimizer.lr=1.0e-6",
)
#: One group is generated at a time, as in the synchronous run, and goes on during a weight sync:
#: the trainer would wait for its end otherwise.
UNPAUSED = ("async_rl.max_inflight_prompts=1", "async_rl.in_flight_weight_updates=true")
WARM_UP = 4
SYNC, ASYNC = "tiny_llama_copy", "tiny_llama_copy_async"
LEARNING_PLANES = ("ray_store", "transfer_queue/simple")

#: Keeps labels away from the edge of a plot.
_PADDED = ConstrainedLayoutEngine(w_pad=0.12, h_pad=0.08)

Spans = list[tuple[str, float, float]]
Metrics = list[dict[str, float]]


def main(
    out: Annotated[Path, typer.Option(help="Folder for the results.")] = Path("docs/grpo"),
    learn: Annotated[bool, typer.Option(help="Train to the end at staleness 0, 1 and 2.")] = True,
) -> None:
    """Measure, and draw the plots."""
    with ensure_ray(object_store_bytes=2**28):
        cluster = ClusterConfig(dp_size=1)
        actors = RunActors(PlanePolicyWorker, PlaneRolloutWorker, cluster, groups_in_flight=8)
        client = open_target("ray_store")
        spans: dict[str, Spans] = {}
        timed: dict[str, Metrics] = {}
        for name in (SYNC, ASYNC):
            config = load_config(name, [*TIMED, *_async_only(name)])
            timed[name], spans[name] = run(config, actors, client, "ray_store")
        learned = curves(actors, client) if learn else {}
        client.close()
        actors.shutdown()
    sync, asynchronous = (_median(timed[name], "time/step") for name in (SYNC, ASYNC))
    stages = [name for name in timed[SYNC][-1] if name.startswith("time/") and name != "time/step"]
    figures = {
        "synchronous_s": sync,
        "asynchronous_s": asynchronous,
        "ratio": asynchronous / sync,
        "synchronous_stages_s": {name: _median(timed[SYNC], name) for name in stages},
    }
    print(json.dumps(figures, indent=1))
    out.mkdir(parents=True, exist_ok=True)
    draw_busy(spans).savefig(out / "async_busy.svg")
    if learned:
        draw_curves(learned).savefig(out / "async_reward.svg")
        figures["learned"] = {
            name: statistics.fmean(rewards[-10:]) for name, rewards in learned.items()
        }
        print(json.dumps(figures["learned"], indent=1))
    (out / "async.json").write_text(json.dumps(figures, indent=1) + "\n", "utf-8")


def run(
    config: MasterConfig, actors: RunActors, client: DataPlaneClient, plane: str
) -> tuple[Metrics, Spans]:
    """Train to the end; return the metrics of each step, and who was busy when."""
    trainer_class = PlaneTrainer if config.async_rl is None else AsyncPlaneTrainer
    attach = partial(open_target, plane, bootstrap=False)
    trainer = trainer_class(config, actors, client, attach)
    trainer.timer.spans = spans = []
    try:
        return [report.metrics for report in fit(trainer)], spans
    finally:
        trainer.shutdown()


def curves(actors: RunActors, client: DataPlaneClient) -> dict[str, list[float]]:
    """Train synchronously and at staleness 0, 1 and 2 on each plane; return the rewards."""
    learned = {}
    for plane in LEARNING_PLANES:
        owner = client if plane == "ray_store" else open_target(plane)
        configs = {"synchronous": load_config(SYNC)}
        for window in (0, 1, 2):
            overrides = [
                f"async_rl.sampler.max_lookahead_versions={window}",
                f"async_rl.max_buffered_rollouts={8 * (window + 1)}",
            ]
            configs[f"staleness {window}"] = load_config(ASYNC, overrides)
        for name, config in configs.items():
            metrics, _ = run(config, actors, owner, plane)
            learned[f"{plane}, {name}"] = [step["train/reward"] for step in metrics]
        if owner is not client:
            owner.close()
    return learned


def _async_only(name: str) -> Sequence[str]:
    """Return overrides of the asynchronous run: the synchronous loss, and no pause."""
    truncation = "loss_fn.truncated_importance_sampling"
    off = ("loss_fn.use_importance_sampling_correction=false", f"{truncation}_type=null")
    return () if name == SYNC else (*off, f"{truncation}_ratio=null", *UNPAUSED)


def _median(metrics: Metrics, name: str) -> float:
    return statistics.median(step[name] for step in metrics[WARM_UP:])


def draw_busy(spans: dict[str, Spans]) -> Figure:
    """Plot when generation, training and weight sync were busy, over four steps of each trainer."""
    figure = Figure(figsize=(8, 4), layout=_PADDED)
    figure.suptitle("What is busy during four steps")
    colours = {"generation": "C0", "training": "C1", "weight sync": "C2"}
    for axes, (name, all_spans) in zip(
        figure.subplots(2, 1, sharex=True), spans.items(), strict=True
    ):
        syncs = [start for stage, start, _ in all_spans if stage in ("refit", "weight_sync")]
        first, last = syncs[WARM_UP], syncs[WARM_UP + 4]
        for stage, start, end in all_spans:
            lane = {"generation": "generation", "refit": "weight sync"}.get(stage, "training")
            lane = "weight sync" if stage == "weight_sync" else lane
            if start >= first and end <= last + 0.05:
                axes.broken_barh(
                    [(start - first, end - start)],
                    (list(colours).index(lane), 0.8),
                    color=colours[lane],
                    alpha=0.5,
                )
        axes.set_yticks([0.4, 1.4, 2.4], list(colours))
        axes.set_title("synchronous" if name == SYNC else "asynchronous, staleness 1", fontsize=9)
        axes.grid(axis="x", alpha=0.3)
    axes.set_xlabel("seconds")
    return figure


def draw_curves(learned: dict[str, list[float]]) -> Figure:
    """Plot the mean reward of each step, one panel per plane."""
    figure = Figure(figsize=(9, 4), layout=_PADDED)
    figure.suptitle("Learning to copy, by staleness of the samples")
    for axes, plane in zip(figure.subplots(1, 2, sharey=True), LEARNING_PLANES, strict=True):
        for name, rewards in learned.items():
            if name.startswith(plane):
                label = name.removeprefix(f"{plane}, ")
                # staleness 0 lies on it, step by step
                wide = {"linewidth": 5, "alpha": 0.3} if label == "synchronous" else {}
                axes.plot(range(1, len(rewards) + 1), rewards, label=label, **wide)
        axes.set(xlabel="step", ylim=(0, 1.02))
        axes.set_title(plane, fontsize=9)
        axes.grid(alpha=0.3)
    figure.axes[0].set_ylabel("mean reward")
    figure.axes[0].legend(frameon=False, fontsize=8)
    return figure


if __name__ == "__main__":
    typer.run(main)
