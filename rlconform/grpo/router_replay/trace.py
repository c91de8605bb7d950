"""``RouteTrace``: writes the trace of router replay, one file per process.

    rollout worker ── produced ───────────────────────▶ r3-rollout-<pid>.jsonl
    policy worker  ── fetched, replayed, passed, wrote ▶ r3-policy-<pid>.jsonl

``RLCONFORM_R3_TRACE`` in the driver's environment is the folder. Several threads may write. A
write waits for the file.
"""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import torch
from tensordict import TensorDict
from torch import Tensor

from rlconform.contract import ConfigError
from rlconform.contract.fields import INPUT_IDS, INPUT_LENGTHS, ROUTED_EXPERTS
from rlconform.grpo.config import MasterConfig
from rlconform.grpo.models import TokenOrder
from rlconform.grpo.router_replay.replayer import ReplayedPass
from rlconform.grpo.router_replay.route_format import RouteFormat
from rlconform.grpo.router_replay.trace_records import (
    INVALID,
    MISSING,
    Fetched,
    Hashes,
    Passed,
    Produced,
    Replayed,
    ReplayStage,
    TraceRank,
    TraceRecord,
    Wrote,
    pack_hashes,
)

TRACE_VARIABLE = "RLCONFORM_R3_TRACE"


def trace_folder(config: MasterConfig) -> Path | None:
    """Return the folder that the environment asks for; None if it asks for none.

    ``ConfigError`` if the run has nothing to trace.
    """
    folder = os.environ.get(TRACE_VARIABLE, "")
    if not folder:
        return None
    if not config.policy.router_replay.enabled:
        raise ConfigError(f"{TRACE_VARIABLE} needs policy.router_replay.enabled: true")
    if not config.data_plane.enabled:
        raise ConfigError(f"{TRACE_VARIABLE} needs a data plane: set data_plane.enabled: true")
    return Path(folder).absolute()


def route_hashes(
    token_ids: Tensor, positions: Tensor, routes: Tensor, route_format: RouteFormat
) -> Hashes:
    """Return a hash per token and layer (T, L) of T tokens and their routes (T, L, K).

    Routes may have any integer dtype; ``trace_records`` says what the hashes mean.
    """
    hashed = np.full(routes.shape[:2], 0xCBF29CE484222325, dtype=np.uint64)
    experts = [routes[:, :, number] for number in range(routes.shape[2])]
    for part in (positions[:, None], token_ids[:, None], *experts):  # FNV-1a, of whole numbers
        numbers = part.cpu().long().numpy().astype(np.uint64) + np.uint64(1)
        hashed = (hashed ^ numbers) * np.uint64(0x100000001B3)
    folded = ((hashed >> np.uint64(32)) ^ hashed).astype(np.uint32)
    folded = np.where(folded <= INVALID, folded + np.uint32(2), folded)
    folded[route_format.is_invalid(routes).cpu().numpy()] = INVALID
    folded[route_format.is_missing(routes).cpu().numpy()] = MISSING
    return folded


class RouteTrace:
    """A process's part of a trace, which is appended to; ``run`` names the run in all processes."""

    def __init__(
        self, folder: Path, run: str, route_format: RouteFormat, rank: TraceRank | None = None
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        role = "rollout" if rank is None else "policy"
        self._run, self._format = run, route_format
        self._rank = rank or TraceRank(dp=0)
        self._lock = threading.Lock()
        self._file = (folder / f"r3-{role}-{os.getpid()}.jsonl").open("a", encoding="utf-8")
        self._calls = Counter[str]()
        self._stage: ReplayStage = "train"
        self._microbatches = 0

    def produced(self, sample_ids: Sequence[str], rows: TensorDict) -> None:
        """Write rows, of ids, lengths and routes, that are about to be put."""
        self._write(
            Produced(
                run=self._run, sample_id=sample_id, layers=self._format.layers, packed=packed,
                dtype=str(rows[ROUTED_EXPERTS].dtype), top_k=rows[ROUTED_EXPERTS].shape[-1],
            )
            for sample_id, packed in self._rows(sample_ids, rows)
        )  # fmt: skip

    def fetched(self, stage: ReplayStage, sample_ids: Sequence[str], rows: TensorDict) -> None:
        """Write rows that were read for a stage, and begin the stage's call."""
        self._stage, self._microbatches = stage, 0
        self._write(
            Fetched(
                run=self._run, rank=self._rank, stage=stage, call=self._calls[stage],
                sample_id=sample_id, layers=self._format.layers, packed=packed,
                dtype=str(rows[ROUTED_EXPERTS].dtype), width=rows[ROUTED_EXPERTS].shape[1],
            )
            for sample_id, packed in self._rows(sample_ids, rows)
        )  # fmt: skip

    def replayed(
        self, sample_ids: Sequence[str], order: TokenOrder, replayed: ReplayedPass
    ) -> None:
        """Write the experts that the routers used for the rows of a micro-batch."""
        calls = len(replayed.used[0])
        self._write(
            Replayed(
                run=self._run, rank=self._rank, stage=self._stage,
                call=self._calls[self._stage], microbatch=self._microbatches, sample_id=sample_id,
                layers=self._format.layers, packed=pack_hashes(hashes[order.of_row(row).numpy()]),
                recomputed=call > 0,
            )
            for call in range(calls)
            for hashes in [
                self._hashes(replayed.token_ids, replayed.positions, replayed.used_in(call))
            ]
            for row, sample_id in enumerate(sample_ids)
        )  # fmt: skip
        self._microbatches += 1

    def passed(self) -> None:
        """Write that the stage's call has ended."""
        self._write(
            [
                Passed(
                    run=self._run, rank=self._rank, stage=self._stage,
                    call=self._calls[self._stage], microbatches=self._microbatches,
                )
            ]
        )  # fmt: skip
        self._calls[self._stage] += 1

    def wrote(self, column: str, sample_ids: Sequence[str]) -> None:
        """Write that this rank has written a column of rows."""
        ids = tuple(sample_ids)
        self._write([Wrote(run=self._run, rank=self._rank, column=column, sample_ids=ids)])

    def close(self) -> None:
        """Close the file. Idempotent."""
        self._file.close()

    def _rows(self, sample_ids: Sequence[str], rows: TensorDict) -> list[tuple[str, str]]:
        """Return the id and the packed hashes of each row."""
        columns = zip(
            sample_ids,
            rows[INPUT_IDS],
            rows[ROUTED_EXPERTS],
            rows[INPUT_LENGTHS].tolist(),
            strict=True,
        )
        return [
            (sample_id, pack_hashes(self._hashes(ids[:n], torch.arange(n), routes[:n])))
            for sample_id, ids, routes, n in columns
        ]

    def _hashes(self, token_ids: Tensor, positions: Tensor, routes: Tensor) -> Hashes:
        return route_hashes(token_ids, positions, routes, self._format)

    def _write(self, records: Iterable[TraceRecord]) -> None:
        lines = "".join(record.model_dump_json() + "\n" for record in records)
        with self._lock:
            self._file.write(lines)
            self._file.flush()
