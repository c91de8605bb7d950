"""Measures how fast the wire codec packs and materializes, compared with torch and a plain copy.

    python benchmarks/wire.py --json wire.json

The contenders run in rotation, so that other load on the machine affects all of them. The table has
the ratio of their medians and, less affected by other load, of their fastest rounds. ``x clone`` is
the time relative to cloning the bytes of the result; 1.0 is memory speed.
"""

from __future__ import annotations

import json
import os
import platform
import statistics
import time
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from rich.console import Console
from rich.table import Table
from tensordict import TensorDict

from rlconform.wire import materialize, pack_jagged_fields, pack_per_token_field

DTYPES = (torch.int64, torch.float32, torch.bfloat16)
WIRE, TORCH, CLONE = "wire", "torch", "clone"

Contenders = dict[str, Callable[[], object]]


@dataclass(frozen=True)
class Result:
    """Milliseconds of one operation by contender: the median round and the fastest."""

    operation: str
    data: str
    megabytes: float
    median_ms: dict[str, float]
    fastest_ms: dict[str, float]

    def ratios(self) -> dict[str, float]:
        """Compute the speedup over torch, and the time relative to a plain copy."""
        return {
            "speedup": self.median_ms[TORCH] / self.median_ms[WIRE],
            "fastest_speedup": self.fastest_ms[TORCH] / self.fastest_ms[WIRE],
            "over_clone": self.median_ms[WIRE] / self.median_ms[CLONE],
        }


def main(
    rows: Annotated[int, typer.Option(help="Rows of the batch.")] = 4096,
    shortest: Annotated[int, typer.Option(help="Tokens of the shortest row.")] = 256,
    longest: Annotated[int, typer.Option(help="Tokens of the longest row.")] = 1024,
    rounds: Annotated[int, typer.Option(help="Rounds, each timing every contender once.")] = 31,
    threads: Annotated[int, typer.Option(help="torch.set_num_threads.")] = 2,
    json_file: Annotated[Path | None, typer.Option("--json", help="Write results here.")] = None,
) -> None:
    """Time the wire's codec on rows of random lengths."""
    # torch warns that nested tensors are a prototype.
    warnings.filterwarnings("ignore", message=".*nested tensors.*")
    load = os.getloadavg()[0]
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    lengths = torch.randint(shortest, longest + 1, (rows,))
    lengths[0] = longest
    results = [
        result
        for dtype in DTYPES
        for result in (
            bench_pack(lengths, longest, dtype, rounds),
            bench_materialize(lengths, longest, dtype, rounds),
        )
    ]
    results.append(bench_pack_batch(lengths, longest, rounds))

    settings = {
        "rows": rows,
        "tokens_per_row": [shortest, longest],
        "tokens": int(lengths.sum()),
        "rounds": rounds,
        "threads": threads,
        "torch": torch.__version__,
        "machine": platform.machine(),
        "load_at_start": load,
    }
    show(results, settings)
    if json_file is not None:
        document = {
            "settings": settings,
            "results": [asdict(result) | result.ratios() for result in results],
        }
        json_file.write_text(json.dumps(document, indent=2) + "\n")


def bench_pack(lengths: torch.Tensor, width: int, dtype: torch.dtype, rounds: int) -> Result:
    """Time padded to jagged, compared with a list of row slices."""
    padded = torch.randint(0, 100, (len(lengths), width)).to(dtype)
    values = values_of(pack_per_token_field(padded, lengths))
    times = time_in_rotation(
        {
            WIRE: lambda: pack_per_token_field(padded, lengths),
            TORCH: lambda: nest_slices(padded, lengths),
            CLONE: values.clone,
        },
        rounds,
    )
    return result_of("pack", str(dtype), values, times)


def bench_materialize(lengths: torch.Tensor, width: int, dtype: torch.dtype, rounds: int) -> Result:
    """Time jagged to padded, compared with ``to_padded_tensor``."""
    padded = torch.randint(0, 100, (len(lengths), width)).to(dtype)
    nested = pack_per_token_field(padded, lengths)
    batch = TensorDict({"input_ids": nested}, batch_size=[len(lengths)])
    times = time_in_rotation(
        {
            WIRE: lambda: materialize(batch, pad_value_dict={"input_ids": 7}),
            TORCH: lambda: torch.nested.to_padded_tensor(nested, 7),
            CLONE: padded.clone,
        },
        rounds,
    )
    return result_of("materialize", str(dtype), padded, times)


def bench_pack_batch(lengths: torch.Tensor, width: int, rounds: int) -> Result:
    """Time packing of a rollout's per-token fields: ids, a mask and four columns of floats."""
    shape = (len(lengths), width)
    fields = {"input_ids": torch.randint(0, 100, shape), "token_mask": torch.ones(shape).bool()}
    for name in (
        "generation_logprobs",
        "prev_logprobs",
        "reference_policy_logprobs",
        "advantages",
    ):
        fields[name] = torch.randn(shape)
    batch = TensorDict(fields, batch_size=[len(lengths)])
    packed = [values_of(leaf) for leaf in pack_jagged_fields(batch, lengths).values()]
    times = time_in_rotation(
        {
            WIRE: lambda: pack_jagged_fields(batch, lengths),
            TORCH: lambda: [nest_slices(field, lengths) for field in fields.values()],
            CLONE: lambda: [values.clone() for values in packed],
        },
        rounds,
    )
    as_bytes = torch.cat([values.view(torch.uint8).view(-1) for values in packed])
    return result_of("pack batch", "6 fields", as_bytes, times)


def nest_slices(padded: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
    """Build a nested tensor from one slice per row."""
    slices = [row[:length] for row, length in zip(padded, lengths.tolist(), strict=True)]
    return torch.nested.as_nested_tensor(slices, layout=torch.jagged)


def values_of(nested: Any) -> torch.Tensor:
    """Return the tokens of a jagged tensor (torch's stubs lack the method)."""
    values: torch.Tensor = nested.values()
    return values


def time_in_rotation(contenders: Contenders, rounds: int) -> dict[str, list[float]]:
    """Time each contender in milliseconds per round; a first round warms up."""
    times: dict[str, list[float]] = {name: [] for name in contenders}
    for round_ in range(rounds + 1):
        for name, run in contenders.items():
            start = time.perf_counter()
            run()
            elapsed = time.perf_counter() - start
            if round_:
                times[name].append(elapsed * 1e3)
    return times


def result_of(
    operation: str, data: str, output: torch.Tensor, times: dict[str, list[float]]
) -> Result:
    """Summarise the times; ``output`` is the result of the operation."""
    return Result(
        operation=operation,
        data=data.removeprefix("torch."),
        megabytes=output.nbytes / 1e6,
        median_ms={name: statistics.median(spent) for name, spent in times.items()},
        fastest_ms={name: min(spent) for name, spent in times.items()},
    )


def show(results: list[Result], settings: dict[str, Any]) -> None:
    """Print the table."""
    low, high = settings["tokens_per_row"]
    table = Table(
        title=f"{settings['rows']} rows of {low} to {high} tokens, "
        f"{settings['threads']} threads, load {settings['load_at_start']:.1f}, "
        f"torch {settings['torch']}",
    )
    for heading in ("operation", "data"):
        table.add_column(heading)
    for heading in ("MB", "wire ms", "torch ms", "clone ms", "x as fast", "fastest", "x clone"):
        table.add_column(heading, justify="right")
    for result in results:
        medians = [result.median_ms[name] for name in (WIRE, TORCH, CLONE)]
        figures = [result.megabytes, *medians, *result.ratios().values()]
        table.add_row(result.operation, result.data, *(f"{figure:.1f}" for figure in figures))
    Console(width=100).print(table)


if __name__ == "__main__":
    typer.run(main)
