"""Proves from a trace, token by token, that the experts replayed are those recorded.

    Produced ── same hashes? ──▶ Fetched ── same hashes, each token and layer once? ──▶ Replayed
    ranks of a call: one width, one number of micro-batches in training; Wrote: by one rank per row

The functions are pure: records in, sentences out. A row's last token may be missing, because an
engine never passes it through the model; what a router chooses for it is not compared.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from rlconform.grpo.router_replay.trace_records import (
    INVALID,
    MISSING,
    Fetched,
    Hashes,
    Passed,
    Produced,
    Replayed,
    TraceRank,
    TraceRecord,
    Wrote,
)


class TraceVerdict(NamedTuple):
    """What a trace proves."""

    rows: int  # that were replayed
    tokens: int  # of these rows, each compared in all layers, for each stage and rank
    failures: tuple[str, ...]  # one sentence each


class _CallKey(NamedTuple):
    """A stage's call, on all ranks of a run."""

    run: str
    stage: str
    call: int


def check_trace(records: Iterable[TraceRecord]) -> TraceVerdict:
    """Judge a whole trace; a trace without a replayed token fails, because it proves nothing."""
    produced: dict[str, list[Produced]] = defaultdict(list)
    calls: dict[_CallKey, _StageCall] = defaultdict(_StageCall)
    wrote: list[Wrote] = []
    for record in records:
        match record:
            case Produced():
                produced[record.sample_id].append(record)
            case Wrote():
                wrote.append(record)
            case Fetched():
                calls[_key(record)].fetched[record.rank].append(record)
            case Replayed():
                calls[_key(record)].replayed[record.rank].append(record)
            case Passed():
                calls[_key(record)].passed[record.rank] = record.microbatches
    failures = [sentence for rows in produced.values() for sentence in _check_produced(rows)]
    for key, call in calls.items():
        failures += _check_call(f"call {key.call} of {key.stage}", key.stage, call, produced)
    failures += _check_writers(wrote)
    replayed = [one for call in calls.values() for rank in call.replayed.values() for one in rank]
    tokens = sum(len(record.hashes) for record in replayed)
    if not tokens:
        failures.append("expected replayed tokens; got none, so the trace proves nothing")
    return TraceVerdict(len({one.sample_id for one in replayed}), tokens, tuple(failures))


class _StageCall:
    """The records of a stage's call, by rank."""

    def __init__(self) -> None:
        self.fetched: dict[TraceRank, list[Fetched]] = defaultdict(list)
        self.replayed: dict[TraceRank, list[Replayed]] = defaultdict(list)
        self.passed: dict[TraceRank, int] = {}


def _key(record: Fetched | Replayed | Passed) -> _CallKey:
    return _CallKey(record.run, record.stage, record.call)


def _check_produced(rows: Sequence[Produced]) -> Iterator[str]:
    """Every token but a row's last has valid experts in every layer."""
    for row in rows:
        for value, what in ((INVALID, "invalid"), (MISSING, "no")):
            tokens = (row.hashes[:-1] == value).any(axis=1).nonzero()[0]
            if len(tokens):
                yield (
                    f"{row.sample_id}: expected {row.top_k} different experts for every token but "
                    f"the last; got {what} experts for token {tokens[0]} as it was produced"
                )
        if (row.hashes[-1:] == INVALID).any():
            yield f"{row.sample_id}: expected the last token's experts to be valid or missing"


def _check_call(
    what: str, stage: str, call: _StageCall, produced: dict[str, list[Produced]]
) -> Iterator[str]:
    for rank, rows in call.fetched.items():
        for row in rows:
            yield from _check_fetched(f"{row.sample_id}, {what} on {rank}", row, produced)
    yield from _check_replayed(what, call, produced)
    widths = {rank: row.width for rank, rows in call.fetched.items() for row in rows}
    if len(set(widths.values())) > 1:
        yield f"{what}: expected one width on all ranks; got {_by_rank(widths)}"
    if stage == "train" and len(set(call.passed.values())) > 1:
        yield f"{what}: expected equally many micro-batches; got {_by_rank(call.passed)}"
    for rank in call.fetched.keys() - call.passed.keys():
        yield f"{what}: expected {rank} to end it; got no end, so it failed or the trace is cut"


def _by_rank(values: dict[TraceRank, int]) -> str:
    return ", ".join(f"{value} on {rank}" for rank, value in values.items())


def _check_fetched(what: str, row: Fetched, produced: dict[str, list[Produced]]) -> Iterator[str]:
    origins = produced.get(row.sample_id, [])
    if not origins:
        yield f"{what}: expected a row that was produced; got one that nobody has produced"
        return
    if any(origin.same(row) for origin in origins):
        if row.dtype not in {origin.dtype for origin in origins}:
            yield f"{what}: expected {origins[-1].dtype}; got {row.dtype} from the plane"
        return
    own = origins[-1].hashes
    if own.shape != row.hashes.shape:
        yield f"{what}: expected {own.shape} tokens and layers; got {row.hashes.shape} fetched"
        return
    if not np.array_equal(origins[-1].tokens, row.tokens):
        yield f"{what}: expected the tokens that were produced; got others from the plane"
        return
    yield f"{what}: {_difference(own, row.hashes, row.sample_id, produced)} from the plane"


def _check_replayed(
    what: str, call: _StageCall, produced: dict[str, list[Produced]]
) -> Iterator[str]:
    """Each fetched row is replayed by its replica: each token and layer once, as produced."""
    by_replica: dict[tuple[int, str], Hashes] = {}  # how often each token and layer was replayed
    for rank, records in call.replayed.items():
        fetched = {row.sample_id: row for row in call.fetched.get(rank, [])}
        counts: dict[tuple[str, bool], Hashes] = {}
        for record in records:
            row = fetched.get(record.sample_id)
            where = f"{record.sample_id}, {what} on {rank}, micro-batch {record.microbatch}"
            if row is None:
                yield f"{where}: expected a row that the rank has fetched; got another one replayed"
                continue
            yield from _check_part(where, record, _origin_of(row, produced), produced)
            count = counts.setdefault(
                (record.sample_id, record.recomputed), np.zeros(row.hashes.shape, np.uint32)
            )
            count[_part(record)] += 1
        for (sample_id, recomputed), count in counts.items():
            yield from _check_once(f"{sample_id}, {what} on {rank}", count, recomputed)
            key = rank.dp, sample_id
            if not recomputed:
                by_replica[key] = _added(by_replica.get(key), count)
    for rank, rows in call.fetched.items():
        for row in rows if rank.is_src else []:
            total = by_replica.get((rank.dp, row.sample_id), np.zeros(row.hashes.shape, np.uint32))
            if not total.all():
                token, layer = np.argwhere(total == 0)[0]
                yield (
                    f"{row.sample_id}, {what} on {rank}: expected every token to be replayed; got "
                    f"none for token {token} in layer {layer}"
                )


def _added(earlier: Hashes | None, count: Hashes) -> Hashes:
    """Add counts of two ranks; those of another shape are of a rank whose fetch has failed."""
    return count if earlier is None or earlier.shape != count.shape else earlier + count


def _part(record: Replayed) -> tuple[slice, slice]:
    """Return the tokens and layers of a row that a record has."""
    return (
        slice(record.first_token, record.first_token + len(record.hashes)),
        slice(record.first_layer, record.first_layer + record.layers),
    )


def _origin_of(row: Fetched, produced: dict[str, list[Produced]]) -> Produced | Fetched:
    """Return what a fetched row is to equal: of several rows with its id, the one that does."""
    origins = produced.get(row.sample_id, [])
    return next((one for one in origins if one.same(row)), origins[-1] if origins else row)


def _check_part(
    where: str, record: Replayed, origin: Produced | Fetched, produced: dict[str, list[Produced]]
) -> Iterator[str]:
    """The tokens of a record are those of the row, and have its experts."""
    part = _part(record)
    due, tokens = origin.hashes[part], origin.tokens[part[0]]
    if due.shape != record.hashes.shape:
        yield f"{where}: expected {due.shape} tokens and layers; got {record.hashes.shape} replayed"
    elif (tokens != record.tokens).any():
        place = record.first_token + (tokens != record.tokens).nonzero()[0][0]
        yield (
            f"{where}: expected the experts of token {place} to meet this token in the model; got "
            f"another token in its place"
        )
    elif ((due != record.hashes) & (due != MISSING)).any():
        again = " when recomputed" if record.recomputed else ""
        differs = _difference(due, record.hashes, record.sample_id, produced)
        yield f"{where}: {differs} in the routers{again}"


def _check_once(where: str, count: Hashes, recomputed: bool) -> Iterator[str]:
    if count.max(initial=0) > 1:
        token, layer = np.argwhere(count > 1)[0]
        done = "recomputed" if recomputed else "replayed"
        yield (
            f"{where}: expected each token to be {done} once; got token {token} in layer "
            f"{layer} {count.max()} times"
        )


def _check_writers(wrote: Iterable[Wrote]) -> Iterator[str]:
    """Each row of a column is written once, by the rank that writes for its replica."""
    writers: dict[tuple[str, str, str], list[TraceRank]] = defaultdict(list)
    for record in wrote:
        for sample_id in record.sample_ids:
            writers[record.run, record.column, sample_id].append(record.rank)
    for (_, column, sample_id), ranks in writers.items():
        if len(ranks) > 1 or not ranks[0].is_src:
            yield (
                f"{sample_id}: expected {column} to be written once, by a rank with tp = cp = pp = "
                f"0; got {', '.join(map(str, ranks))}"
            )


def _difference(
    due: Hashes, got: Hashes, sample_id: str, produced: dict[str, list[Produced]]
) -> str:
    """Name the first token that differs, and whose experts it has, if that can be told."""
    differs = (due != got) & (due != MISSING)
    token, layer = np.argwhere(differs if differs.any() else due != got)[0]
    return (
        f"expected the experts that were produced; got {_origin(due, got, sample_id, produced)} "
        f"for token {token} in layer {layer}"
    )


def _origin(due: Hashes, got: Hashes, sample_id: str, produced: dict[str, list[Produced]]) -> str:
    """Say whose experts ``got`` are."""
    tokens, layers = due.shape
    if tokens > 2 and np.array_equal(got[1:-1], due[: tokens - 2]):
        return "those of the token before"
    if tokens > 2 and np.array_equal(got[: tokens - 2], due[1 : tokens - 1]):
        return "those of the token after"
    for shift in range(1, layers):
        if np.array_equal(got[: tokens - 1], np.roll(due, shift, axis=1)[: tokens - 1]):
            return "those of another layer"
    for other, rows in produced.items():
        same = min(tokens, *(len(row.hashes) for row in rows)) - 1
        alike = any(np.array_equal(got[:same], row.hashes[:same, :layers]) for row in rows)
        if other != sample_id and same > 0 and alike:
            return f"those of {other}"
    if (got[:-1] == INVALID).any():
        return "invalid ones"
    return "none" if (got[:-1] == MISSING).any() else "others"
