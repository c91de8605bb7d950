"""``ModelledRows``: the rows of one partition of a long run, beside a model of them."""

from __future__ import annotations

import math
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from typing import Any

import numpy as np
import torch
from tensordict import TensorDictBase
from torch import Tensor

from rlconform.certify.assertions.expect import (
    ContractViolation,
    expect,
    expect_column,
    expect_objects,
    overwrite,
    rows_in,
)
from rlconform.certify.assertions.jagged import expect_whole_column
from rlconform.certify.properties.long_runs.plan import LOG, RunPlan
from rlconform.certify.properties.long_runs.standing_claims import AWAITED, WAITING
from rlconform.certify.properties.reference_model import PartitionModel, group_of
from rlconform.certify.scenarios.labeled_rows import jagged
from rlconform.certify.scenarios.partition import PartitionUnderTest, batch_of
from rlconform.contract import BatchMeta, KVBatchMeta, Tags
from rlconform.wire import object_array, object_rows, stack_or_nest

#: Most rows of a column that is used in torch.
MANY = 300
#: What a registration gives as ``num_samples``; there may be more rows, or fewer.
NUM_SAMPLES = (1, 64, 64, 4096)
#: Puts, reads and claims that are repeated later.
REMEMBERED = 6

#: Types of objects that a caller can change.
_MUTABLE = (dict, list, set, np.ndarray, Tensor)

#: Ids, values by field, and tags.
Put = tuple[Sequence[str], Mapping[str, Sequence[Any]], Sequence[Tags] | None]


class ModelledRows:
    """A partition of the plane and its model: puts, judged answers, and what may be changed."""

    def __init__(self, plan: RunPlan, part: PartitionUnderTest) -> None:
        self._plan, self._part = plan, part
        self._kinds = dict(plan.kinds)
        self._tasks = list(plan.first_tasks)  # registered so far
        self._model = PartitionModel(plan.group_sizes[0])
        self._writers: dict[str, int] = {}  # by id: the process that put the row last
        self._values: dict[tuple[str, str], list[Any]] = defaultdict(list)  # by id and field
        self._puts: deque[Put] = deque(maxlen=REMEMBERED)
        self._claimed: deque[KVBatchMeta] = deque(maxlen=REMEMBERED)  # copies
        self._reads: deque[tuple[list[str], list[str]]] = deque(maxlen=REMEMBERED)
        self._register()

    def _register(self) -> None:
        """Register the partition with the run's declared fields and its tasks, in any order."""
        rng, size = self._plan.rng, self._model.group_size
        groups = {"grpo_group_size": size} if size > 1 else {}
        fields, tasks = [*self._plan.declared, AWAITED], [*self._tasks, WAITING]
        rng.shuffle(fields)
        rng.shuffle(tasks)
        self._part.register(fields, tasks, rng.choice(NUM_SAMPLES), **groups)

    def _new_id(self) -> str:
        return self._plan.new_id(self._model.group_size)

    def _write(self, ids: Sequence[str], names: Sequence[str], tagged: bool) -> None:
        """Put drawn values of these fields, drawn tags, or both; make no call without ids."""
        ids = list(dict.fromkeys(ids))
        if not ids or not (names or tagged):
            return
        rows = {name: self._draw(ids, name) for name in names}
        if LOG in rows and self._plan.rng.random() < 0.2:
            rows[LOG] = self._plan.objects.other_objects(len(ids))
        self._put((ids, rows, [self._plan.tags() for _ in ids] if tagged else None))

    def _put(self, put: Put) -> None:
        """Put values, and apply the put to the model."""
        ids, rows, tags = put
        columns = {name: self._column(name, values) for name, values in rows.items()}
        given = None if tags is None else [dict(each) for each in tags]
        try:
            batch = batch_of(columns, len(ids)) if columns else None
            receipt = self._part.put_batch(ids, batch, given)
        except TypeError:
            if LOG in rows and not _plain(rows[LOG]):
                return  # refused, as PUT-28 allows; nothing may have changed
            raise
        self._writers |= dict.fromkeys(ids, self._plan.runner.place)
        for name, column in columns.items():
            self._spoil(*(column if name == LOG else [column]))
        self._spoil(*(given or ()), receipt.sample_ids, receipt.fields)
        self._puts.append(put)
        by_id = None if tags is None else dict(zip(ids, tags, strict=True))
        self._model.put(ids, rows, 0, by_id)
        for name, values in rows.items():
            for sample_id, value in zip(ids, values, strict=True):
                self._values[sample_id, name].append(value)

    def _draw(self, ids: Sequence[str], name: str) -> Sequence[Any]:
        """Draw a value of the field for each row; it may be like a former one of that row."""
        earlier = [self._values[i, name] for i in ids]
        if name == LOG:
            return self._plan.objects.extended(earlier)
        return self._plan.rows.draw(name, self._kinds[name], earlier)

    def _column(self, name: str, values: Sequence[Any]) -> Any:
        """Return the column to put; now and then jagged rows of one length, or a view."""
        if name == LOG:
            return object_array(deepcopy(values))
        if self._kinds[name].width is None and self._plan.rng.random() < 0.5:
            return jagged(values)
        column = stack_or_nest(values)
        return column if column.is_nested else self._viewed(column)

    def _viewed(self, column: Tensor) -> Tensor:
        """Return the dense column as it is, with other strides, of a larger one, or with grad."""
        match self._plan.rng.randrange(12):
            case 0 | 1 if column.dim() > 1:
                return column.transpose(0, 1).contiguous().transpose(0, 1)
            case 2:
                return column.repeat_interleave(2, 0)[::2]
            case 3:
                return torch.cat([column[-1:], column])[1:]
            case 4 if column.is_floating_point():
                return column.requires_grad_()
        return column

    def _raises(self, call: Callable[[], object]) -> bool:
        """Whether the plane raises an error; a violation is raised on."""
        try:
            call()
        except ContractViolation:
            raise
        except Exception as error:
            if not self._plan.runner.raised_by_plane(error):
                raise
            return True
        return False

    def _judge_claim(
        self, task: str, names: Sequence[str], meta: BatchMeta, ready: Sequence[str], due: int
    ) -> None:
        """Expect at least ``due`` rows, all ready, with their tags; apply the claim."""
        ids, may, claimed = meta.sample_ids, {*ready}, {*meta.sample_ids}
        wrong = [i for i in ids if i not in may]
        with self._plan.judged_as("claims") as judged:
            if judged:
                why = self._model.why_not_ready(wrong[0], task, names) if wrong else ""
                expect(not wrong, f"only rows that are ready for {task}", f"{wrong[:3]}, {why}")
                if self._model.group_size > 1:
                    parts = {*Counter(map(group_of, ids)).values()} - {self._model.group_size}
                    due_groups = f"whole groups of {self._model.group_size} rows"
                    expect(not parts, due_groups, str(ids), leans_on=("CLAIM-15",))
                lost = [i for i in ready if i not in claimed]
                got = f"{len(ids)}, without {lost[:3]}"
                expect(len(ids) >= due, f"{task} to claim {due} rows with {list(names)}", got)
        with self._plan.judged_as("tags") as judged:
            if judged and not wrong:
                self._judge_tags(meta)
        self._model.claim(task, ids)
        if ids:
            self._claimed.append(KVBatchMeta.of(meta).subset(range(len(ids))))
        self._spoil(meta.sample_ids, meta.tags, meta.fields)

    def _judge_tags(self, meta: BatchMeta) -> None:
        ids = meta.sample_ids
        for sample_id, got in zip(ids, meta.tags or [{} for _ in ids], strict=True):
            row = self._model.rows[sample_id]
            due = f"the tags {row.tags} of {sample_id!r}"
            due += f", perhaps with some of {row.older_tags}" if row.older_tags else ""
            expect(row.allows(got), due, repr(got))
        if ids:
            allowed, lengths = self._model.lengths(ids), meta.sequence_lengths
            due = f"sequence_lengths of {ids} to be {' or '.join(map(str, allowed))}"
            expect(lengths in allowed, due, str(lengths))

    def _fetch(self, meta: KVBatchMeta) -> None:
        """Read the rows of a meta: its own fields, or others of the run."""
        names, chosen = list(meta.fields or ()), None
        if self._plan.rng.random() < 0.2:
            names = chosen = self._plan.some_fields()
        if meta.size and self._model.readable(meta.sample_ids, names) == "rows":
            self._judge_rows(self._part.get_data(meta, chosen), meta.sample_ids, names)

    def _judge_rows(self, batch: TensorDictBase, ids: Sequence[str], names: Sequence[str]) -> None:
        for name in names:
            due = [self._values[i, name][-1] for i in ids]
            whole = self._plan.rng.random() < 0.02 and len(ids) <= MANY
            with self._plan.judged_as("objects" if name == LOG else "rows") as judged:
                if judged and name == LOG:
                    expect_objects(batch, name, due)
                    expect_own_objects(batch, name, len(ids))
                elif judged:
                    expect_column(batch, name, due)
                    if whole:
                        expect_whole_column(batch, name)
            if self._plan.profile.style == "spoils":
                self._spoil_column(batch, name, len(ids))

    def _spoil_column(self, batch: TensorDictBase, name: str, n: int) -> None:
        if name == LOG:
            self._spoil(*object_rows(batch.get(name), n))
        else:
            for row in rows_in(batch, name):
                overwrite(row, name)

    def _spoil(self, *values: Any) -> None:
        """Change values that the caller owns, if the run does so; no later answer may show it."""
        for value in values if self._plan.profile.style == "spoils" else ():
            if isinstance(value, Tensor) and not value.is_nested:
                value.detach().fill_(-1)
            elif isinstance(value, list):
                value.reverse()
                value[len(value) // 2 :] = ["spoiled"]
            elif isinstance(value, dict):
                value["spoiled"] = math.nan


def expect_own_objects(batch: TensorDictBase, name: str, n: int) -> None:
    """Expect each of the ``n`` rows to have an object of its own, if a caller could change it."""
    rows = [row for row in object_rows(batch.get(name), n) if isinstance(row, _MUTABLE)]
    got = f"{len({id(row) for row in rows})} objects in {len(rows)} rows"
    due = f"each row of {name!r} to have an object of its own"
    expect(len({id(row) for row in rows}) == len(rows), due, got, leans_on=("PUT-27",))


def _plain(values: Sequence[Any]) -> bool:
    """Whether the objects hold only what the capability ``objects`` promises to carry."""
    return all(map(_is_plain, values))


def _is_plain(value: Any) -> bool:
    match value:
        case dict() if type(value) is dict:
            return _plain([*value.keys(), *value.values()])
        case list():
            return _plain(value)
        case None | bool() | str():
            return True
        case int():
            return -(2**63) <= value < 2**63
        case float():
            return math.isfinite(value)
        case _:
            return False
