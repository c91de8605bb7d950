"""``LongRunPartition``: the calls of a long run on one partition."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tensordict import TensorDict

from rlconform.certify.assertions.expect import ContractViolation, expect
from rlconform.certify.properties.long_run_plan import LOG, MOST_WAITS, TASKS
from rlconform.certify.properties.long_run_rows import ModelledRows
from rlconform.certify.scenarios.partition import batch_of
from rlconform.certify.threads import BackgroundCall
from rlconform.contract import KVBatchMeta

#: Seconds that a claim waits for more rows than come.
SHORT_WAIT_S = 0.02
#: Most rows of a field that are all put again at once.
MANY = 300


class LongRunPartition(ModelledRows):
    """The calls of a run on one partition; each public method makes one call, or a few."""

    # -- writes ----------------------------------------------------------------------------------

    def _write(self, ids: Sequence[str], names: Sequence[str], tagged: bool) -> None:
        """Put drawn values of these fields, drawn tags, or both; make no call without ids."""
        ids = list(dict.fromkeys(ids))
        if not ids or not (names or tagged):
            return
        rows = {name: self._draw(ids, name) for name in names}
        if LOG in rows and self._plan.rng.random() < 0.2:
            rows[LOG] = self._plan.objects.other_objects(len(ids))
        self._put((ids, rows, [self._plan.tags() for _ in ids] if tagged else None))

    def put_new(self) -> None:
        """Put new rows, some of them under ids that were cleared."""
        size = self._plan.size()
        gone = [i for i in self._model.cleared if i not in self._model.rows]
        again = self._plan.some(gone)[:size] if self._plan.rng.random() < 0.5 else []
        ids = [*again, *(self._plan.new_id() for _ in range(size - len(again)))]
        self._plan.rng.shuffle(ids)
        self._write(ids, self._plan.some_fields(), self._plan.rng.random() < 0.6)

    def put_more(self) -> None:
        """Put fields on rows that exist, whether these have them or not, and on a new row."""
        rng, ids = self._plan.rng, self._plan.some(list(self._model.rows))
        if rng.random() < 0.2:
            ids.insert(rng.randint(0, len(ids)), self._plan.new_id())
        self._write(ids, self._plan.some_fields(), rng.random() < 0.3)

    def put_again(self) -> None:
        """Repeat an earlier put, as a retry does, whatever was put or cleared since."""
        if self._puts:
            put = self._plan.rng.choice(self._puts)
            rows = put[1]
            if all(self._kinds[n].dtype == rows[n][0].dtype for n in rows if n != LOG):
                self._put(put)

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
        """Clear some rows, unknown ones among them, all rows but some, or all."""
        rows = list(self._model.rows)
        some: list[str] = self._plan.some(rows)
        ids: list[str] | None = some
        match self._plan.rng.randrange(10):
            case 0:
                ids = None
            case 1:
                kept = {*some}
                ids = [i for i in rows if i not in kept]
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
            lambda: self._part.get([*ids, *(lacking or ["nobody"])], name),
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
        if not self._raises(call):
            with self._plan.judged_as("refusals") as judged:
                expect(not judged or call not in must, "the call to raise", "a result")

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
        drawn = self._plan.rows.draw(name, self._kinds[name].retyped(), [[]] * len(ids))
        column = self._column(name, drawn)
        self._part.put(ids, None, **first, **{name: column})
        self._plan.over = True

    # -- claims ----------------------------------------------------------------------------------

    def _claimable_fields(self) -> list[str]:
        """Draw fields that were declared or that a row has: a plane may refuse a claim by others.

        The first two are always declared.
        """
        known = {*self._plan.declared}.union(*(row.versions for row in self._model.rows.values()))
        drawn = [name for name in self._plan.some_fields() if name in known]
        return drawn or self._plan.fields[:2]

    def claim(self) -> None:
        """Claim some of the rows that are ready; block for rows that are ready now and then."""
        rng, task = self._plan.rng, self._plan.rng.choice(TASKS)
        names = self._claimable_fields()[:2]
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
        task, names = self._plan.rng.choice(TASKS), self._claimable_fields()[:1]
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
        for name in self._plan.fields:
            if ready := self._model.ready(task, [name]):
                meta = self._part.claim(task, [name], len(ready))
                self._judge_claim(task, [name], meta, ready, len(ready))
                self._model.claim(task, ready)

    # -- reads -----------------------------------------------------------------------------------

    def read(self) -> None:
        """Read some fields of some rows, or of all rows; a plane may refuse rows named twice."""
        rng, names = self._plan.rng, self._plan.some_fields()
        held = [i for i in self._model.rows if self._model.produced(i, names)]
        ids = rng.choice((self._plan.some(held), self._plan.some(held), held, held[::-1]))
        if ids:
            self._reads.append((ids, names))
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

    def _read(self, ids: list[str], names: list[str]) -> None:
        if self._plan.rng.random() < 0.3:
            meta = KVBatchMeta(self._part.id, None, ids, fields=names)
            self._judge_rows(self._part.get_data(meta), ids, names)
        else:
            self._judge_rows(self._part.get(ids, *names), ids, names)

    # -- the state -------------------------------------------------------------------------------

    def status(self) -> None:
        """Compare the status of one task or two."""
        tasks = self._plan.rng.sample(TASKS, self._plan.rng.choice((1, 1, 2)))
        due = self._model.consumed(tasks)
        if due is None:
            return
        got = self._part.consumed(*tasks)
        with self._plan.judged_as("status") as judged:
            expect(got is due or not judged, f"the status of {tasks} to be {due}", str(got))

    def look_at_all(self) -> None:
        """Read all rows, claim for each task what it has not claimed, and compare the status."""
        for name in self._plan.fields:
            if held := [i for i in self._model.rows if self._model.produced(i, [name])]:
                self._judge_rows(self._part.get(held, name), held, [name])
        if self._plan.judges("claims", "tags", "status"):
            for task in TASKS:
                self._drain(task)
                self.status()
