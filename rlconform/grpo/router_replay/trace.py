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
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

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


def expert_hashes(routes: Tensor, route_format: RouteFormat) -> Hashes:
    """Return a hash per token and layer (T, L) of routes (T, L, K) of any integer dtype."""
    hashed = _hashed([routes[:, :, number] for number in range(routes.shape[2])])
    hashed = np.where(hashed <= INVALID, hashed + np.uint32(2), hashed)
    hashed[route_format.is_invalid(routes).cpu().numpy()] = INVALID
    hashed[route_format.is_missing(routes).cpu().numpy()] = MISSING
    return hashed


def token_hashes(token_ids: Tensor, positions: Tensor) -> Hashes:
    """Return a hash (T,) of each token's id and position."""
    return _hashed([token_ids, positions])


def _hashed(parts: Sequence[Tensor]) -> Hashes:
    """Hash integer tensors of one shape value by value, by FNV-1a of whole numbers."""
    hashed = np.full(parts[0].shape, 0xCBF29CE484222325, dtype=np.uint64)
    for part in parts:
        numbers = part.cpu().long().numpy().astype(np.uint64) + np.uint64(1)
        hashed = (hashed ^ numbers) * np.uint64(0x100000001B3)
    return ((hashed >> np.uint64(32)) ^ hashed).astype(np.uint32)


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
        routes = rows[ROUTED_EXPERTS]
        self._write(
            Produced(run=self._run, dtype=str(routes.dtype), top_k=routes.shape[-1], **row)
            for row in self._rows(sample_ids, rows)
        )

    def fetched(self, stage: ReplayStage, sample_ids: Sequence[str], rows: TensorDict) -> None:
        """Write rows that were read for a stage, and begin the stage's call."""
        self._stage, self._microbatches = stage, 0
        routes = rows[ROUTED_EXPERTS]
        self._write(
            Fetched(dtype=str(routes.dtype), width=routes.shape[1], **row, **self._call())
            for row in self._rows(sample_ids, rows)
        )

    def replayed(
        self,
        sample_ids: Sequence[str],
        order: TokenOrder,
        replayed: ReplayedPass,
        stage_layer: int = 0,
    ) -> None:
        """Write the experts that the routers used for the rows of a micro-batch.

        After an error these may be those of some layers only. ``order`` is that of this rank's
        tokens, and ``stage_layer`` the first of its layers.
        """
        tokens = token_hashes(replayed.token_ids, replayed.positions)
        places = [order.of_row(row).cpu().numpy() for row in range(len(sample_ids))]
        for call in range(replayed.calls):
            first_layer, used = replayed.used_in(call)
            hashes = expert_hashes(used, self._format)
            self._write(
                Replayed(
                    microbatch=self._microbatches,
                    first_token=int(order.position[place][0]),
                    first_layer=stage_layer + first_layer,
                    recomputed=call > 0,
                    **_packed(sample_id, hashes[place], tokens[place]),
                    **self._call(),
                )
                for sample_id, place in zip(sample_ids, places, strict=True)
                if place.any()  # another rank has the tokens of the row
            )
        self._microbatches += 1

    def passed(self) -> None:
        """Write that the stage's call has ended."""
        self._write([Passed(microbatches=self._microbatches, **self._call())])
        self._calls[self._stage] += 1

    def wrote(self, column: str, sample_ids: Sequence[str]) -> None:
        """Write that this rank has written a column of rows."""
        ids = tuple(sample_ids)
        self._write([Wrote(run=self._run, rank=self._rank, column=column, sample_ids=ids)])

    def close(self) -> None:
        """Close the file. Idempotent."""
        self._file.close()

    def _call(self) -> dict[str, Any]:
        """Return the fields of a record of the call that is open."""
        number = self._calls[self._stage]
        return {"run": self._run, "rank": self._rank, "stage": self._stage, "call": number}

    def _rows(self, sample_ids: Sequence[str], rows: TensorDict) -> Iterator[dict[str, Any]]:
        """Yield the fields of each row's whole hashes."""
        columns = zip(
            sample_ids,
            rows[INPUT_IDS],
            rows[ROUTED_EXPERTS],
            rows[INPUT_LENGTHS].tolist(),
            strict=True,
        )
        for sample_id, ids, routes, n in columns:
            tokens = token_hashes(ids[:n], torch.arange(n))
            yield _packed(sample_id, expert_hashes(routes[:n], self._format), tokens)

    def _write(self, records: Iterable[TraceRecord]) -> None:
        lines = "".join(record.model_dump_json() + "\n" for record in records)
        with self._lock:
            self._file.write(lines)
            self._file.flush()


def _packed(sample_id: str, hashes: Hashes, tokens: Hashes) -> dict[str, Any]:
    """Return the fields of a record with hashes."""
    return {
        "sample_id": sample_id,
        "layers": hashes.shape[1],
        "packed": pack_hashes(hashes),
        "packed_tokens": pack_hashes(tokens),
    }
