"""The changes of a scenario: which calls each makes in the process that makes it."""

from __future__ import annotations

from collections.abc import Callable

from tensordict import TensorDict

from rlconform.certify.assertions.expect import ContractViolation
from rlconform.certify.interplay.looks import claim_ready
from rlconform.certify.interplay.row_versions import (
    EXTRA,
    IDS,
    LABELS,
    LARGE,
    LATER,
    MORE,
    NUMBERS,
    OBJECTS,
    ROWS,
    WIDE,
)
from rlconform.certify.interplay.scenario import Change
from rlconform.certify.interplay.shared_partition import OTHER_TASKS, SharedPartition
from rlconform.certify.scenarios.labeled_rows import labeled_column
from rlconform.contract.fields import INPUT_LENGTHS


def make_change(part: SharedPartition, change: Change, process: int) -> None:
    """Make the change's calls; a change of rows puts rows if there are none."""
    part.now.change = change
    with part.judging("call"):
        CHANGES_MADE[change](part, process)


def _overwrite(fields: list[str] | None = None, width: int | None = None, step: int = 1) -> _Make:
    def make(part: SharedPartition, process: int) -> None:
        ids = part.live() or list(ROWS)
        names = fields if fields and part.live() else part.fields
        part.put(process, ids[::step], names, width=width)

    return make


def _overwrite_some(part: SharedPartition, process: int) -> None:
    part.put(process, (part.live() or list(ROWS))[:2], part.fields)


def _change_dtype(part: SharedPartition, process: int) -> None:
    part.values.dtype += 1
    part.put(process, part.live() or list(ROWS), [NUMBERS] if part.live() else part.fields)


def _try_other_dtype(part: SharedPartition, process: int, ids: list[str], step: int = 1) -> bool:
    """Put numbers of another dtype to some rows; return whether the plane accepts them.

    A plane may keep such a mixed column exactly, or refuse it, which must leave nothing behind.
    If it accepts them, they may be all that it has of the column: later puts have this dtype too.
    """
    part.values.dtype += step
    try:
        part.put(process, ids, [NUMBERS])
    except ContractViolation:
        raise
    except Exception:  # noqa: BLE001 - a plane may raise anything
        part.values.dtype -= step
        return False
    return True


def _try_former_dtype(part: SharedPartition, process: int) -> None:
    """Put numbers of the dtype before this one to some rows, as if the change had been missed.

    If the plane accepts them, all rows get that dtype, so that later puts can have it.
    """
    ids = part.live()
    if ids and _try_other_dtype(part, process, ids[:2], step=-1):
        part.expect_values(process, ids[:2], [NUMBERS])
        part.put(process, ids, [NUMBERS])


def _correct_dtype(part: SharedPartition, process: int) -> None:
    """Put numbers of another dtype to some rows; if the plane refuses, put those of the right one.

    The second put has the same ids and field: a plane may take it for the first one.
    """
    ids = part.live()[:2]
    if ids and not _try_other_dtype(part, process, ids):
        part.put(process, ids, [NUMBERS])


def _put_rows(part: SharedPartition, process: int) -> None:
    live = part.live()
    new = [i for i in IDS if i not in live]
    part.put(process, new or ROWS, part.fields, ["m"])


def _put_column(part: SharedPartition, process: int) -> None:
    if part.live():
        part.put(process, part.live(), [LATER])


def _put_column_by_parts(part: SharedPartition, process: int) -> None:
    """Put a column to the first row, or, if that has it, to the last."""
    if ids := part.live():
        last = part.model.produced(ids[0], [LATER])
        part.put(process, ids[-1:] if last else ids[:1], [LATER])


def _put_nothing(part: SharedPartition, process: int) -> None:
    part.view(process).put_batch([], TensorDict({}, batch_size=[0]))


def _tag(key: str) -> _Make:
    def make(part: SharedPartition, process: int) -> None:
        if part.live():
            part.put(process, part.live(), keys=[key])

    return make


def _tag_some(part: SharedPartition, process: int) -> None:
    """Tag all rows but the first."""
    if ids := part.live()[1:]:
        part.put(process, ids, keys=["m"])


def _tag_new(part: SharedPartition, process: int) -> None:
    """Tag a row, and with the same put one that has no values yet."""
    part.put(process, [*part.live()[:1], MORE[0]], keys=["n"])


def _complete_group(part: SharedPartition, process: int) -> None:
    """Put the last row of the second group, at first in a put that the plane may refuse."""
    if ROWS[0] in part.live():
        _try_other_dtype(part, process, [ROWS[0], ROWS[-1]])
    claim_ready(part, process, part.tasks[0])
    if ROWS[-1] not in part.live():
        part.put(process, ROWS[-1:], part.fields, ["m"])


def _read_twice(part: SharedPartition, process: int) -> None:
    """Read all fields of all rows forwards and backwards."""
    for ids in (part.live(), part.live()[::-1]):
        if ids:
            part.expect_values(process, ids, part.fields)


def _clear_some(part: SharedPartition, process: int) -> None:
    part.clear(process, ROWS[:2])


def _clear_all(part: SharedPartition, process: int) -> None:
    part.clear(process, list(part.model.rows))


def _clear_own(part: SharedPartition, process: int) -> None:
    """Clear with None. This may end the registration of a partition that is empty then."""
    own = part.model.written_by(process)
    part.view(process).clear(None)
    part.model.clear(own)
    part.now.others_left |= bool(part.model.rows)
    if not part.model.rows:
        part.register(process)


def _reuse_ids(part: SharedPartition, process: int) -> None:
    part.clear(process, ROWS[:2])
    part.put(process, ROWS[1::-1], part.fields, ["m"])


def _reuse_own_ids(part: SharedPartition, process: int) -> None:
    """Clear with None, and put the same rows again with other tags."""
    own = [i for i in part.model.written_by(process) if i in ROWS]
    _clear_own(part, process)
    if own:
        part.put(process, own, part.fields, ["n"])


def _start_anew(part: SharedPartition, process: int) -> None:
    _clear_all(part, process)
    part.register(process)
    part.put_first(process)


def _start_with_other_schema(part: SharedPartition, process: int) -> None:
    _clear_all(part, process)
    part.tasks = OTHER_TASKS
    part.values.dtype += 1
    part.values.jagged = not part.values.jagged
    part.fields = [*(name for name in part.fields if name != EXTRA), EXTRA]
    if part.scenario.alone:  # the next step may have single rows
        part.without_groups()
    part.register(process)
    part.put_first(process)


def _use_neighbour(part: SharedPartition, process: int) -> None:
    """Put, claim and clear rows with the same ids in a partition with a similar name."""
    other = part.neighbour(process)
    other.register([LABELS, LATER, OBJECTS], part.tasks)
    columns = {name: labeled_column(other.id, ROWS, name) for name in (LABELS, LATER)}
    if OBJECTS in part.fields:
        columns[OBJECTS] = part.values.column(other.id, ROWS, OBJECTS, 0)
    other.put(ROWS, [{"m": "neighbour"}] * len(ROWS), **columns)
    other.claim(part.tasks[0], [LABELS], len(ROWS))
    other.clear(ROWS[:2])


def _refused_put(part: SharedPartition, process: int) -> None:
    """Put too few tags beside values, for a row that exists and one that does not."""
    ids = [ROWS[0], MORE[-1]]
    version = part.values.new_version(part.width)
    view = part.view(process)
    columns = {name: part.values.column(view.id, ids, name, version) for name in part.fields}
    part.expect_refusal(
        "accepted",
        lambda: view.put(ids, [{"m": "refused"}], **columns),
        "a put of two rows with one dict of tags",
    )


def _refused_read(part: SharedPartition, process: int) -> None:
    ids, view = [*part.live(), "nobody"], part.view(process)
    what = f"a read of {ids}, as nobody is unknown,"
    part.expect_refusal("unknown", lambda: view.get(ids, LABELS), what)


def _refused_claim(part: SharedPartition, process: int) -> None:
    """Claim for a task that is not registered, which a plane should refuse."""
    _refused_or_not(lambda: part.view(process).claim("nobody", [LABELS], 2))


def _refused_registration(part: SharedPartition, process: int) -> None:
    """Register fewer than no rows, which a plane should refuse."""
    view = part.view(process)
    if not _refused_or_not(lambda: view.register(part.fields, part.tasks, num_samples=-1)):
        part.now.registered_again |= bool(part.model.rows)


def _refused_or_not(call: Callable[[], object]) -> bool:
    """Make a call that a plane should refuse; return whether it did."""
    try:
        call()
    except ContractViolation:
        raise
    except Exception:  # noqa: BLE001 - a plane may raise anything
        return True
    return False


_Make = Callable[[SharedPartition, int], None]

#: The function of each change.
CHANGES_MADE: dict[Change, _Make] = {
    "overwrite": _overwrite(),
    "overwrite_wider": _overwrite(width=WIDE),
    "overwrite_column": _overwrite([LABELS]),
    "overwrite_reversed": _overwrite(step=-1),
    "overwrite_some": _overwrite_some,
    "overwrite_large": _overwrite([LABELS], LARGE),
    "change_dtype": _change_dtype,
    "try_former_dtype": _try_former_dtype,
    "put_rows": _put_rows,
    "put_column": _put_column,
    "put_column_by_parts": _put_column_by_parts,
    "put_nothing": _put_nothing,
    "tag": _tag("n"),
    "tag_again": _tag("m"),
    "tag_lengths": _tag(INPUT_LENGTHS),
    "clear_some": _clear_some,
    "clear_all": _clear_all,
    "clear_own": _clear_own,
    "reuse_ids": _reuse_ids,
    "reuse_own_ids": _reuse_own_ids,
    "start_anew": _start_anew,
    "start_with_other_schema": _start_with_other_schema,
    "register_again": lambda part, process: part.register(process),
    "claim": lambda part, process: claim_ready(part, process, part.tasks[0]),
    "claim_other_task": lambda part, process: claim_ready(part, process, part.tasks[1]),
    "use_neighbour": _use_neighbour,
    "refused_put": _refused_put,
    "refused_read": _refused_read,
    "refused_claim": _refused_claim,
    "refused_registration": _refused_registration,
    "tag_some": _tag_some,
    "tag_new": _tag_new,
    "complete_group": _complete_group,
    "correct_dtype": _correct_dtype,
    "claim_few": lambda part, process: claim_ready(part, process, part.tasks[1], [LABELS], 2),
    "read_twice": _read_twice,
}
