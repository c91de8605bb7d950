"""Measures the time to plan a step of N rows, compared with a textbook packer and a sort.

    python benchmarks/packing.py --json packing.json

The contenders run in rotation, and the table has their median processor time, which other load on
the machine changes least. With a linear cost ``us/row`` is constant; the textbook packer is
quadratic and skips large sizes. ``x sort`` is the time relative to sorting the lengths.
``over least`` is the number of bins relative to the minimum, ``ceil(tokens / capacity)``. Packers
other than the textbook one round it up to a multiple of the ranks, which matters if bins are few.
"""

from __future__ import annotations

import json
import os
import platform
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from rlconform.contract import KVBatchMeta
from rlconform.plane.packing import PACKING_ALGORITHMS, pack_sequences
from rlconform.plane.sharding import (
    DynamicBatching,
    SequencePacking,
    plan_shards,
    shard_meta_for_dp,
)

SORT, TEXTBOOK = "sort", "textbook first fit decr."

Contenders = dict[str, Callable[[], Any]]


@dataclass(frozen=True)
class Result:
    """The result of one contender at one size; ``bins`` is None for those that don't pack."""

    contender: str
    rows: int
    median_ms: float
    over_sort: float
    textbook_over_this: float | None
    bins: int | None
    least_bins: int

    @property
    def us_per_row(self) -> float:
        """Microseconds per row."""
        return self.median_ms * 1e3 / self.rows


def main(
    sizes: Annotated[list[int] | None, typer.Option("--rows", help="Rows; may repeat.")] = None,
    shortest: Annotated[int, typer.Option(help="Tokens of the shortest row.")] = 256,
    longest: Annotated[int, typer.Option(help="Tokens of the longest row.")] = 8192,
    capacity: Annotated[int, typer.Option(help="Tokens of a bin.")] = 8192,
    dp_world: Annotated[
        int, typer.Option(help="Ranks; the number of bins is a multiple of it.")
    ] = 64,
    textbook_rows: Annotated[
        int, typer.Option(help="Maximum rows for the textbook packer.")
    ] = 10240,
    json_file: Annotated[Path | None, typer.Option("--json", help="Write results here.")] = None,
) -> None:
    """Time the packers and the planner on rows of random lengths, many short and a few long."""
    load = os.getloadavg()[0]
    results: list[Result] = []
    for rows in sizes or [1024, 10240, 102400, 256000]:
        lengths = draw_lengths(rows, shortest, longest)
        contenders = contenders_for(lengths, capacity, dp_world, rows <= textbook_rows)
        results += bench(contenders, lengths, capacity)

    settings = {
        "tokens_per_row": [shortest, longest],
        "capacity": capacity,
        "dp_world": dp_world,
        "python": platform.python_version(),
        "machine": platform.machine(),
        "load_at_start": load,
    }
    show(results, settings)
    if json_file is not None:
        rows_of_json = [asdict(result) | {"us_per_row": result.us_per_row} for result in results]
        document = {"settings": settings, "results": rows_of_json}
        json_file.write_text(json.dumps(document, indent=2) + "\n")


def draw_lengths(rows: int, shortest: int, longest: int) -> list[int]:
    """Draw lengths whose square roots are uniformly distributed."""
    draw = Random(0).random
    return [shortest + int((longest - shortest + 1) * draw() ** 2) for _ in range(rows)]


def contenders_for(
    lengths: list[int], capacity: int, dp_world: int, with_textbook: bool
) -> Contenders:
    """List the contenders by name; packers return bins."""
    packers: Contenders = {
        algorithm: lambda algorithm=algorithm: pack_sequences(
            lengths, capacity, algorithm, bin_multiple=dp_world
        )
        for algorithm in PACKING_ALGORITHMS
    }
    if with_textbook:
        packers[TEXTBOOK] = lambda: textbook_first_fit_decreasing(lengths, capacity)
    meta = KVBatchMeta(
        "train",
        None,
        [f"prompt{row}_g0" for row in range(len(lengths))],
        sequence_lengths=lengths,
        tags=[{"input_lengths": length} for length in lengths],
    )
    packing, batching = SequencePacking(capacity), DynamicBatching(2 * capacity, 64)
    return {
        SORT: lambda: sorted(range(len(lengths)), key=lengths.__getitem__),
        **packers,
        "shard_meta_for_dp, packed": lambda: shard_meta_for_dp(
            meta, dp_world, sequence_packing=packing
        ),
        "plan_shards, dynamic": lambda: plan_shards(lengths, dp_world, dynamic_batching=batching),
    }


def textbook_first_fit_decreasing(lengths: Sequence[int], capacity: int) -> list[list[int]]:
    """Put each row into the first bin with enough free tokens."""
    bins: list[list[int]] = []
    free: list[int] = []
    for row in sorted(range(len(lengths)), key=lambda row: -lengths[row]):
        length = lengths[row]
        for number, left in enumerate(free):
            if length <= left:
                bins[number].append(row)
                free[number] -= length
                break
        else:
            bins.append([row])
            free.append(capacity - length)
    return bins


def bench(contenders: Contenders, lengths: Sequence[int], capacity: int) -> list[Result]:
    """Time each contender; the fewer rows, the more rounds."""
    rounds = max(1, min(9, 50_000 // len(lengths)))
    times: dict[str, list[float]] = {name: [] for name in contenders}
    bins: dict[str, int | None] = {}
    for _ in range(rounds):
        for name, run in contenders.items():
            start = time.process_time()
            outcome = run()
            times[name].append((time.process_time() - start) * 1e3)
            bins[name] = len(outcome) if name in (*PACKING_ALGORITHMS, TEXTBOOK) else None
    medians = {name: statistics.median(spent) for name, spent in times.items()}
    return [
        Result(
            contender=name,
            rows=len(lengths),
            median_ms=median,
            over_sort=median / medians[SORT],
            textbook_over_this=medians[TEXTBOOK] / median if TEXTBOOK in medians else None,
            bins=bins[name],
            least_bins=-(-sum(lengths) // capacity),
        )
        for name, median in medians.items()
    ]


def show(results: list[Result], settings: dict[str, Any]) -> None:
    """Print the table."""
    low, high = settings["tokens_per_row"]
    table = Table(
        title=f"rows of {low} to {high} tokens into bins of {settings['capacity']}, "
        f"DP {settings['dp_world']}, load {settings['load_at_start']:.1f}, "
        f"Python {settings['python']}",
    )
    table.add_column("contender", no_wrap=True)
    for heading in ("rows", "ms", "us/row", "x sort", "textbook / this", "bins", "over least"):
        table.add_column(heading, justify="right")
    for before, result in zip([None, *results], results, strict=False):
        if before is not None and before.rows != result.rows:
            table.add_section()
        speedup, bins = result.textbook_over_this, result.bins
        table.add_row(
            result.contender,
            f"{result.rows:,}",
            f"{result.median_ms:,.1f}",
            f"{result.us_per_row:.2f}",
            f"{result.over_sort:.1f}",
            "" if speedup is None else f"{speedup:.1f}",
            "" if bins is None else f"{bins:,}",
            "" if bins is None else f"{bins / result.least_bins:.3f}",
        )
    Console(width=112).print(table)


if __name__ == "__main__":
    typer.run(main)
