"""The lines of a trace of router replay: JSON records with a hash per token and layer.

    Produced   a rollout worker is about to put a row with these experts
    Fetched    a rank has read the row for a stage
    Replayed   the rank's routers have used these experts for the row's tokens
    Passed     the rank has ended the stage's call
    Wrote      the rank has written a column of rows back

A hash of experts is a 32-bit number of the K experts in their order; 0 means that they are
missing, 1 that they are invalid: not K different experts of the layer. A hash of a token is one of
its id and position. ``Replayed`` has those that the model got, so experts in another order than the
tokens are seen as well.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from rlconform._files import excerpt, first_error, lines_of
from rlconform.contract import ConfigError

Hashes = npt.NDArray[np.uint32]

MISSING = 0
INVALID = 1

#: What a rank fetches rows for.
ReplayStage = Literal["prev_logprobs", "train", "evaluate"]


class _TraceModel(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class TraceRank(_TraceModel):
    """A policy worker: its data-parallel rank, and its ranks within a replica of the model."""

    dp: int
    tp: int = 0
    cp: int = 0
    pp: int = 0

    @property
    def is_src(self) -> bool:
        """Whether it is the rank that writes for its replica."""
        return self.tp == self.cp == self.pp == 0

    def __str__(self) -> str:
        ranks = {"dp": self.dp, "tp": self.tp, "cp": self.cp, "pp": self.pp}
        return "rank " + " ".join(f"{k}={v}" for k, v in ranks.items() if v or k == "dp")


class _Hashed(_TraceModel):
    """A record with the hashes of n tokens in l layers."""

    sample_id: str
    layers: int
    packed: str = Field(repr=False)  # (n, l) little-endian uint32 in base64
    packed_tokens: str = Field(repr=False)  # (n,)

    @cached_property
    def hashes(self) -> Hashes:
        """The hashes of the experts (n, l)."""
        return _unpacked(self.packed).reshape(-1, self.layers)

    @cached_property
    def tokens(self) -> Hashes:
        """The hashes of the tokens (n,)."""
        return _unpacked(self.packed_tokens)

    def same(self, other: _Hashed) -> bool:
        """Whether both have the same tokens and experts."""
        return np.array_equal(self.hashes, other.hashes) and np.array_equal(
            self.tokens, other.tokens
        )


def _unpacked(text: str) -> Hashes:
    return np.frombuffer(base64.b64decode(text, validate=True), dtype="<u4")


def pack_hashes(hashes: Hashes) -> str:
    """Return the text of ``packed``."""
    return base64.b64encode(np.ascontiguousarray(hashes, dtype="<u4").tobytes()).decode()


class Produced(_Hashed):
    """A row's experts as the rollout worker puts them: of all tokens and layers."""

    kind: Literal["produced"] = "produced"
    run: str
    dtype: str
    top_k: int


class _OfCall(_TraceModel):
    """A record of one call of a stage; all ranks of a run make the same calls in one order."""

    run: str
    rank: TraceRank
    stage: ReplayStage
    call: int  # counted by rank and stage, from 0


class Fetched(_Hashed, _OfCall):
    """A row's experts as a rank got them from the plane: of all tokens and layers."""

    kind: Literal["fetched"] = "fetched"
    dtype: str
    width: int  # to which the rank padded its rows


class Replayed(_Hashed, _OfCall):
    """The experts that a rank's routers used, from ``first_token`` and ``first_layer`` on."""

    kind: Literal["replayed"] = "replayed"
    microbatch: int
    first_token: int = 0
    first_layer: int = 0
    recomputed: bool = False  # in the backward pass, whose activations were not kept


class Passed(_OfCall):
    """The end of a call."""

    kind: Literal["passed"] = "passed"
    microbatches: int


class Wrote(_TraceModel):
    """A column of rows that a rank has written."""

    kind: Literal["wrote"] = "wrote"
    run: str
    rank: TraceRank
    column: str
    sample_ids: tuple[str, ...]


TraceRecord = Annotated[Produced | Fetched | Replayed | Passed | Wrote, Field(discriminator="kind")]
_RECORD: TypeAdapter[TraceRecord] = TypeAdapter(TraceRecord)


def read_trace(path: Path) -> list[TraceRecord]:
    """Read a file of a trace, or all files ``r3-*.jsonl`` of a folder, in the order of their names.

    ``ConfigError`` if there is no file, or a line is no record.
    """
    files = sorted(path.glob("r3-*.jsonl")) if path.is_dir() else [path]
    if not files or not all(file.is_file() for file in files):
        raise ConfigError(
            f"{path}: expected a trace of router replay, a file or a folder with files r3-*.jsonl"
        )
    return [record for file in files for record in _records(file)]


def _records(file: Path) -> Iterator[TraceRecord]:
    for number, line in enumerate(lines_of(file), start=1):
        try:
            record = _RECORD.validate_json(line)
            if isinstance(record, _Hashed):
                _check_sizes(record)
        except ValueError as error:
            what = first_error(error) if isinstance(error, ValidationError) else str(error)
            raise ConfigError(
                f"{file}:{number}: no record of a trace of router replay: {excerpt(what)}"
            ) from error
        yield record


def _check_sizes(record: _Hashed) -> None:
    """Decode the hashes here, where the line is known."""
    if len(record.tokens) != len(record.hashes):
        raise ValueError(f"{len(record.tokens)} tokens with the experts of {len(record.hashes)}")
