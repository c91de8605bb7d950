"""Measures a reward worker with batches against one request at a time.

    python benchmarks/reward_batching.py              docs/grpo/reward_batching.json
    python benchmarks/reward_batching.py --rows 512

Both score the same rows on the same worker, a Ray actor with ``tiny-reward-llama``, in turns within
one run: first one row after the other, each awaited, then all rows at once through the executor of
``ModelScorer``. The machine should be otherwise idle.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Annotated

import ray
import typer

from rlconform.backends.ray_runtime import ensure_ray
from rlconform.grpo.config import RewardModelConfig, load_config
from rlconform.grpo.rewards import Reward, RewardRequest
from rlconform.grpo.rewards.model_scorer import ModelScorer
from rlconform.grpo.rewards.reward_group import RewardGroup
from rlconform.grpo.rewards.reward_workers import RewardWorkers
from rlconform.grpo.tasks import PolicyTurn, Problem

#: The least ratio that the project promises.
PROMISED = 5.0


def main(
    rows: Annotated[int, typer.Option(help="Rows of a round.")] = 256,
    rounds: Annotated[int, typer.Option(help="Rounds of both, after one to warm up.")] = 5,
    max_batch_size: Annotated[int, typer.Option(help="Rows of a batch.")] = 32,
    out: Annotated[Path, typer.Option(help="Folder for the results.")] = Path("docs/grpo"),
) -> None:
    """Measure, print the ratio, and write it; exit with 1 if it is below ``PROMISED``."""
    options = RewardModelConfig(enable=True, max_batch_size=max_batch_size)
    config = load_config("tiny_llama_copy", ["reward_model.enable=true"])
    with ensure_ray():
        group = RewardGroup(options, config.cluster, [{"num_cpus": 1}])
        group.build(config)
        figures = asyncio.run(measure(group.handles(), options, requests(rows), rounds))
        group.shutdown()
    print(json.dumps(figures, indent=1))
    out.mkdir(parents=True, exist_ok=True)
    (out / "reward_batching.json").write_text(json.dumps(figures, indent=1) + "\n", "utf-8")
    if figures["ratio"] < PROMISED:
        raise typer.Exit(1)


def requests(count: int) -> list[RewardRequest]:
    """Make rows of the copy task."""
    return [
        RewardRequest(
            f"p{i}_g0",
            0,
            Problem(f"p{i}", ({"role": "user", "content": str(i % 7)},), str(i % 7)),
            (PolicyTurn(str(i % 10), ended=True),),
            "train",
        )
        for i in range(count)
    ]


async def measure(
    workers: RewardWorkers,
    options: RewardModelConfig,
    rows: Sequence[RewardRequest],
    rounds: int,
) -> dict[str, float]:
    """Time both in turns; the figures are medians over the rounds."""
    alone = options.model_copy(update={"max_batch_size": 1, "max_wait_ms": 0.0})
    single, batched = ModelScorer(workers, alone), ModelScorer(workers, options)

    async def one_by_one() -> list[Reward]:
        return [await single.score(row) for row in rows]

    async def at_once() -> list[Reward]:
        return await asyncio.gather(*map(batched.score, rows))

    seconds: dict[str, list[float]] = {"single": [], "batched": []}
    worker_cpu: dict[str, list[float]] = {"single": [], "batched": []}
    for _ in range(rounds + 1):
        scores: list[list[Reward]] = []
        ways: dict[str, Callable[[], Awaitable[list[Reward]]]] = {
            "single": one_by_one,
            "batched": at_once,
        }
        for name, way in ways.items():
            cpu, started = _worker_cpu_s(workers), time.perf_counter()
            scores.append(await way())
            seconds[name].append(time.perf_counter() - started)
            worker_cpu[name].append(_worker_cpu_s(workers) - cpu)
        first, second = ([reward.value for reward in each] for each in scores)
        if max(abs(a - b) for a, b in zip(first, second, strict=True)) > 1e-4:
            raise SystemExit("expected equal scores from both ways; got others")
    await single.close()
    await batched.close()
    wall = {name: statistics.median(each[1:]) for name, each in seconds.items()}
    cpu_s = {name: statistics.median(each[1:]) for name, each in worker_cpu.items()}
    return {
        "rows": len(rows),
        "max_batch_size": options.max_batch_size,
        "one_at_a_time_s": wall["single"],
        "batched_s": wall["batched"],
        "ratio": wall["single"] / wall["batched"],
        "worker_cpu_ratio": cpu_s["single"] / cpu_s["batched"],
    }


def _worker_cpu_s(workers: RewardWorkers) -> float:
    """Return the seconds of CPU that the first worker has used."""
    used: float = ray.get(workers.actors[0].usage.remote())[2]
    return used


if __name__ == "__main__":
    typer.run(main)
