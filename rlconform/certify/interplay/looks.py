"""The looks of a scenario: calls whose answers the model knows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from rlconform.certify.assertions.expect import ContractViolation, expect_equal
from rlconform.certify.interplay.attribution import Kind
from rlconform.certify.interplay.row_versions import LABELS, LATER, MORE, ROWS
from rlconform.certify.interplay.scenario import PARTS, Look
from rlconform.certify.interplay.shared_partition import SharedPartition
from rlconform.certify.properties.reference_model import group_of
from rlconform.contract import BatchMeta, KVBatchMeta


def look(part: SharedPartition, what: Look, process: int) -> None:
    """Make the look's calls in a process, and judge the answers. ``wait`` is ``waiting``'s."""
    for one in PARTS.get(what, (what,)):
        if one in _LOOKS:
            _LOOKS[one](part, process)


def look_at_everything(part: SharedPartition, process: int, order: int) -> None:
    """Make every kind of look; ``order`` says with which kind they begin."""
    kinds = [_read_all, _fetch_held, _status, _claim_all]
    for see in kinds[order:] + kinds[:order]:
        see(part, process)
    if part.later is not None:
        raise part.later


# -- reads ---------------------------------------------------------------------------------------


def _read(part: SharedPartition, process: int) -> None:
    ids = part.live()
    if ids:
        part.expect_values(process, ids[:: -1 if part.scenario.order % 2 else 1], part.fields)


def _read_repeated(part: SharedPartition, process: int) -> None:
    """Read the rows, and the first ones again, as a shard that is filled up; a plane may refuse."""
    if ids := part.live():
        ids = [*ids, *ids[:2]]
        with part.judging("repeated"):
            try:
                batch = part.view(process).get(ids, LABELS)
            except ContractViolation:
                raise
            except Exception:  # noqa: BLE001 - a plane may raise anything
                return
            part.compare(batch, ids, [LABELS])


def _read_few(part: SharedPartition, process: int) -> None:
    if ids := part.live()[:2]:
        part.expect_values(process, ids, [LABELS])


def _read_missing(part: SharedPartition, process: int) -> None:
    """Read rows, and a field of rows, that may not exist yet or no more."""
    for ids in (MORE, ROWS[1:3]):
        part.expect_values(process, ids, [LABELS])
    part.expect_values(process, (part.live() or ROWS)[:2], [LATER])


def _read_all(part: SharedPartition, process: int) -> None:
    _read(part, process)
    _read_repeated(part, process)
    _read_few(part, process)
    _read_missing(part, process)
    cleared = [i for i in ROWS if i not in part.model.rows]
    if cleared and len(cleared) < len(ROWS):
        part.expect_values(process, cleared[:1], [LABELS])


def _fetch(part: SharedPartition, process: int) -> None:
    """Claim for the second task, and read the rows of this and of earlier claims."""
    claim_ready(part, process, part.tasks[1])
    _fetch_held(part, process)


def _fetch_held(part: SharedPartition, process: int) -> None:
    for meta in part.held[-2:]:
        _fetch_by(part, process, meta, "fetched")
    for meta in part.receipts[:1] + part.receipts[1:][-1:]:
        _fetch_by(part, process, meta, "receipt")


def _fetch_by(part: SharedPartition, process: int, meta: KVBatchMeta, kind: Kind) -> None:
    """Read by the meta of a claim or a put; what it reads is as new as what ids read."""
    view, ids, fields = part.view(process), meta.sample_ids, list(meta.fields or [])
    due = part.model.readable(ids, fields)
    if due != "rows":
        what = f"a read of the meta of {ids}, as some are {due},"
        part.expect_refusal(due, lambda: view.get_data(meta), what)
        return
    with part.judging(kind):
        batch = view.get_data(meta)
    with part.judging("rows"):
        part.compare(batch, ids, fields)


# -- statuses ------------------------------------------------------------------------------------


def _status(part: SharedPartition, process: int) -> None:
    for tasks in ([part.tasks[0]], [part.tasks[1]], list(part.tasks)):
        due = part.model.consumed(tasks)
        if due is not None:
            with part.judging("status"):
                expect_equal(part.view(process).consumed(*tasks), due, f"the status of {tasks}")


# -- claims --------------------------------------------------------------------------------------


def claim_ready(
    part: SharedPartition, process: int, task: str, fields: Sequence[str] = (), most: int = 0
) -> None:
    """Claim the rows that are ready, or ``most`` of them, and expect exactly those."""
    fields = list(fields or part.fields)
    ready = part.model.ready(task, fields)
    size = min(most or len(ready), len(ready)) or part.group_size
    with part.judging("lost"):
        meta = part.view(process).claim(task, fields, size)
    judge_claim(part, task, fields, meta)
    with part.judging("lost"):
        if size < len(ready):
            expect_equal(len(meta.sample_ids), size, f"rows claimed for {task}, of {ready}:")
        else:
            expect_equal(sorted(meta.sample_ids), sorted(ready), f"rows claimed for {task}")


def judge_claim(part: SharedPartition, task: str, fields: Sequence[str], meta: BatchMeta) -> None:
    """Expect the claimed rows to be ready, with their own tags and lengths; update the model."""
    model, ids = part.model, meta.sample_ids
    for sample_id in ids:
        why = model.why_not_ready(sample_id, task, fields)
        kind = "again" if "claimed" in why else "unready" if "without" in why else "gone"
        due = f"only rows that are ready for {task}"
        part.expect(kind, not why, due, f"{sample_id!r}, {why}")  # type: ignore[arg-type]
    sizes = Counter(map(group_of, ids)) if part.group_size > 1 else Counter()
    whole = set(sizes.values()) <= {part.group_size}
    part.expect("split", whole, f"whole groups of rows ready for {task}", ids)
    for sample_id, got in zip(ids, meta.tags or [{} for _ in ids], strict=True):
        row = model.rows[sample_id]
        due = f"the tags {row.older_tags | row.tags} of {sample_id!r}"
        part.expect("tags", row.allows(got), due, got)
        if part.later is None and not row.older_tags.keys() <= got.keys():
            part.later = part.difference("old_tags", ContractViolation(due, str(got)))
    if ids:
        allowed, lengths = model.lengths(ids), meta.sequence_lengths
        due = f"sequence_lengths of {ids} to be {' or '.join(map(str, allowed))}"
        part.expect("lengths", lengths in allowed, due, lengths)
        part.held.append(KVBatchMeta.of(meta).subset(range(len(ids))))
    model.claim(task, ids)


def _claim(part: SharedPartition, process: int) -> None:
    """Claim all ready rows, and then none."""
    claim_ready(part, process, part.tasks[0])
    claim_ready(part, process, part.tasks[0])


def _claim_all(part: SharedPartition, process: int) -> None:
    for task in (part.tasks[-1], part.tasks[0]):
        claim_ready(part, process, task)
    claim_ready(part, process, part.tasks[1], [LABELS, LATER])
    claim_ready(part, process, part.tasks[0])
    _status(part, process)


_LOOKS: dict[Look, Callable[[SharedPartition, int], None]] = {
    "read": _read,
    "read_few": _read_few,
    "read_missing": _read_missing,
    "claim": _claim,
    "claim_some": lambda part, process: claim_ready(part, process, part.tasks[0], most=2),
    "claim_later": lambda part, process: claim_ready(part, process, part.tasks[0], [LABELS, LATER]),
    "status": _status,
    "fetch": _fetch,
}
