"""Measures how long the ranks of a replica take to get their rows, by ``fetch_policy``.

    python benchmarks/fetch_policy.py --json fetch_policy.json

    independent   every rank ── get ──▶ plane
    leader        rank 0 ── get ──▶ plane; rank 0 ── broadcast over gloo ──▶ the other ranks

The policies take turns, and one round is from a barrier before it to a barrier after it. All ranks
are processes of one machine, which share memory with ``ray_store``: the network, which a leader
spares, costs nothing here.
"""

from __future__ import annotations

import json
import os
import statistics
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import ray
import torch
import torch.distributed as dist
import typer
from rich.console import Console
from rich.table import Table

from rlconform.backends.ray_runtime import ensure_ray
from rlconform.certify.target import open_target
from rlconform.contract import KVBatchMeta
from rlconform.contract.fields import GLOBAL_FORWARD_PAD_SEQLEN, ROUTED_EXPERTS
from rlconform.plane import ModelRanks, ReplicaGroup, kv_first_write
from rlconform.plane.worker_mixin import DataPlaneWorkerMixin
from rlconform.wire import pack_per_token_field

POLICIES = ("independent", "leader")
PLANES = ("ray_store", "transfer_queue/simple")
LAYERS, TOP_K = 48, 8  # of Qwen3-30B-A3B
FLOATS = ("generation_logprobs", "prev_logprobs", "reference_policy_logprobs", "advantages")


@dataclass(frozen=True)
class Result:
    """Milliseconds of a round by policy: the median, and the fastest."""

    plane: str
    ranks: int
    rows: int
    longest: int
    routes: bool
    megabytes: float
    median_ms: dict[str, float]
    fastest_ms: dict[str, float]

    @property
    def ratio(self) -> float:
        """The time of a leader's rows relative to that of rows which each rank gets."""
        return self.median_ms["leader"] / self.median_ms["independent"]


class Rank(DataPlaneWorkerMixin):
    """One rank of a replica, as a Ray actor."""

    def __init__(self, rank: int, ranks: int, plane: str, store: str) -> None:
        os.environ["GLOO_SOCKET_IFNAME"] = "lo"
        files: Any = dist.FileStore(store, ranks)  # type: ignore[attr-defined]
        dist.init_process_group("gloo", store=files, rank=rank, world_size=ranks)
        group = dist.new_group(backend="gloo")
        self._place = ModelRanks(tp=rank, cp=0, pp=0)
        self._groups = {"independent": None, "leader": ReplicaGroup(group, timeout_s=300)}
        self._client = open_target(plane, bootstrap=False)

    def times(self, meta: KVBatchMeta, rounds: int) -> dict[str, list[float]]:
        """Return the milliseconds of each round by policy, after one that isn't counted."""
        times: dict[str, list[float]] = {policy: [] for policy in POLICIES}
        for number in range(rounds + 1):
            for policy in POLICIES:
                self.attach_plane(self._client, ranks=self._place, replica=self._groups[policy])
                dist.barrier()
                start = time.perf_counter()
                self.fetch_shard(meta)
                dist.barrier()
                if number:
                    times[policy].append((time.perf_counter() - start) * 1e3)
        return times


def main(
    ranks: Annotated[list[int], typer.Option(help="Ranks of a replica.")] = [2, 4],  # noqa: B006
    rows: Annotated[int, typer.Option(help="Rows of a shard.")] = 64,
    longest: Annotated[list[int], typer.Option(help="Tokens of the longest row.")] = [  # noqa: B006
        1024,
        4096,
    ],
    rounds: Annotated[int, typer.Option(help="Rounds of each policy.")] = 11,
    json_file: Annotated[Path | None, typer.Option("--json", help="Write results here.")] = None,
) -> None:
    """Time both policies on a shard of GRPO rows, with and without the routes of an MoE."""
    load = os.getloadavg()[0]
    results = []
    with ensure_ray(object_store_bytes=2**30):
        for plane in PLANES:
            owner = open_target(plane)
            for count in ranks:
                for width in longest:
                    for routes in (False, True):
                        batch = shard(rows, width, routes=routes)
                        results.append(measure(owner, plane, count, batch, width, rounds))
            owner.close()
    show(results)
    if json_file is not None:
        settings = {"rounds": rounds, "cores": os.cpu_count(), "load_at_start": load}
        document = {
            "settings": settings,
            "results": [asdict(result) | {"ratio": result.ratio} for result in results],
        }
        json_file.write_text(json.dumps(document, indent=2) + "\n")


def shard(rows: int, longest: int, *, routes: bool) -> dict[str, Any]:
    """Make the columns of training for rows of random lengths, from a quarter of the longest."""
    draws = torch.Generator().manual_seed(0)
    lengths = torch.randint(longest // 4, longest + 1, (rows,), generator=draws)
    lengths[0] = longest
    columns: dict[str, Any] = {
        "input_ids": torch.randint(1000, (rows, longest), generator=draws),
        "input_lengths": lengths,
        "token_mask": torch.ones(rows, longest, dtype=torch.int32),
        "sample_mask": torch.ones(rows),
    }
    for name in FLOATS:
        columns[name] = torch.randn((rows, longest), generator=draws)
    if routes:
        shape = (rows, longest, LAYERS, TOP_K)
        chosen = torch.randint(128, shape, generator=draws, dtype=torch.uint8)
        columns[ROUTED_EXPERTS] = pack_per_token_field(chosen, lengths)
    return columns


def measure(
    owner: Any, plane: str, ranks: int, batch: dict[str, Any], longest: int, rounds: int
) -> Result:
    """Write the rows, let the ranks get them, and clear them."""
    ids = [f"row-{number}" for number in range(len(batch["input_lengths"]))]
    partition = "fetch-policy"
    info = {GLOBAL_FORWARD_PAD_SEQLEN: longest}
    meta = kv_first_write(owner, batch, ids, partition, extra_info=info)
    with tempfile.TemporaryDirectory() as folder:
        start: Any = ray.remote(Rank).options(num_cpus=0).remote
        actors: list[Any] = [start(rank, ranks, plane, f"{folder}/store") for rank in range(ranks)]
        times, *_ = ray.get([actor.times.remote(meta, rounds) for actor in actors])
        for actor in actors:
            ray.kill(actor)
    owner.clear_samples(None, partition)
    tokens = int(batch["input_lengths"].sum())
    per_token = 8 + 4 + 4 * len(FLOATS) + (LAYERS * TOP_K if ROUTED_EXPERTS in batch else 0)
    return Result(
        plane,
        ranks,
        len(ids),
        longest,
        ROUTED_EXPERTS in batch,
        tokens * per_token / 1e6,
        {policy: statistics.median(each) for policy, each in times.items()},
        {policy: min(each) for policy, each in times.items()},
    )


def show(results: list[Result]) -> None:
    """Print a line per plane, number of ranks and shard."""
    table = Table("plane", "ranks", "longest row", "MB", *POLICIES, "leader / independent")
    for each in results:
        times = [f"{each.median_ms[policy]:.1f} ms" for policy in POLICIES]
        size = [str(each.ranks), str(each.longest), f"{each.megabytes:.1f}"]
        table.add_row(each.plane, *size, *times, f"{each.ratio:.2f}")
    Console().print(table)


if __name__ == "__main__":
    typer.run(main)
