"""``CallSequence`` makes the calls of one sequence and compares each answer with the model."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch
from tensordict import TensorDictBase

from rlconform.certify.assertions.expect import ContractViolation, expect, expect_column
from rlconform.certify.properties.reference_model import PartitionModel
from rlconform.certify.properties.requirement_sequences import Kind, SequenceProfile
from rlconform.certify.properties.runner import FailureReport, PropertyRunner
from rlconform.certify.scenarios.labeled_rows import labeled_row
from rlconform.certify.scenarios.partition import TASKS, PartitionUnderTest
from rlconform.contract import BatchMeta
from rlconform.wire import stack_or_nest

IDS = ("a", "b", "c", "d")
FIELDS = ("x", "y")
#: Seconds that a claim waits for more rows than are ready, and for rows that are ready, which a
#: slow plane may need. A sequence waits without result only once.
SHORT_WAIT_S = 0.05
LONG_WAIT_S = 0.5


#: Where an answer of a kind is wrong, the requirement that it may follow from.
LEANS_ON: Mapping[Kind, tuple[str, ...]] = {"tags": ("TAG-01",), "timeouts": ("CLAIM-05",)}


class Unjudged(Exception):
    """A call failed in a way that another profile judges; the sequence ends here."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.error = error


@dataclass
class SequenceStats:
    """Totals of all sequences of a run.

    Attributes:
        compared: Number of answers that were judged.
        unjudged: An error that ended a sequence, though the profile doesn't judge it.
    """

    compared: int = 0
    unjudged: FailureReport | None = None


@dataclass
class ModelledPartition:
    """A partition of the plane, its model, and the metas of its claims."""

    part: PartitionUnderTest
    model: PartitionModel
    claimed: list[BatchMeta] = field(default_factory=list)


class CallSequence:
    """The calls of one sequence, each applied to the model too.

    Args:
        runner: Makes partitions and records failures.
        profile: What is judged.
        stats: Shared with the run's other sequences.
    """

    def __init__(
        self, runner: PropertyRunner, profile: SequenceProfile, stats: SequenceStats
    ) -> None:
        runner.begin(enough=stats.compared > 0)
        self.profile = profile
        self.written = False  # whether anything was put since the last clear
        self._runner = runner
        self._stats = stats
        self._ended = False
        self._partitions: dict[str, ModelledPartition] = {}
        self._widths = [0]  # widths of rows, by version
        self._waited = False

    def guarded(self, body: Callable[[], None]) -> None:
        """Run a step, unless the sequence has ended or the time is up."""
        if self._ended:
            return
        self._runner.check_time()
        self._ended = True  # also where the step raises
        with self._runner.watching():
            try:
                body()
            except Unjudged as end:
                self._stats.unjudged = self._runner.failure_of(end.error)
            else:
                self._ended = False

    def partition(self, name: str) -> ModelledPartition:
        """The partition, registered when it is first used."""
        if name not in self._partitions:
            part = self._runner.new_partition(name)
            part.register(FIELDS)
            self._partitions[name] = ModelledPartition(part, PartitionModel())
        return self._partitions[name]

    # -- writes ----------------------------------------------------------------------------------

    def write(
        self,
        partition: ModelledPartition,
        ids: list[str],
        fields: list[str],
        width: int,
        kind: Kind,
        key: str = "",
    ) -> None:
        """Put labelled rows, and a tag with that key for each; no call without ids."""
        if not ids:
            return
        version = len(self._widths)
        self._widths.append(width)
        tags = {i: {key: f"{i}, put {version}"} for i in ids} if key else None
        columns = {
            name: stack_or_nest([self._row(partition, i, name, version) for i in ids])
            for name in fields
        }
        with self._calling(kind):
            partition.part.put(ids, None if tags is None else list(tags.values()), **columns)
        partition.model.put(ids, fields, version, tags)
        self.written = True
        if "status" in self.profile.judged:
            for task in TASKS:
                self.compare_status(partition, [task])

    def write_new(
        self,
        partition: ModelledPartition,
        ids: list[str],
        fields: list[str],
        width: int = 0,
        key: str = "",
    ) -> None:
        """Put those of the rows that have none of these fields yet."""
        new = [i for i in ids if not any(partition.model.produced(i, [name]) for name in fields)]
        reused = any(partition.model.cleared[i] for i in new)
        self.write(partition, new, fields, width, "reuse" if reused else "put", key)

    def clear(self, partition: ModelledPartition, ids: list[str] | None) -> None:
        """Clear rows that exist, that never did, or all.

        A clear of all rows may end the registration, so the partition is registered again.
        """
        with self._calling("clear"):
            partition.part.clear(ids)
        if ids is None:
            with self._calling("start_anew"):
                partition.part.register(FIELDS)
        partition.model.clear(ids)
        self.written = False

    def start_anew(self, partition: ModelledPartition) -> None:
        """Clear all rows and register the partition again, as between two training steps."""
        with self._calling("start_anew"):
            partition.part.clear(None)
            partition.part.register(FIELDS)
        partition.model.clear(None)
        self.written = False

    # -- claims ----------------------------------------------------------------------------------

    def claim(
        self,
        partition: ModelledPartition,
        task: str,
        fields: Sequence[str],
        size: int,
        rank: int | None,
        wait: bool,
    ) -> None:
        """Claim without blocking, or block for rows that are ready, which need not take time."""
        ready = len(partition.model.ready(task, fields))
        waits = wait and ready > 0 and not self._waited
        with self._calling("claims"):
            try:
                meta = partition.part.claim(
                    task,
                    fields,
                    min(size, ready) if waits else size,
                    blocking=waits,
                    timeout_s=LONG_WAIT_S,
                    dp_rank=rank,
                )
            except TimeoutError:
                if not waits:
                    raise
                self._waited = True
                return  # CLAIM-05 judges that; ``look_at_all`` finds rows that were lost
        self._judge_claim(partition, task, fields, meta)
        if "status" in self.profile.judged:
            self.compare_status(partition, [task])

    def time_out(
        self, partition: ModelledPartition, task: str, fields: Sequence[str], more: int
    ) -> None:
        """Block for more rows than are ready: the claim must time out and take none."""
        if self._waited:
            return
        self._waited = True
        size = len(partition.model.ready(task, fields)) + more
        with self._calling("timeouts"):
            try:
                meta = partition.part.claim(
                    task, fields, size, blocking=True, timeout_s=SHORT_WAIT_S
                )
            except TimeoutError:
                self._stats.compared += 1
                return
        expected = f"TimeoutError where fewer than {size} are ready"
        self._judge("timeouts", False, expected, f"a claim of {meta.sample_ids}")
        self._judge_claim(partition, task, fields, meta)

    def _judge_claim(
        self, partition: ModelledPartition, task: str, fields: Sequence[str], meta: BatchMeta
    ) -> None:
        """Judge that the claimed rows were ready and have their tags; update the model."""
        tags = meta.tags or [{} for _ in meta.sample_ids]
        for sample_id, got in zip(meta.sample_ids, tags, strict=True):
            if not self._in_scope(partition, sample_id):
                continue
            why_not = partition.model.why_not_ready(sample_id, task, fields)
            due = f"only rows that are ready for {task}"
            self._judge(
                "claims", not why_not, due, f"{sample_id!r} of {partition.part.id}, {why_not}"
            )
            if row := partition.model.rows.get(sample_id):
                due = f"the tags {row.tags} of {sample_id!r}"
                due += f", perhaps with some of {row.older_tags}" if row.older_tags else ""
                self._judge("tags", row.allows(got), due, repr(got))
        partition.model.claim(task, meta.sample_ids)
        if meta.sample_ids:
            partition.claimed.append(meta)

    def _drain(self, partition: ModelledPartition, task: str) -> None:
        """Claim the ready rows one by one, then once more: all must be returned, then none."""
        for name in FIELDS:
            for _ in partition.model.ready(task, [name]):
                with self._calling("claims"):
                    meta = partition.part.claim(task, [name], 1)
                self._judge_claim(partition, task, [name], meta)
                lost = [
                    i for i in partition.model.ready(task, [name]) if self._in_scope(partition, i)
                ]
                due = f"{task} to claim a row with {name} of {partition.part.id}"
                self._judge("claims", bool(meta.sample_ids or not lost), due, f"none, of {lost}")
        with self._calling("claims"):
            meta = partition.part.claim(task, FIELDS[:1], len(IDS))
        self._judge_claim(partition, task, FIELDS[:1], meta)

    # -- reads -----------------------------------------------------------------------------------

    def fetch(self, partition: ModelledPartition, earlier: int) -> None:
        """Read the rows of an earlier claim by its meta; 0 is the last claim."""
        if len(partition.claimed) <= earlier:
            return
        meta = partition.claimed[-1 - earlier]
        fields = list(meta.fields or [])
        if partition.model.readable(meta.sample_ids, fields) == "rows":
            with self._calling("fetched"):
                batch = partition.part.get_data(meta)
                self._expect_rows(partition, batch, meta.sample_ids, fields)
            self._stats.compared += 1

    def read(self, partition: ModelledPartition, ids: list[str], fields: list[str]) -> None:
        """Read rows that exist, or expect an error if the profile judges that."""
        kind = partition.model.readable(ids, fields)
        if kind == "rows" or kind not in self.profile.judged:
            self.compare_rows(
                partition, [i for i in ids if partition.model.produced(i, fields)], fields
            )
        else:
            self._expect_refusal(partition, ids, fields, kind)

    def compare_rows(
        self, partition: ModelledPartition, ids: Sequence[str], fields: Sequence[str]
    ) -> None:
        """Expect reads of existing rows to return the values put last."""
        ids = [i for i in ids if self._in_scope(partition, i)]
        if not ids or "rows" not in self.profile.judged:
            return
        self._stats.compared += 1
        self._expect_rows(partition, partition.part.get(ids, *fields), ids, fields)

    def _expect_rows(
        self,
        partition: ModelledPartition,
        batch: TensorDictBase,
        ids: Sequence[str],
        fields: Sequence[str],
    ) -> None:
        for name in fields:
            versions = [partition.model.rows[i].versions[name] for i in ids]
            rows = [self._row(partition, i, name, v) for i, v in zip(ids, versions, strict=True)]
            expect_column(batch, name, rows)

    def _expect_refusal(
        self, partition: ModelledPartition, ids: list[str], fields: list[str], kind: Kind
    ) -> None:
        if (
            not ids
            or kind not in self.profile.judged
            or not all(self._in_scope(partition, i) for i in ids)
        ):
            return
        self._stats.compared += 1
        try:
            batch = partition.part.get(ids, *fields)
        except ContractViolation:
            raise
        except Exception as error:
            if not self._runner.raised_by_plane(error):
                raise
            return
        due = f"an error for {fields} of {ids} in {partition.part.id}, as some are {kind}"
        self._judge(kind, False, due, f"a batch of {tuple(batch.batch_size)}")

    def compare_status(self, partition: ModelledPartition, tasks: Sequence[str]) -> None:
        """Expect the status to equal the model's, where the contract defines it."""
        due = partition.model.consumed(tasks)
        if due is None:
            return
        with self._calling("status"):
            got = partition.part.consumed(*tasks)
        self._judge("status", got is due, f"the status of {list(tasks)} to be {due}", str(got))

    def look_at_all(self) -> None:
        """Read and claim all rows at the end, which finds rows that were lost."""
        for partition in self._partitions.values():
            for name in FIELDS:
                held = [i for i in reversed(IDS) if partition.model.produced(i, [name])]
                self.compare_rows(partition, held, [name])
                others = [i for i in partition.model.rows if i not in held]
                self._expect_refusal(partition, others[:1], [name], "unproduced")
            if self.profile.judged & {"claims", "tags", "status"}:
                for task in TASKS:
                    self._drain(partition, task)
            if "status" in self.profile.judged:
                self.compare_status(partition, TASKS)

    # -- judging ---------------------------------------------------------------------------------

    @contextmanager
    def _calling(self, kind: Kind) -> Iterator[None]:
        """Let an error of the call fail the check if ``kind`` is judged; else end the sequence."""
        try:
            yield
        except Exception as error:
            if kind in self.profile.judged or not self._runner.raised_by_plane(error):
                raise
            raise Unjudged(error) from error

    def _judge(self, kind: Kind, right: bool, expected: str, got: str) -> None:
        if kind in self.profile.judged:
            self._stats.compared += 1
            expect(right, expected, got, leans_on=LEANS_ON.get(kind, ()))

    def _in_scope(self, partition: ModelledPartition, sample_id: str) -> bool:
        """Whether the profile judges this row."""
        match self.profile.scope:
            case "all":
                return True
            case "reused":
                return partition.model.cleared[sample_id] > 0
            case "shared":
                models = [other.model for other in self._partitions.values()]
                known = [m.cleared[sample_id] > 0 or sample_id in m.rows for m in models]
                return all(known) and len(known) > 1

    def _row(
        self, partition: ModelledPartition, sample_id: str, name: str, version: int
    ) -> torch.Tensor:
        return labeled_row(partition.part.id, sample_id, name, version, self._widths[version])
