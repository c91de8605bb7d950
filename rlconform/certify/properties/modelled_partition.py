"""``ModelledPartition`` makes the calls of a sequence on one partition, beside a model of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import islice
from typing import Any

from tensordict import TensorDictBase

from rlconform.certify.assertions.expect import ContractViolation
from rlconform.certify.properties.call_values import (
    ARRANGED,
    FIELDS,
    IDS,
    TASKS,
    Arrangement,
    tag_value,
)
from rlconform.certify.properties.judge import Judge
from rlconform.certify.properties.reference_model import PartitionModel, group_of
from rlconform.certify.properties.requirement_sequences import Kind
from rlconform.certify.scenarios.partition import PartitionUnderTest
from rlconform.contract import BatchMeta, KVBatchMeta

#: Seconds that a claim waits for more rows than are ready, and (for slow planes) for ready rows. A
#: sequence waits in vain only once.
SHORT_WAIT_S = 0.05
LONG_WAIT_S = 0.5


class ModelledPartition:
    """A partition of the plane, and its model: each call of the plane also updates the model."""

    def __init__(self, judge: Judge, part: PartitionUnderTest) -> None:
        self.model = PartitionModel(judge.profile.group_size)
        judge.models.append(self.model)
        self._judge = judge
        self._part = part
        self._register()
        self._reads: list[tuple[list[str], list[str]]] = []  # ids and fields
        self._claimed: list[KVBatchMeta] = []  # copies
        self._newest: BatchMeta | None = None
        self._rank: int | None = None  # that claimed last

    def _register(self) -> None:
        groups = {"grpo_group_size": size} if (size := self.model.group_size) > 1 else {}
        self._part.register(FIELDS, TASKS, **groups)

    # -- writes ----------------------------------------------------------------------------------

    def _write(
        self, ids: list[str], fields: list[str], width: int, kind: Kind, key: str = ""
    ) -> None:
        """Put labelled rows, with a tag if ``key`` is given; make no call without ids."""
        if not ids:
            return
        values, version = self._judge.values, self._judge.values.new_version(width)
        tags = {i: {key: tag_value(key, i, n, version)} for n, i in enumerate(ids)} if key else None
        columns = {name: values.column(self._part.id, ids, name, version) for name in fields}
        with self._judge.calling(kind):
            self._part.put(ids, None if tags is None else list(tags.values()), **columns)
        self.model.put(ids, fields, version, tags)
        self._judge.written = True
        self._compare_status(TASKS)

    def _block(self, ids: Sequence[str]) -> list[str]:
        return self._judge.values.universe.rows(ids, self.model.group_size)

    def put(self, ids: list[str], fields: list[str], width: int = 0, key: str = "") -> None:
        """Put the rows that have none of these fields yet."""
        ids = self._block(ids)
        new = [i for i in ids if not any(self.model.produced(i, [name]) for name in fields)]
        reused = any(self.model.cleared[i] for i in new)
        self._write(new, fields, width, "reuse" if reused else "put", key)

    def overwrite(self, ids: list[str], field: str, width: int) -> None:
        """Put newer values, of any length, into the rows that have the field."""
        held = [i for i in self._block(ids) if self.model.produced(i, [field])]
        self._write(held, [field], width, "overwrite")

    def tag(self, ids: list[str], fields: list[str], key: str) -> None:
        """Put tags, alone or with new fields."""
        if fields:
            self.put(ids, fields, key=key)
        else:
            self._write(self._block(ids), [], 0, "tag", key)

    def clear(self, ids: list[str] | None, kind: Kind = "clear") -> None:
        """Clear rows, which need not exist; None clears all rows.

        A clear of all rows may end the registration, so the partition is registered again.
        """
        ids = None if ids is None else self._block(ids)
        with self._judge.calling(kind):
            self._part.clear(ids)
        if ids is None:
            with self._judge.calling("start_anew"):
                self._register()
        self.model.clear(ids)
        self._judge.written = False

    def start_anew(self) -> None:
        """Clear all rows and register the partition again, as between two training steps."""
        self.clear(None, "start_anew")

    # -- claims ----------------------------------------------------------------------------------

    def claim(
        self, task: str, fields: Sequence[str], size: int, how: tuple[int | None, bool]
    ) -> None:
        """Claim rows without blocking, or block for rows that are ready.

        ``how`` is the rank or None, and whether to block.
        """
        self._rank, wait = how
        wait = wait and self.model.group_size == 1  # how many rows to wait for is a question there
        size = (
            size * self._judge.values.universe.block - self._judge.values.universe.block // 3
        )  # a claim may divide a block
        ready = len(self.model.ready(task, fields))
        waits = wait and ready > 0 and not self._judge.waited
        size = min(size, ready) if waits else size
        with self._judge.calling("claims"):
            try:
                meta = self._part.claim(
                    task, fields, size, blocking=waits, timeout_s=LONG_WAIT_S, dp_rank=self._rank
                )
            except TimeoutError:
                if not waits:
                    raise
                self._judge.waited = True
                return  # CLAIM-05 judges that; ``look_at_all`` finds rows that were lost
        self._judge_claim(task, fields, meta)
        self._compare_status(TASKS)

    def time_out(self, task: str, fields: Sequence[str], more: int) -> None:
        """Block for more rows than are ready: the claim must time out and take none."""
        if self._judge.waited:
            return
        self._judge.waited = True
        size = len(self.model.ready(task, fields)) + more
        with self._judge.calling("timeouts"):
            try:
                meta = self._part.claim(task, fields, size, blocking=True, timeout_s=SHORT_WAIT_S)
            except TimeoutError:
                self._judge.stats.compared += 1
                return
        expected = f"TimeoutError where fewer than {size} are ready"
        self._judge.expect("timeouts", False, expected, f"a claim of {meta.sample_ids}")
        self._judge_claim(task, fields, meta)

    def _judge_claim(self, task: str, fields: Sequence[str], meta: BatchMeta) -> None:
        """Expect the claimed rows to be ready and to have their tags; update the model."""
        tags = meta.tags or [{} for _ in meta.sample_ids]
        self._judge_groups(task, fields, meta.sample_ids)
        self._judge_lengths(meta)
        for sample_id, got in zip(meta.sample_ids, tags, strict=True):
            if not self._in_scope(sample_id):
                continue
            why_not = self.model.why_not_ready(sample_id, task, fields)
            due = f"only rows that are ready for {task}"
            found = f"{sample_id!r} of {self._part.id}, {why_not}"
            self._judge.expect("claims", not why_not, due, found)
            if row := self.model.rows.get(sample_id):
                due = f"the tags {row.tags} of {sample_id!r}"
                due += f", perhaps with some of {row.older_tags}" if row.older_tags else ""
                self._judge.expect("tags", row.allows(got), due, repr(got))
        self.model.claim(task, meta.sample_ids)
        self._newest = meta
        if meta.sample_ids:
            self._claimed.append(KVBatchMeta.of(meta).subset(range(len(meta.sample_ids))))

    def _judge_groups(self, task: str, fields: Sequence[str], ids: Sequence[str]) -> None:
        """Expect whole groups, all of whose rows are ready."""
        if self.model.group_size > 1 and ids:
            ready, sizes = set(self.model.ready(task, fields)), Counter(map(group_of, ids))
            whole = ready.issuperset(ids) and {*sizes.values()} == {self.model.group_size}
            due = f"whole groups of rows that are ready for {task}"
            self._judge.expect("claims", whole, due, f"{ids} of {self._part.id}")

    def _judge_lengths(self, meta: BatchMeta) -> None:
        """Expect the lengths of the claimed rows, which are in the model unless the plane erred."""
        if meta.sample_ids and self.model.rows.keys() >= {*meta.sample_ids}:
            allowed, got = self.model.lengths(meta.sample_ids), meta.sequence_lengths
            due = f"sequence_lengths of {meta.sample_ids} to be {' or '.join(map(str, allowed))}"
            self._judge.expect("lengths", got in allowed, due, str(got))

    def _drain(self, task: str) -> None:
        """Claim the ready rows one by one, and expect all of them; then claim once more.

        The rank that claimed last claims them, as the other ranks may be gone.
        """
        for name in FIELDS:
            size = self._judge.values.universe.block * self.model.group_size
            for _ in self.model.ready(task, [name])[::size]:
                claimed = self._claim_ready(task, name, size)
                lost = [i for i in self.model.ready(task, [name]) if self._in_scope(i)]
                due = f"{task} to claim a row with {name} of {self._part.id}"
                self._judge.expect("claims", bool(claimed or not lost), due, f"none, of {lost}")
        self._claim_ready(task, FIELDS[0], len(IDS) * self._judge.values.universe.block)

    def _claim_ready(self, task: str, field: str, size: int) -> list[str]:
        with self._judge.calling("claims"):
            meta = self._part.claim(task, [field], size, dp_rank=self._rank)
        self._judge_claim(task, [field], meta)
        return meta.sample_ids

    # -- reads -----------------------------------------------------------------------------------

    def fetch(self, earlier: int, arrange: Arrangement) -> None:
        """Read the rows of a claim by its meta; ``earlier`` counts back from the last claim, 0.

        A trainer may have arranged the rows of the meta in another order.
        """
        if len(self._claimed) <= earlier:
            return
        meta = self._claimed[-1 - earlier]
        meta = meta.subset(ARRANGED[arrange](list(range(meta.size))))
        fields = list(meta.fields or [])
        if self.model.readable(meta.sample_ids, fields) == "rows":
            with self._judge.calling("fetched"):
                self._expect_rows(self._part.get_data(meta), meta.sample_ids, fields)
            self._judge.stats.compared += 1

    def spoil(self) -> None:
        """Change the newest claimed meta as a caller may; no later answer may show the change."""
        meta, self._newest = self._newest, None
        lists: list[Any] = [] if meta is None else [meta.sample_ids, meta.tags, meta.fields]
        for values in lists:
            if isinstance(values, list):
                values.append("spoiled")

    def read(self, ids: list[str], fields: list[str]) -> None:
        """Read the rows that exist; if some do not, and the profile judges it, expect an error."""
        self._reads.append((self._block(ids), fields))
        self._read(*self._reads[-1])

    def read_again(self, earlier: int, arrange: Arrangement) -> None:
        """Read what was read before, in that order or another; a plane may remember such a read."""
        if len(self._reads) > earlier:
            ids, fields = self._reads[-1 - earlier]
            rows = ARRANGED[arrange](list(range(len(ids))))
            self._read([ids[row] for row in rows], fields)

    def _read(self, ids: list[str], fields: list[str]) -> None:
        kind = self.model.readable(ids, fields)
        if kind == "rows" or not self._judge.judges(kind):
            self._compare_rows([i for i in ids if self.model.produced(i, fields)], fields)
        else:
            self._expect_refusal(ids, fields, kind)

    def _compare_rows(self, ids: list[str], fields: list[str]) -> None:
        """Expect a read of existing rows to return the values put last."""
        ids = [i for i in ids if self._in_scope(i)]
        if ids and self._judge.judges("rows"):
            self._judge.stats.compared += 1
            self._expect_rows(self._part.get(ids, *fields), ids, fields)

    def _expect_rows(self, batch: TensorDictBase, ids: list[str], fields: list[str]) -> None:
        for name in fields:
            put = [(i, self.model.rows[i].versions[name]) for i in ids]
            self._judge.values.expect(batch, self._part.id, name, put)

    def _expect_refusal(self, ids: list[str], fields: list[str], kind: Kind) -> None:
        if not ids or not self._judge.judges(kind) or not all(map(self._in_scope, ids)):
            return
        self._judge.stats.compared += 1
        try:
            batch = self._part.get(ids, *fields)
        except ContractViolation:
            raise
        except Exception as error:
            if not self._judge.runner.raised_by_plane(error):
                raise
            return
        due = f"an error for {fields} of {ids} in {self._part.id}, as some are {kind}"
        self._judge.expect(kind, False, due, f"a batch of {tuple(batch.batch_size)}")

    def status(self, tasks: Sequence[str]) -> None:
        """Expect the status to equal the model's status, where the contract defines it."""
        due = self.model.consumed(tasks)
        if due is None:
            return
        with self._judge.calling("status"):
            got = self._part.consumed(*tasks)
        what = f"the status of {list(tasks)} to be {due}"
        self._judge.expect("status", got is due, what, str(got))

    def _compare_status(self, tasks: Sequence[str]) -> None:
        """Compare the status of each task alone, if the profile judges it."""
        for task in tasks if self._judge.judges("status") else ():
            self.status([task])

    def look_at_all(self) -> None:
        """Read and claim all rows, and read what was claimed by its metas."""
        if not self._rows_to_judge():
            self.start_anew()
            self.put([*IDS], [*FIELDS])
        for name in FIELDS:
            held = [i for i in reversed(self.model.rows) if self.model.produced(i, [name])]
            self._compare_rows(held, [name])
            others = (i for i in self.model.rows if not self.model.produced(i, [name]))
            self._expect_refusal([*islice(others, 1)], [name], "unproduced")
        if self._judge.judges("claims", "tags", "status", "fetched"):
            for task in TASKS:
                self._drain(task)
        if self._judge.judges("fetched"):
            for earlier in range(len(self._claimed)):
                self.fetch(earlier, "as before")
        if self._judge.judges("status"):
            self.status(TASKS)

    def _rows_to_judge(self) -> bool:
        """Whether a profile that judges rows whose id was cleared before has any here."""
        return self._judge.profile.scope != "reused" or any(map(self._in_scope, self.model.rows))

    def _in_scope(self, sample_id: str) -> bool:
        return self._judge.in_scope(self.model, sample_id)
