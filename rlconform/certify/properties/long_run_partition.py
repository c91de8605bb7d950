"""``LongRunPartition``: one partition of a long run, the calls on it, and its model."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from typing import Any

from tensordict import TensorDict, TensorDictBase
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
from rlconform.certify.properties.long_run_plan import LOG, MOST_WAITS, TASKS, RunPlan
from rlconform.certify.properties.near_values import FieldKind
from rlconform.certify.properties.reference_model import PartitionModel
from rlconform.certify.scenarios.labeled_rows import jagged
from rlconform.certify.scenarios.partition import PartitionUnderTest, batch_of
from rlconform.certify.threads import BackgroundCall
from rlconform.contract import BatchMeta, KVBatchMeta, Tags
from rlconform.wire import object_array, object_rows, stack_or_nest

#: Seconds that a claim waits for more rows than come.
SHORT_WAIT_S = 0.02
#: Most rows of a field that are all put again at once, and most rows of a column used in torch.
MANY = 300
#: Puts, reads and claims that are repeated later.
REMEMBERED = 6


class LongRunPartition:
    """A partition of the plane and its model; each public method makes one call, or a few."""

    def __init__(self, plan: RunPlan, part: PartitionUnderTest) -> None:
        self._plan, self._part = plan, part
        self._kinds = dict(plan.kinds)
        self._model = PartitionModel()
        self._values: dict[tuple[str, str], list[Any]] = defaultdict(list)  # by id and field
        self._puts: list[tuple[Sequence[str], Mapping[str, Any], Sequence[Tags] | None]] = []
        self._claimed: list[KVBatchMeta] = []
        self._reads: list[tuple[list[str], list[str]]] = []
        self._register()

    def _register(self) -> None:
        self._part.register(self._plan.declared, TASKS)

    # -- writes ----------------------------------------------------------------------------------

    def _write(self, ids: Sequence[str], names: Sequence[str], tagged: bool) -> None:
        ids = list(dict.fromkeys(ids))
        if not ids or not (names or tagged):
            return
        rows = {name: self._draw(ids, name) for name in names}
        if LOG in rows and self._plan.rng.random() < 0.2:
            rows[LOG] = self._plan.objects.other_objects(len(ids))
        self._put(ids, rows, [self._plan.tags() for _ in ids] if tagged else None)

    def _put(
        self, ids: Sequence[str], rows: Mapping[str, Sequence[Any]], tags: Sequence[Tags] | None
    ) -> None:
        """Put values, and apply the put to the model."""
        columns = {name: self._column(name, values) for name, values in rows.items()}
        given = None if tags is None else [dict(each) for each in tags]
        try:
            self._part.put(ids, given, **columns)
        except TypeError:
            if LOG in rows and not _plain(rows[LOG]):
                return  # refused, as PUT-28 allows; nothing may have changed
            raise
        for name, column in columns.items():
            self._spoil(*(column if name == LOG else [column]))
        self._spoil(*(given or ()))
        self._puts = [*self._puts[1 - REMEMBERED :], (ids, rows, tags)]
        by_id = None if tags is None else dict(zip(ids, tags, strict=True))
        self._model.put(ids, rows, 0, by_id)
        for name, values in rows.items():
            for sample_id, value in zip(ids, values, strict=True):
                self._values[sample_id, name].append(value)

    def _draw(self, ids: Sequence[str], name: str) -> Sequence[Any]:
        earlier = [self._values[i, name] for i in ids]
        return self._plan.values(name, self._kinds.get(name, _NO_KIND), earlier)

    def _column(self, name: str, values: Sequence[Any]) -> Any:
        """Return the column to put; now and then jagged rows of one length, or other strides."""
        if name == LOG:
            return object_array(deepcopy(values))
        if self._kinds[name].width is None and self._plan.rng.random() < 0.5:
            return jagged(values)
        column = stack_or_nest(values)
        if not column.is_nested and column.dim() > 1 and self._plan.rng.random() < 0.2:
            return column.transpose(0, 1).contiguous().transpose(0, 1)
        return column

    def put_new(self) -> None:
        """Put new rows, some of them under ids that were cleared."""
        size = self._plan.size()
        gone = [i for i in self._model.cleared if i not in self._model.rows]
        again = self._plan.some(gone)[:size] if self._plan.rng.random() < 0.5 else []
        ids = [*again, *(self._plan.new_id() for _ in range(size - len(again)))]
        self._plan.rng.shuffle(ids)
        self._write(ids, self._plan.fields(), self._plan.rng.random() < 0.6)

    def put_more(self) -> None:
        """Put fields on rows that exist, whether these have them or not, and on a new row."""
        rng, ids = self._plan.rng, self._plan.some(list(self._model.rows))
        if rng.random() < 0.2:
            ids.insert(rng.randint(0, len(ids)), self._plan.new_id())
        self._write(ids, self._plan.fields(), rng.random() < 0.3)

    def put_again(self) -> None:
        """Repeat an earlier put, as a retry does, whatever was put or cleared since."""
        if self._puts:
            ids, rows, tags = self._plan.rng.choice(self._puts)
            if all(self._kinds[n].dtype == rows[n][0].dtype for n in rows if n != LOG):
                self._put(ids, rows, tags)

    def overwrite_all(self) -> None:
        """Put a field again on all rows that have it, half of the time as another dtype."""
        name = self._plan.rng.choice(list(self._kinds))
        held = [i for i in self._model.rows if self._model.produced(i, [name])]
        if len(held) <= MANY:
            if self._plan.rng.random() < 0.5:
                self._kinds[name] = self._kinds[name].retyped()
            self._write(self._plan.rng.sample(held, len(held)), [name], tagged=False)

    def tag(self) -> None:
        """Put tags alone, on rows that exist and on new ones."""
        ids = self._plan.some(list(self._model.rows))
        more = self._plan.rng.choice((0, 0, 0, 1, 5))
        self._write([*ids, *(self._plan.new_id() for _ in range(more))], [], tagged=True)

    def clear(self) -> None:
        """Clear some rows, unknown ones among them, or all."""
        rows = list(self._model.rows)
        some: list[str] = self._plan.some(rows)
        ids: list[str] | None = some
        match self._plan.rng.randrange(10):
            case 0:
                ids = None
            case 1:
                ids = [i for i in rows if i not in {*some}]  # most rows
            case 2 | 3:
                ids = [*some, "nobody", *some[:1]]
        self._part.clear(ids)
        if ids is None:  # it may have ended the registration
            self._register()
        self._model.clear(ids)

    def refuse(self) -> None:
        """Make a call that must raise, or that may; whatever it does, nothing else may change."""
        rng, rows = self._plan.rng, list(self._model.rows)
        ids, new = self._plan.some(rows) or ["nobody"], self._plan.new_id()
        name, other = rng.sample(list(self._kinds), 2)
        column = self._column(name, self._draw(ids, name))
        lacking = [i for i in rows if not self._model.produced(i, [name])][:1]
        must: list[Callable[[], object]] = [
            lambda: self._part.put_batch([*ids, new], batch_of({name: column}, len(ids))),
            lambda: self._part.put(ids, [{"v": -1}] * (len(ids) + 1), **{name: column}),
            lambda: self._part.get([*ids, f"{new}?"], name),
            lambda: self._part.get([*ids, *lacking] if lacking else ["nobody"], name),
            lambda: self._part.get_data(KVBatchMeta(self._part.id, None, ids)),
        ]
        may = [
            lambda: self._part.claim("nobody", [name], 2),
            lambda: self._part.consumed("nobody"),
            lambda: self._put_badly(ids, {name: column}),
        ]
        if any(self._model.produced(i, [name]) for i in {*rows} - {*ids}):
            may.append(lambda: self._put_retyped(ids, name, other))
        call = rng.choice(must + may)
        if self._raises(call) or not self._plan.judges("refusals"):
            return
        expect(call not in must, "the call to raise", "a result")

    def _raises(self, call: Callable[[], object]) -> bool:
        try:
            call()
        except ContractViolation:
            raise
        except Exception as error:
            if not self._plan.runner.raised_by_plane(error):
                raise
            return True
        return False

    def _put_badly(self, ids: Sequence[str], columns: dict[str, Any]) -> None:
        """Put a column beside a leaf of no kind; the run ends if the plane takes it."""
        nested = TensorDict({"part": TensorDict({}, [len(ids)])}, [len(ids)])
        self._part.put_batch(ids, batch_of({**columns, "other": nested}, len(ids)))
        self._plan.over = True

    def _put_retyped(self, ids: Sequence[str], name: str, other: str) -> None:
        """Put a field of some rows as another dtype; the run ends if the plane takes it.

        Another field comes first, which then has nothing of this put either.
        """
        first = {other: self._column(other, self._draw(ids, other))}
        kind = self._kinds[name].retyped()
        column = self._column(name, self._plan.values(name, kind, [[]] * len(ids)))
        self._part.put(ids, None, **first, **{name: column})
        self._plan.over = True

    # -- claims ----------------------------------------------------------------------------------

    def claim(self) -> None:
        """Claim some of the rows that are ready; block for rows that are ready now and then."""
        rng, task = self._plan.rng, self._plan.rng.choice(TASKS)
        names = self._plan.fields()[:2]
        ready = self._model.ready(task, names)
        size = min(max(1, len(ready)), rng.choice((1, 2, 3, 8, 50, 2000)))
        blocking = bool(ready) and rng.random() < 0.3
        wait_s = self._part.timeouts.operation
        rank = rng.choice((None, None, 0, 1))
        meta = self._part.claim(
            task, names, size, blocking=blocking, timeout_s=wait_s, dp_rank=rank
        )
        self._judge_claim(task, names, meta, ready, size if blocking else 0)
        if rng.random() < 0.4:
            self._fetch(self._claimed[-1])

    def wait(self) -> None:
        """Claim one row more than is ready in a thread, and put it."""
        if self._plan.waits >= MOST_WAITS:
            return
        self._plan.waits += 1
        task, names, new = self._plan.rng.choice(TASKS), [*self._kinds][:2], self._plan.new_id()
        size = len(self._model.ready(task, names)) + 1
        if new in self._model.rows:
            return
        timeouts = self._part.timeouts
        waiting = BackgroundCall(
            lambda: self._part.claim(
                task, names, size, blocking=True, timeout_s=timeouts.operation
            ),
            "the blocked claim",
        )
        waiting.returned_within(SHORT_WAIT_S)
        self._write([new], names, tagged=True)
        meta = waiting.result(timeouts.settle + self._part.call_s)
        self._judge_claim(task, names, meta, self._model.ready(task, names), size)

    def time_out(self) -> None:
        """Block for more rows than are ready."""
        if self._plan.waits >= MOST_WAITS:
            return
        self._plan.waits += 1
        task, names = self._plan.rng.choice(TASKS), self._plan.fields()[:1]
        size = len(self._model.ready(task, names)) + 1
        try:
            meta = self._part.claim(task, names, size, blocking=True, timeout_s=SHORT_WAIT_S)
        except TimeoutError:
            return
        due = f"TimeoutError where fewer than {size} are ready"
        raise ContractViolation(due, f"a claim of {meta.sample_ids}", leans_on=("CLAIM-05",))

    def drain(self) -> None:
        """Claim all ready rows for one task, and compare the status."""
        self._drain(self._plan.rng.choice(TASKS))
        self.status()

    def _drain(self, task: str) -> None:
        for name in [*self._kinds, *([LOG] if self._plan.has_objects else [])]:
            if ready := self._model.ready(task, [name]):
                meta = self._part.claim(task, [name], len(ready))
                self._judge_claim(task, [name], meta, ready, len(ready))
                self._model.claim(task, ready)

    def _judge_claim(
        self, task: str, names: Sequence[str], meta: BatchMeta, ready: Sequence[str], due: int
    ) -> None:
        """Expect at least ``due`` rows, all ready, with their tags; apply the claim."""
        may, ids = {*ready}, meta.sample_ids
        wrong = [i for i in ids if i not in may]
        if self._plan.judges("claims"):
            why = self._model.why_not_ready(wrong[0], task, names) if wrong else ""
            expect(not wrong, f"only rows that are ready for {task}", f"{wrong[:3]}, {why}")
            lost = [i for i in ready if i not in {*ids}]
            got = f"{len(ids)}, without {lost[:3]}"
            expect(len(ids) >= due, f"{task} to claim {due} rows with {list(names)}", got)
        if self._plan.judges("tags") and not wrong:
            self._judge_tags(meta)
        self._model.claim(task, ids)
        copied = KVBatchMeta.of(meta).subset(range(len(ids)))
        self._claimed = [*self._claimed[1 - REMEMBERED :], copied]
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

    # -- reads -----------------------------------------------------------------------------------

    def read(self) -> None:
        """Read some fields of some rows, or of all rows; a plane may refuse rows named twice."""
        rng, names = self._plan.rng, self._plan.fields()
        held = [i for i in self._model.rows if self._model.produced(i, names)]
        ids = rng.choice((self._plan.some(held), self._plan.some(held), held, held[::-1]))
        if ids:
            self._reads = [*self._reads[1 - REMEMBERED :], (ids, names)]
            self._read(ids, names)
        if ids and rng.random() < 0.1:
            twice = [*ids, *self._plan.some(ids)]
            self._raises(lambda: self._read(twice, names))

    def read_again(self) -> None:
        """Read what was read before, in that order or in another."""
        if self._reads:
            ids, names = self._plan.rng.choice(self._reads)
            ids = self._plan.rng.choice((ids, self._plan.rng.sample(ids, len(ids))))
            if self._model.readable(ids, names) == "rows":
                self._read(ids, names)

    def fetch(self) -> None:
        """Read the rows of an earlier claim by its meta, in any order."""
        if self._claimed:
            meta = self._plan.rng.choice(self._claimed)
            self._fetch(meta.subset(self._plan.rng.sample(range(meta.size), meta.size)))

    def _fetch(self, meta: KVBatchMeta) -> None:
        names = list(meta.fields or ())
        if meta.size and self._model.readable(meta.sample_ids, names) == "rows":
            self._judge_rows(self._part.get_data(meta), meta.sample_ids, names)

    def _read(self, ids: list[str], names: list[str]) -> None:
        if self._plan.rng.random() < 0.3:
            meta = KVBatchMeta(self._part.id, None, ids, fields=names)
            self._judge_rows(self._part.get_data(meta), ids, names)
        else:
            self._judge_rows(self._part.get(ids, *names), ids, names)

    def _judge_rows(self, batch: TensorDictBase, ids: Sequence[str], names: Sequence[str]) -> None:
        for name in names:
            due = [self._values[i, name][-1] for i in ids]
            if name == LOG and self._plan.judges("objects"):
                expect_objects(batch, name, due)
                self._spoil(*object_rows(batch.get(name), len(ids)))
            elif name != LOG and self._plan.judges("rows"):
                expect_column(batch, name, due)
                if self._plan.rng.random() < 0.02 and len(ids) <= MANY:
                    expect_whole_column(batch, name)
                if self._plan.profile.spoils:
                    for row in rows_in(batch, name):
                        overwrite(row, name)

    # -- the state -------------------------------------------------------------------------------

    def status(self) -> None:
        """Compare the status of one task or two."""
        tasks = self._plan.rng.sample(TASKS, self._plan.rng.choice((1, 1, 2)))
        due = self._model.consumed(tasks)
        if due is not None and self._plan.judges("status"):
            got = self._part.consumed(*tasks)
            expect(got is due, f"the status of {tasks} to be {due}", str(got))

    def look_at_all(self) -> None:
        """Read all rows, claim for each task what it has not claimed, and compare the status."""
        for name in [*self._kinds, *([LOG] if self._plan.has_objects else [])]:
            if held := [i for i in self._model.rows if self._model.produced(i, [name])]:
                self._judge_rows(self._part.get(held, name), held, [name])
        if self._plan.judges("claims", "tags", "status"):
            for task in TASKS:
                self._drain(task)
                self.status()

    def _spoil(self, *values: Any) -> None:
        """Change values that the caller owns, if the run does so; no later answer may show it."""
        for value in values if self._plan.profile.spoils else ():
            if isinstance(value, Tensor) and not value.is_nested:
                value.fill_(-1)
            elif isinstance(value, list):
                value.append("spoiled")
            elif isinstance(value, dict):
                value["spoiled"] = math.nan


_NO_KIND = FieldKind(Tensor().dtype)


def _plain(values: Sequence[Any]) -> bool:
    """Whether the objects hold only types of the capability ``objects``."""
    return all(
        _plain([*value.keys(), *value.values()]) if type(value) is dict
        else _plain(value) if type(value) is list
        else value is None or type(value) in (bool, int, float, str)
        for value in values
    )  # fmt: skip
