"""Measures how often experts flip between generation and training, and what replay mends.

    python benchmarks/router_replay.py        docs/grpo: router_replay.json, router_replay.svg

A tiny mixture of experts learns the copy task. With the weights of version ``--version`` and of the
one before, it generates long rows in float32 or bfloat16, and their logprobs are computed as
training does: in float32 with the weights of ``--version``, free and with the recorded experts.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from torch import Tensor

from rlconform.backends.ray_runtime import ensure_ray
from rlconform.grpo.actors import RunActors
from rlconform.grpo.config import ClusterConfig, load_config
from rlconform.grpo.generation import Prompts, Responses, Sampling, row_seeds
from rlconform.grpo.generation.transformers_engine import TransformersEngine
from rlconform.grpo.models import load_model, token_logprobs
from rlconform.grpo.rollout.worker import RolloutWorker
from rlconform.grpo.router_replay.recorder import RouteRecorder
from rlconform.grpo.router_replay.replayer import RouteReplayer
from rlconform.grpo.trainers.legacy import LegacyTrainer
from rlconform.grpo.training_loop import fit
from rlconform.grpo.workers.policy_worker import PolicyWorker

MODEL = "tiny-qwen3-moe"
CONFIG = "tiny_moe_copy"
#: Largest difference of a logprob that rounding to bfloat16 is allowed with the same experts.
TOLERANCE = 0.1

Weights = Mapping[str, Tensor]


@dataclass(frozen=True)
class Rows:
    """Rows with what generation said of them."""

    ids: Tensor  # (N, S)
    lengths: Tensor  # (N,)
    logprobs: Tensor  # (N, S), 0 on the prompt
    generated: Tensor  # (N, S), true on the policy's tokens
    routes: Tensor  # (N, S, L, K)


@dataclass(frozen=True)
class Comparison:
    """What differs between generation and training."""

    name: str
    free: Tensor  # differences of the logprobs of all generated tokens
    replayed: Tensor  # the same with replay
    flipped_tokens: float  # share of tokens with other experts in any layer
    flipped_choices: float  # share of tokens times layers with other experts

    def figures(self) -> dict[str, float]:
        """Return the numbers of the comparison."""
        figures = {
            "flipped_tokens": self.flipped_tokens,
            "flipped_choices": self.flipped_choices,
        }
        for name, values in (("free", self.free), ("replayed", self.replayed)):
            figures |= {
                f"{name}_mean": values.mean().item(),
                f"{name}_p99": values.quantile(0.99).item(),
                f"{name}_max": values.max().item(),
                f"{name}_beyond_tolerance": (values > TOLERANCE).float().mean().item(),
            }
        return figures


def main(
    version: Annotated[int, typer.Option(help="Steps that the policy has learned.", min=1)] = 40,
    rows: Annotated[int, typer.Option(help="Rows that are generated.")] = 256,
    tokens: Annotated[int, typer.Option(help="Tokens of a response.")] = 48,
    out: Annotated[Path, typer.Option(help="Folder for the results.")] = Path("docs/grpo"),
) -> None:
    """Measure, print the figures, and draw the plot."""
    with ensure_ray():
        actors = RunActors(PolicyWorker, RolloutWorker, ClusterConfig(dp_size=1))
        older, newer = (trained(actors, steps) for steps in (version - 1, version))
        actors.shutdown()
    comparisons = [
        compare("float32, same weights", generate(newer, "float32", rows, tokens), newer),
        compare("bfloat16, same weights", generate(newer, "bfloat16", rows, tokens), newer),
        compare("float32, one version old", generate(older, "float32", rows, tokens), newer),
        compare("bfloat16, one version old", generate(older, "bfloat16", rows, tokens), newer),
    ]
    figures: dict[str, Any] = {
        "version": version,
        "generated_tokens": rows * tokens,
        "tolerance": TOLERANCE,
        **{one.name: one.figures() for one in comparisons},
    }
    print(json.dumps(figures, indent=1))
    out.mkdir(parents=True, exist_ok=True)
    (out / "router_replay.json").write_text(json.dumps(figures, indent=1) + "\n", "utf-8")
    draw(comparisons[1:]).savefig(out / "router_replay.svg")


def trained(actors: RunActors, steps: int) -> Weights:
    """Train for so many steps from the start; return the weights."""
    config = load_config(CONFIG, [f"grpo.max_num_steps={max(steps, 1)}"])
    if not steps:
        return load_model(MODEL, seed=config.grpo.seed).state_dict()
    trainer = LegacyTrainer(config, actors)
    try:
        list(fit(trainer))
        (weights,) = actors.workers.all(PolicyWorker.weights)
    finally:
        trainer.shutdown()
    return weights


def model_with(weights: Weights, precision: str) -> Any:
    """Load the model with these weights, rounded to a precision."""
    model = load_model(MODEL, precision=precision)
    model.load_state_dict(weights)
    return model


def generate(weights: Weights, precision: str, rows: int, tokens: int) -> Rows:
    """Generate rows of random prompts, and record their experts."""
    engine = TransformersEngine(model_with(weights, precision), record_routes=True)
    prompts = torch.randint(5, 16, (rows, 8), generator=torch.Generator().manual_seed(0))
    made: Responses = engine.generate(
        Prompts(prompts, torch.full((rows,), 8)),
        row_seeds(0, [str(row) for row in range(rows)]),
        Sampling(max_new_tokens=tokens, stop_token_ids=()),
    )
    ids = torch.cat([prompts, torch.stack(made.token_ids)], dim=1)
    logprobs = torch.cat([torch.zeros(prompts.shape), torch.stack(made.logprobs)], dim=1)
    generated = torch.arange(ids.shape[1]).expand_as(ids) >= prompts.shape[1]
    assert engine.route_format is not None
    routes = engine.route_format.blank(*ids.shape)
    for row, known in enumerate(made.routes or []):
        assert known is not None
        routes[row, : len(known)] = known
    return Rows(ids, torch.full((rows,), ids.shape[1]), logprobs, generated, routes)


@torch.no_grad()
def compare(name: str, rows: Rows, weights: Weights) -> Comparison:
    """Compute the rows' logprobs in float32, free and with replay."""
    free_model, replayed_model = (model_with(weights, "float32") for _ in range(2))
    free, chosen = RouteRecorder(free_model).record(
        lambda: token_logprobs(free_model, rows.ids, rows.lengths)
    )
    with RouteReplayer(replayed_model).replaying(rows.routes.flatten(0, 1)):
        replayed = token_logprobs(replayed_model, rows.ids, rows.lengths)
    own = chosen.view(rows.routes.shape)[:, :-1].long().sort(dim=-1).values
    recorded = rows.routes[:, :-1].long().sort(dim=-1).values
    flipped = (own != recorded).any(dim=-1)  # sets of experts, by token and layer
    return Comparison(
        name,
        (free - rows.logprobs).abs()[rows.generated],
        (replayed - rows.logprobs).abs()[rows.generated],
        flipped.any(dim=-1).float().mean().item(),
        flipped.float().mean().item(),
    )


def draw(comparisons: list[Comparison]) -> Figure:
    """Draw for each comparison the share of tokens whose logprob differs by more than x."""
    figure = Figure(figsize=(10, 3.8), layout=ConstrainedLayoutEngine(w_pad=0.12, h_pad=0.08))
    figure.suptitle("Generation and training: tokens whose logprob differs by more than x")
    for axes, one in zip(
        figure.subplots(1, len(comparisons), sharey=True), comparisons, strict=True
    ):
        for label, values, style in (
            ("free", one.free, "-"),
            ("with replay", one.replayed, "--"),
        ):
            ordered = values.clamp(min=1e-7).sort(descending=True).values
            last = torch.tensor(float(len(ordered)))
            places = torch.logspace(0, float(last.log10()), 200).long().unique() - 1
            axes.plot(ordered[places], (places + 1) / last, style, label=label)
        axes.axvline(TOLERANCE, color="grey", linewidth=0.8, label=f"tolerance, {TOLERANCE}")
        axes.set(xscale="log", yscale="log", xlabel="difference of the logprob", xlim=(1e-4, 10))
        axes.set_title(one.name, fontsize=9)
        axes.grid(alpha=0.3)
    first, *_ = figure.axes
    first.set_ylabel("share of tokens with more")
    lines, labels = first.get_legend_handles_labels()
    figure.legend(lines, labels, loc="outside lower center", ncols=3, frameon=False)
    return figure


if __name__ == "__main__":
    typer.run(main)
