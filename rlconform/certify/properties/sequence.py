"""One history: its partitions, their models, and each call with what is judged of its answer."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch
from tensordict import TensorDictBase

from rlconform.certify.assertions.values import ContractViolation, expect, expect_column
from rlconform.certify.properties.reference_model import PartitionModel
from rlconform.certify.properties.runner import FailureReport, PropertyRunner
from rlconform.certify.properties.sequence_profiles import Kind, SequenceProfile
from rlconform.certify.scenarios.labeled_rows import labeled_row
from rlconform.certify.scenarios.partition import TASKS, PartitionUnderTest
from rlconform.contract import BatchMeta
from rlconform.wire import stack_or_nest

IDS = ("a", "b", "c", "d")
FIELDS = ("x", "y")
#: Seconds that a claim waits for more rows than there are, and for rows that are there, which a
#: slow plane may need. A history waits in vain once.
SHORT_WAIT_S = 0.05
LONG_WAIT_S = 0.5


#: Where an answer of a kind is wrong, the requirement that it may follow from.
LEANS_ON: Mapping[Kind, tuple[str, ...]] = {"tags": ("TAG-01",), "timeouts": ("CLAIM-05",)}


class Unjudged(Exception):
    """A call went wrong in a way that another play judges: the history ends here."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.error = error


@dataclass
class SequenceStats:
    """What all histories of a run came to.

    Attributes:
        compared: Answers that were judged.
        unjudged: What ended a history, though the play doesn't judge it.
    """

    compared: int = 0
    unjudged: FailureReport | None = None


@dataclass
class ModelledPartition:
    """A partition in play: as the plane has it, and as it should be; and what was claimed of it."""

    part: PartitionUnderTest
    model: PartitionModel
    claimed: list[BatchMeta] = field(default_factory=list)


class CallSequence:
    """The calls of one history, each followed by the model.

    Args:
        explorer: What makes partitions and remembers failures.
        play: What is judged.
        tally: Shared with the run's other histories.
    """

    def __init__(
        self, explorer: PropertyRunner, play: SequenceProfile, tally: SequenceStats
    ) -> None:
        explorer.begin(enough=tally.compared > 0)
        self.play = play
        self.written = False  # since the last clear
        self._explorer = explorer
        self._tally = tally
        self._over = False
        self._sides: dict[str, ModelledPartition] = {}
        self._widths = [0]  # of the rows, by version
        self._waited = False

    def guarded(self, body: Callable[[], None]) -> None:
        """Run a step: not once the history is over, nor once the time is up."""
        if self._over:
            return
        self._explorer.check_time()
        self._over = True  # unless it comes back as it should
        with self._explorer.watching():
            try:
                body()
            except Unjudged as end:
                self._tally.unjudged = self._explorer.failure_of(end.error)
            else:
                self._over = False

    def side(self, where: str) -> ModelledPartition:
        """The partition, registered when it is first used."""
        if where not in self._sides:
            part = self._explorer.new_partition(where)
            part.register(FIELDS)
            self._sides[where] = ModelledPartition(part, PartitionModel())
        return self._sides[where]

    # -- writes ----------------------------------------------------------------------------------

    def write(
        self,
        side: ModelledPartition,
        ids: list[str],
        fields: list[str],
        width: int,
        kind: Kind,
        key: str = "",
    ) -> None:
        """Put self-describing rows, and a tag of that key for each; nothing without ids."""
        if not ids:
            return
        version = len(self._widths)
        self._widths.append(width)
        tags = {i: {key: f"{i}, put {version}"} for i in ids} if key else None
        columns = {
            name: stack_or_nest([self._row(side, i, name, version) for i in ids]) for name in fields
        }
        with self._calling(kind):
            side.part.put(ids, None if tags is None else list(tags.values()), **columns)
        side.model.put(ids, fields, version, tags)
        self.written = True
        if "status" in self.play.judged:
            for task in TASKS:
                self.compare_status(side, [task])

    def write_new(
        self,
        side: ModelledPartition,
        ids: list[str],
        fields: list[str],
        width: int = 0,
        key: str = "",
    ) -> None:
        """Put those rows that have none of these fields yet."""
        new = [i for i in ids if not any(side.model.produced(i, [name]) for name in fields)]
        reborn = any(side.model.lives[i] for i in new)
        self.write(side, new, fields, width, "rebirth" if reborn else "put", key)

    def clear(self, side: ModelledPartition, ids: list[str] | None) -> None:
        """Clear rows that are there, that never were, or all.

        A clear of everything may end the registration, so the partition is registered again.
        """
        with self._calling("clear"):
            side.part.clear(ids)
        if ids is None:
            with self._calling("start_anew"):
                side.part.register(FIELDS)
        side.model.clear(ids)
        self.written = False

    def start_anew(self, side: ModelledPartition) -> None:
        """Clear all and register again, as a step ends and the next begins."""
        with self._calling("start_anew"):
            side.part.clear(None)
            side.part.register(FIELDS)
        side.model.clear(None)
        self.written = False

    # -- claims ----------------------------------------------------------------------------------

    def claim(
        self,
        side: ModelledPartition,
        task: str,
        fields: Sequence[str],
        size: int,
        rank: int | None,
        wait: bool,
    ) -> None:
        """Claim now or, of what is ready, after a wait: that need not take any time."""
        ready = len(side.model.ready(task, fields))
        waits = wait and ready > 0 and not self._waited
        with self._calling("claims"):
            try:
                meta = side.part.claim(
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
                return  # CLAIM-05 judges it; whether a row is lost shows in the end
        self._take(side, task, fields, meta)
        if "status" in self.play.judged:
            self.compare_status(side, [task])

    def time_out(
        self, side: ModelledPartition, task: str, fields: Sequence[str], more: int
    ) -> None:
        """Claim more rows than are ready, with a wait: none may be taken."""
        if self._waited:
            return
        self._waited = True
        size = len(side.model.ready(task, fields)) + more
        with self._calling("timeouts"):
            try:
                meta = side.part.claim(task, fields, size, blocking=True, timeout_s=SHORT_WAIT_S)
            except TimeoutError:
                self._tally.compared += 1
                return
        came = f"a claim of {meta.sample_ids}"
        self._judge("timeouts", False, f"TimeoutError where fewer than {size} are ready", came)
        self._take(side, task, fields, meta)

    def _take(
        self, side: ModelledPartition, task: str, fields: Sequence[str], meta: BatchMeta
    ) -> None:
        """What a claim handed out was ready, and carries its tags."""
        tags = meta.tags or [{} for _ in meta.sample_ids]
        for sample_id, came in zip(meta.sample_ids, tags, strict=True):
            if not self._counts(side, sample_id):
                continue
            why_not = side.model.why_not_ready(sample_id, task, fields)
            due = f"only rows that are ready for {task}"
            self._judge("claims", not why_not, due, f"{sample_id!r} of {side.part.id}, {why_not}")
            if row := side.model.rows.get(sample_id):
                due = f"the tags {row.tags} of {sample_id!r}"
                due += f", and perhaps what is left of {row.older_tags}" if row.older_tags else ""
                self._judge("tags", row.may_carry(came), due, repr(came))
        side.model.claim(task, meta.sample_ids)
        if meta.sample_ids:
            side.claimed.append(meta)

    def _drain(self, side: ModelledPartition, task: str) -> None:
        """Claim what is ready, one by one, and once more: all comes, and then nothing."""
        for name in FIELDS:
            for _ in side.model.ready(task, [name]):
                with self._calling("claims"):
                    meta = side.part.claim(task, [name], 1)
                self._take(side, task, [name], meta)
                lost = [i for i in side.model.ready(task, [name]) if self._counts(side, i)]
                due = f"{task} to be handed a row with {name} of {side.part.id}"
                self._judge("claims", bool(meta.sample_ids or not lost), due, f"none, of {lost}")
        with self._calling("claims"):
            meta = side.part.claim(task, FIELDS[:1], len(IDS))
        self._take(side, task, FIELDS[:1], meta)

    # -- reads -----------------------------------------------------------------------------------

    def fetch(self, side: ModelledPartition, earlier: int) -> None:
        """Read the rows of the claim that came so many before the last, by its meta."""
        if len(side.claimed) <= earlier:
            return
        meta = side.claimed[-1 - earlier]
        fields = list(meta.fields or [])
        if side.model.readable(meta.sample_ids, fields) == "rows":
            with self._calling("fetched"):
                batch = side.part.get_data(meta)
                self._expect_rows(side, batch, meta.sample_ids, fields)
            self._tally.compared += 1

    def read(self, side: ModelledPartition, ids: list[str], fields: list[str]) -> None:
        """A read that is due to raise; where the play judges none, of what is there."""
        kind = side.model.readable(ids, fields)
        if kind == "rows" or kind not in self.play.judged:
            self.compare_rows(side, [i for i in ids if side.model.produced(i, fields)], fields)
        else:
            self._expect_refusal(side, ids, fields, kind)

    def compare_rows(
        self, side: ModelledPartition, ids: Sequence[str], fields: Sequence[str]
    ) -> None:
        """Rows that are there come back, each as it was put last."""
        ids = [i for i in ids if self._counts(side, i)]
        if not ids or "rows" not in self.play.judged:
            return
        self._tally.compared += 1
        self._expect_rows(side, side.part.get(ids, *fields), ids, fields)

    def _expect_rows(
        self,
        side: ModelledPartition,
        batch: TensorDictBase,
        ids: Sequence[str],
        fields: Sequence[str],
    ) -> None:
        for name in fields:
            versions = [side.model.rows[i].versions[name] for i in ids]
            rows = [self._row(side, i, name, v) for i, v in zip(ids, versions, strict=True)]
            expect_column(batch, name, rows)

    def _expect_refusal(
        self, side: ModelledPartition, ids: list[str], fields: list[str], kind: Kind
    ) -> None:
        if not ids or kind not in self.play.judged or not all(self._counts(side, i) for i in ids):
            return
        self._tally.compared += 1
        try:
            batch = side.part.get(ids, *fields)
        except ContractViolation:
            raise
        except Exception as error:
            if not self._explorer.raised_by_plane(error):
                raise
            return
        due = f"an error for {fields} of {ids} in {side.part.id}, as some are {kind}"
        self._judge(kind, False, due, f"a batch of {tuple(batch.batch_size)}")

    def compare_status(self, side: ModelledPartition, tasks: Sequence[str]) -> None:
        """The status is the model's, where the contract says what it is."""
        due = side.model.consumed(tasks)
        if due is None:
            return
        with self._calling("status"):
            came = side.part.consumed(*tasks)
        self._judge("status", came is due, f"the status of {list(tasks)} to be {due}", str(came))

    def look_at_all(self) -> None:
        """In the end all rows are read and claimed: what was lost shows here."""
        for side in self._sides.values():
            for name in FIELDS:
                held = [i for i in reversed(IDS) if side.model.produced(i, [name])]
                self.compare_rows(side, held, [name])
                others = [i for i in side.model.rows if i not in held]
                self._expect_refusal(side, others[:1], [name], "unproduced")
            if self.play.judged & {"claims", "tags", "status"}:
                for task in TASKS:
                    self._drain(side, task)
            if "status" in self.play.judged:
                self.compare_status(side, TASKS)

    # -- judging ---------------------------------------------------------------------------------

    @contextmanager
    def _calling(self, kind: Kind) -> Iterator[None]:
        """An error of the call breaks ``kind``; where that isn't judged, the history ends."""
        try:
            yield
        except Exception as error:
            if kind in self.play.judged or not self._explorer.raised_by_plane(error):
                raise
            raise Unjudged(error) from error

    def _judge(self, kind: Kind, right: bool, expected: str, came: str) -> None:
        if kind in self.play.judged:
            self._tally.compared += 1
            expect(right, expected, came, leans_on=LEANS_ON.get(kind, ()))

    def _counts(self, side: ModelledPartition, sample_id: str) -> bool:
        """Whether the play judges this row."""
        match self.play.whose:
            case "all":
                return True
            case "reborn":
                return side.model.lives[sample_id] > 0
            case "shared":
                models = [other.model for other in self._sides.values()]
                known = [m.lives[sample_id] > 0 or sample_id in m.rows for m in models]
                return all(known) and len(known) > 1

    def _row(
        self, side: ModelledPartition, sample_id: str, name: str, version: int
    ) -> torch.Tensor:
        return labeled_row(side.part.id, sample_id, name, version, self._widths[version])
