"""Saves a plane's rows, tags, registrations and cursors to files, and loads them.

    save   engine.snapshot() ──▶ the rows ──▶ engine.get ──▶ one file per run of rows
    load   rows in their order ──▶ engine.put, run by run ──▶ engine.restore: groups and cursors

A checkpoint is a folder; a run is up to 1,024 rows that have the same fields:

    metadata.json    the caller's own metadata
    state.msgpack    partitions, rows, and the columns of each file
    rows-<n>.npz     the columns of one run

The format does not depend on the engine, so a checkpoint of one plane loads into another. Rows keep
their order, because claims return the oldest first.
"""

from __future__ import annotations

import json
import shutil
import uuid
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import fields
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np

from rlconform.backends.checkpoint_state import SavedPartition, SavedRow
from rlconform.backends.columns import codec
from rlconform.backends.columns.column_block import ColumnBlock, StoredColumn
from rlconform.backends.columns.encode import batch_of, pack
from rlconform.backends.columns.objects import has_pickles
from rlconform.backends.plane_engine import PlaneEngine

_METADATA, _STATE, _FORMAT = "metadata.json", "state.msgpack", "rlconform-checkpoint-1"
#: Rows per file, and per put when they are loaded.
_RUN = 1024


def save(engine: PlaneEngine, folder: Path, metadata: dict[str, Any] | None) -> None:
    """Write the whole plane to ``folder``; raise the errors of ``BaseClient.save_checkpoint``."""
    if metadata is not None and not isinstance(metadata, dict):
        raise TypeError(f"metadata must be a dict or None, got {type(metadata).__name__}")
    text = json.dumps({"user_metadata": metadata or {}}, allow_nan=False)
    if folder.exists() and not (folder / _STATE).is_file():
        raise FileExistsError(f"{folder} exists and is no checkpoint: name a new folder")
    folder.parent.mkdir(parents=True, exist_ok=True)
    unfinished = folder.with_name(f".{folder.name}-{uuid.uuid4().hex[:8]}")
    unfinished.mkdir()
    try:
        (unfinished / _METADATA).write_text(text, encoding="utf-8")
        _write(engine, unfinished)
        _replace(folder, unfinished)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def load(engine: PlaneEngine, folder: Path) -> dict[str, Any]:
    """Load what ``save`` wrote; raise the errors of ``BaseClient.load_checkpoint``."""
    state = codec.unpack((folder / _STATE).read_bytes())
    if not isinstance(state, dict) or state.get("format") != _FORMAT:
        raise ValueError(f"{folder} is no checkpoint of format {_FORMAT}")
    metadata: dict[str, Any] = json.loads((folder / _METADATA).read_text(encoding="utf-8"))
    held = sorted(each.partition_id for each in engine.snapshot())
    if held:
        raise RuntimeError(f"load_checkpoint needs an empty plane, this one has partitions {held}")
    saved = [_partition(each) for each in state["partitions"]]
    with ExitStack() as undo:
        for partition, runs in zip(saved, state["runs"], strict=True):
            undo.callback(_forget, engine, partition.partition_id)
            _load_partition(engine, folder, partition, runs)
        undo.pop_all()
    user_metadata: dict[str, Any] = metadata["user_metadata"]
    return user_metadata


def _replace(folder: Path, by: Path) -> None:
    """Rename ``by`` to ``folder``; an old ``folder`` is removed last, or restored on failure."""
    if not folder.exists():
        by.rename(folder)
        return
    aside = by.with_name(f"{by.name}-replaced")
    folder.rename(aside)
    try:
        by.rename(folder)
    except OSError:
        aside.rename(folder)
        raise
    shutil.rmtree(aside)


def _write(engine: PlaneEngine, folder: Path) -> None:
    partitions = engine.snapshot()
    runs: list[list[dict[str, Any]]] = []
    count = 0
    for partition in partitions:
        runs.append([])
        for ids, names in _runs(partition.rows):
            for columns, some in _read_runs(engine, partition.partition_id, ids, names):
                file = f"rows-{count}.npz"
                runs[-1].append({"ids": some, "file": file, "columns": _headers(columns)})
                _write_columns(folder / file, columns)
                count += 1
    state = {"format": _FORMAT, "partitions": [_plain(each) for each in partitions], "runs": runs}
    (folder / _STATE).write_bytes(codec.pack(state))


def _runs(rows: Sequence[SavedRow]) -> Iterator[tuple[list[str], list[str]]]:
    """Yield the ids of up to ``_RUN`` rows that have the same fields, and these fields."""
    names = attrgetter("fields")
    for held, alike in groupby(sorted(rows, key=names), key=names):
        ids = [row.sample_id for row in alike]
        if held:
            for start in range(0, len(ids), _RUN):
                yield ids[start : start + _RUN], held


def _read_runs(
    engine: PlaneEngine, partition_id: str, ids: list[str], names: list[str]
) -> Iterator[tuple[ColumnBlock, list[str]]]:
    """Read the rows' columns together, or row by row if their shapes don't fit in one tensor."""
    try:
        batch = engine.get(partition_id, ids, names)
    except ValueError:
        if len(ids) == 1:
            raise
        for sample_id in ids:
            yield from _read_runs(engine, partition_id, [sample_id], names)
        return
    yield pack(batch, len(ids)), ids


def _headers(columns: ColumnBlock) -> list[list[Any]]:
    return [[name, c.layout, c.dtype, list(c.shape), c.itemsize] for name, c in columns.items()]


def _write_columns(path: Path, columns: ColumnBlock) -> None:
    arrays: dict[str, Any] = {}
    for number, (name, column) in enumerate(columns.items()):
        if column.layout == "object" and has_pickles(column.values, column.offsets):
            raise TypeError(f"{name!r} has values other than plain data, which are not saved")
        arrays[f"values{number}"] = column.values
        if column.offsets is not None:
            arrays[f"offsets{number}"] = column.offsets
    np.savez(path, **arrays)


def _read_columns(path: Path, headers: Sequence[Sequence[Any]]) -> ColumnBlock:
    columns: ColumnBlock = {}
    with np.load(path, allow_pickle=False) as arrays:
        for number, (name, layout, dtype, shape, itemsize) in enumerate(headers):
            offsets = arrays.get(f"offsets{number}")
            values = arrays[f"values{number}"]
            if layout == "object" and has_pickles(values, offsets):  # which would be executed
                raise ValueError(f"{path}: expected plain data in {name!r}; got a pickle")
            columns[name] = StoredColumn(layout, dtype, tuple(shape), itemsize, values, offsets)
    return columns


def _load_partition(
    engine: PlaneEngine, folder: Path, partition: SavedPartition, runs: Sequence[dict[str, Any]]
) -> None:
    engine.register(partition.partition_id, partition.tasks, partition.group_size)
    for start in range(0, len(partition.rows), _RUN):  # all rows first, to keep their order
        some = partition.rows[start : start + _RUN]
        ids, tags = [row.sample_id for row in some], [dict(row.tags) for row in some]
        engine.put(partition.partition_id, ids, None, tags)
    for run in runs:
        ids = run["ids"]
        batch = batch_of(_read_columns(folder / run["file"], run["columns"]), len(ids))
        engine.put(partition.partition_id, ids, batch, None)
    engine.restore(partition)


def _forget(engine: PlaneEngine, partition_id: str) -> None:
    """Remove a partly loaded partition, so that the plane is empty as before."""
    engine.clear(partition_id, None)
    engine.register(partition_id, [], 1)  # registering an empty partition removes its tasks


def _plain(value: SavedPartition) -> dict[str, Any]:
    rows = [[getattr(row, each.name) for each in fields(SavedRow)] for row in value.rows]
    return {**{each.name: getattr(value, each.name) for each in fields(value)}, "rows": rows}


def _partition(plain: dict[str, Any]) -> SavedPartition:
    return SavedPartition(**{**plain, "rows": [SavedRow(*row) for row in plain["rows"]]})
