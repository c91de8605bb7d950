"""``LongRunPartition``: the writes and reads of a long run on one partition."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tensordict import TensorDict
from torch import Tensor

from rlconform.certify.assertions.expect import expect
from rlconform.certify.properties.long_runs.claims import ModelledClaims
from rlconform.certify.properties.long_runs.plan import LOG
from rlconform.certify.properties.long_runs.rows import Put
from rlconform.certify.properties.long_runs.standing_claims import AWAITED
from rlconform.certify.properties.reference_model import PartitionModel
from rlconform.certify.scenarios.partition import batch_of
from rlconform.contract import KVBatchMeta

#: Most rows of a field that are all put again at once.
MANY = 300
#: How often a burst makes its call, and the rows of a read that names rows many times.
BURST, MANY_TIMES = (20, 70, 300), 2_000
#: Seconds of the plane's calls after which a burst ends.
BURST_S = 0.3


class LongRunPartition(ModelledClaims):
    """The calls of a run on one partition; each public method makes one call, or a few."""

    # -- writes ----------------------------------------------------------------------------------

    def put_new(self) -> None:
        """Put new rows, some of them under ids that were cleared."""
        size = min(self._plan.size(), self._plan.most_rows - len(self._model.rows))
        gone = [i for i in self._model.cleared if i not in self._model.rows]
        again = self._plan.some(gone)[:size] if self._plan.rng.random() < 0.5 else []
        ids = [*again, *(self._new_id() for _ in range(size - len(again)))]
        if self._plan.rng.random() < 0.6:
            self._plan.rng.shuffle(ids)
        self._write(ids, self._plan.some_fields(), self._plan.rng.random() < 0.6)

    def put_more(self) -> None:
        """Put fields on rows that exist, whether these have them or not, and on a new row."""
        rng, ids = self._plan.rng, self._plan.some(list(self._model.rows))
        if rng.random() < 0.3:
            ids.insert(rng.choice((0, rng.randint(0, len(ids)))), self._new_id())
        self._write(ids, self._plan.some_fields(), rng.random() < 0.3)

    def fill(self) -> None:
        """Put a field on rows that lack it, such as rows that were only announced by tags."""
        name = self._plan.rng.choice(list(self._kinds))
        lacking = [i for i in self._model.rows if not self._model.produced(i, [name])]
        ids = self._plan.rng.choice((lacking, self._plan.some(lacking)))
        self._write(ids, [name], tagged=False)

    def renew(self) -> None:
        """Put all fields of some rows again with tags, as a rollout that is made anew does."""
        ids = self._plan.some(list(self._model.rows))
        names = [n for n in self._model.rows[ids[0]].versions if n != AWAITED] if ids else []
        rows = self._model.rows
        alike = [i for i in ids if rows[i].versions.keys() - {AWAITED} == {*names}]
        self._write(alike, names, tagged=True)

    def put_again(self) -> None:
        """Repeat an earlier put, as a retry does, whatever was put or cleared since."""
        if put := self._earlier_put():
            self._put(put)

    def set_back(self) -> None:
        """Put other values on the rows of an earlier put, then those of that put again."""
        if put := self._earlier_put():
            ids, rows, tags = put
            self._write(ids, list(rows), tagged=tags is not None)
            self._put(put)

    def _earlier_put(self) -> Put | None:
        """Draw one of the last puts; None if a field has another dtype by now."""
        put = self._plan.rng.choice(self._puts) if self._puts else None
        rows = put[1] if put else {}
        alike = all(self._kinds[n].dtype == rows[n][0].dtype for n in rows if n != LOG)
        return put if alike else None

    def overwrite_all(self) -> None:
        """Put a field again on all rows that have it, half of the time as another dtype."""
        name = self._plan.rng.choice(list(self._kinds))
        held = [i for i in self._model.rows if self._model.produced(i, [name])]
        if len(held) <= MANY or self._plan.large:
            if self._plan.rng.random() < 0.5:
                self._kinds[name] = self._kinds[name].retyped()
            self._write(self._plan.rng.sample(held, len(held)), [name], tagged=False)

    def tag(self) -> None:
        """Put tags alone, on rows that exist and on new ones."""
        ids = self._plan.some(list(self._model.rows))
        more = self._plan.rng.choice((0, 0, 0, 1, self._plan.size()))
        self._write([*ids, *(self._new_id() for _ in range(more))], [], tagged=True)

    def clear(self) -> None:
        """Clear some rows, with unknown ones, all but some, those of one process, or all."""
        rows = list(self._model.rows)
        some: list[str] = self._plan.some(rows)
        ids: list[str] | None = some
        match self._plan.rng.randrange(20 if self._plan.large else 10):
            case 0:
                ids = None
            case 1:
                kept = {*some}
                ids = [i for i in rows if i not in kept]
            case 2 | 3:
                ids = [*some, "nobody", *some[:1]]
            case 4 if some:
                writer = self._writers.get(some[0])
                ids = [i for i in rows if self._writers.get(i) == writer]
        if ids is None:
            self.end_standing()
        self._part.clear(ids)
        self._model.clear(ids)
        if ids is None:  # it may have ended the registration
            self._begin_again()
            self._register()

    def _begin_again(self) -> None:
        """Let groups have another size, and some fields rows of another kind: there is no row."""
        if (size := self._plan.rng.choice(self._plan.group_sizes)) != self._model.group_size:
            self._model = PartitionModel(size)
        drawn = self._plan.draw_kinds(list(self._kinds))
        changed = {name for name in drawn if self._plan.rng.random() < 0.3}
        self._kinds |= {name: drawn[name] for name in changed}
        self._puts.clear()
        for key in [key for key in self._values if key[1] in changed]:
            del self._values[key]

    def register(self) -> None:
        """Register the partition again, perhaps with one task more; all that it holds stays.

        Most added tasks claim all rows at once, as a consumer that joins does.
        """
        more = [task for task in self._plan.tasks if task not in self._tasks]
        added = more[:1] if self._plan.rng.random() < 0.3 else []
        self._tasks += added
        self._register()
        for task in added if self._plan.rng.random() < 0.8 else []:
            self._drain(task)

    def slide(self) -> None:
        """Clear the oldest rows and put as many new ones, as a run with a window of steps does."""
        oldest = list(self._model.rows)[: self._plan.size()]
        if not oldest:
            return
        self._part.clear(oldest)
        self._model.clear(oldest)
        self._write([self._new_id() for _ in oldest], self._plan.some_fields(), tagged=True)

    def refuse(self) -> None:
        """Make a call that must raise, or that may; whatever it does, nothing else may change."""
        rng, rows = self._plan.rng, list(self._model.rows)
        ids, new = self._plan.some(rows) or ["nobody"], self._new_id()
        name, other = rng.sample(list(self._kinds), 2)
        column = self._column(name, self._draw(ids, name))
        lacking = [i for i in rows if not self._model.produced(i, [name])][:1]
        must: list[Callable[[], object]] = [
            lambda: self._part.put_batch([*ids, new], batch_of({name: column}, len(ids))),
            lambda: self._part.put_batch(
                ids, batch_of({name: column}, len(ids)), [{"v": -1}] * (len(ids) + 1)
            ),
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

        Another field comes first, or one that no row has, and tags: nothing of them may stay.
        """
        ids, tags = [*ids, self._new_id()], None
        if self._plan.rng.random() < 0.5:
            fresh = self._plan.rows.draw("fresh", self._kinds[name], [[]] * len(ids))
            first, tags = {"fresh": self._column(name, fresh)}, [{"v": -1} for _ in ids]
        else:
            first = {other: self._column(other, self._draw(ids, other))}
        drawn = self._plan.rows.draw(name, self._kinds[name].retyped(), [[]] * len(ids))
        column = self._column(name, drawn)
        self._part.put_batch(ids, batch_of({**first, name: column}, len(ids)), tags)
        self._plan.over = True

    def burst(self) -> None:
        """Make one cheap call many times, as a poll or a loop over rows does."""
        rng = self._plan.rng
        calls = (self.status, self.claim, self.read_again, self._put_and_clear, self._tag_one)
        call, began = rng.choice(calls), self._plan.runner.plane_seconds
        for _ in range(rng.choice(BURST)):
            call()
            if self._plan.runner.plane_seconds - began > BURST_S:
                return

    def _put_and_clear(self) -> None:
        new = self._new_id()
        if new not in self._model.rows:
            self._write([new], [*self._kinds][:1], tagged=False)
            self._part.clear([new])
            self._model.clear([new])

    def _tag_one(self) -> None:
        self._write([*self._model.rows][:1], [], tagged=True)

    # -- reads -----------------------------------------------------------------------------------

    def read(self) -> None:
        """Read some fields of some rows, or of all rows; a plane may refuse rows named twice."""
        rng, names = self._plan.rng, self._plan.some_fields()
        held = [i for i in self._model.rows if self._model.produced(i, names)]
        some = self._plan.some(held)
        ids = rng.choice((some, some, held, held[::-1], self._by_value(held, names[0])))
        if ids:
            self._reads.append((ids, names))
            self._read(ids, names)
        if ids and rng.random() < 0.1:
            twice = [*ids, *self._plan.some(ids)]
            if rng.random() < 0.1:
                twice = rng.choices(twice, k=MANY_TIMES)
            self._raises(lambda: self._read(twice, names))

    def _by_value(self, ids: Sequence[str], name: str) -> list[str]:
        """Return the ids by the sizes of their rows, then by their values, as packing does."""

        def key(sample_id: str) -> tuple[int, str]:
            value = self._values[sample_id, name][-1]
            size = value.numel() if isinstance(value, Tensor) else 1
            return size, str(value) if size == 1 else ""

        return sorted(ids, key=key)

    def read_again(self) -> None:
        """Read what was read before, in that order or in another."""
        if self._reads:
            ids, names = self._plan.rng.choice(self._reads)
            ids = self._plan.rearranged(ids)
            if self._model.readable(ids, names) == "rows":
                self._read(ids, names)

    def fetch(self) -> None:
        """Read the rows of an earlier claim by its meta, in any order."""
        if self._claimed:
            meta = self._plan.rng.choice(self._claimed)
            self._fetch(meta.subset(self._plan.rearranged(range(meta.size))))

    def _read(self, ids: list[str], names: list[str]) -> None:
        if self._plan.rng.random() < 0.3:
            meta = KVBatchMeta(self._part.id, None, ids, fields=names)
            self._judge_rows(self._part.get_data(meta), ids, names)
        else:
            self._judge_rows(self._part.get(ids, *names), ids, names)

    # -- all ---------------------------------------------------------------------------------------

    def look_at_all(self) -> None:
        """Read all rows, claim for each task what it has not claimed, and compare the status."""
        self.end_standing()
        for name in self._plan.fields:
            if held := [i for i in self._model.rows if self._model.produced(i, [name])]:
                self._judge_rows(self._part.get(held, name), held, [name])
        if self._plan.judges("claims", "tags", "status"):
            for task in self._tasks:
                self._drain(task)
                self.status()
