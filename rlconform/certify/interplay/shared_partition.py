"""``SharedPartition``: one scenario's partition, called by several processes, beside its model."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from rlconform.certify.assertions.expect import ContractViolation, expect_rejection
from rlconform.certify.interplay.attribution import Circumstances, Kind, requirement_of
from rlconform.certify.interplay.processes import Processes
from rlconform.certify.interplay.row_versions import (
    IDS,
    LABELS,
    LARGE,
    LATER,
    NUMBERS,
    OBJECTS,
    ROWS,
    RowVersions,
)
from rlconform.certify.interplay.scenario import InterplayScenario
from rlconform.certify.interplay.shared_model import SharedModel
from rlconform.certify.scenarios.partition import PartitionUnderTest
from rlconform.contract import KVBatchMeta
from rlconform.contract.fields import INPUT_LENGTHS

#: Tasks at first, and of the other schema; no look before the last one claims for the last task.
TASKS = ("train", "lp", "audit")
OTHER_TASKS = ("train", "judge", "audit")


class Difference(Exception):
    """A wrong answer, and the requirement that it breaks."""

    def __init__(self, requirement: str, error: Exception) -> None:
        super().__init__(str(error))
        self.requirement, self.error = requirement, error


class SharedPartition:
    """The partition of a scenario; each method makes one call in a process, and updates the model.

    ``objects``: the plane carries object columns.
    """

    def __init__(self, scenario: InterplayScenario, processes: Processes, objects: bool) -> None:
        self.scenario, self._processes = scenario, processes
        self.group_size = 2 if scenario.layout == "groups" else 1
        self.model = SharedModel(self.group_size)
        large_and_jagged = scenario.layout == "large" and scenario.dtype % 2 == 1
        jagged, texts = scenario.layout == "jagged" or large_and_jagged, scenario.dtype in {1, 2}
        self.values = RowVersions(jagged, scenario.dtype, texts, alike=scenario.order % 2 == 1)
        self.fields = [LABELS, NUMBERS, *([OBJECTS] if objects else [])]
        self.tasks = TASKS
        self.now = Circumstances(alone=scenario.alone)
        self.held: list[KVBatchMeta] = []  # metas of claims
        self.receipts: list[KVBatchMeta] = []  # of puts with fields
        self.later: Difference | None = None  # one that does not keep the scenario from going on
        self._part = processes.partition(f"i-{uuid.uuid4().hex[:8]}")
        self._neighbour = processes.partition(f"{self._part.id}-b")

    def view(self, process: int) -> PartitionUnderTest:
        """Return the partition as a process sees it."""
        return self._part.via(self._processes.clients[process])

    def neighbour(self, process: int) -> PartitionUnderTest:
        """Return another partition, with a name that begins alike, as a process sees it."""
        return self._neighbour.via(self._processes.clients[process])

    @contextmanager
    def judging(self, kind: Kind) -> Iterator[None]:
        """Turn the plane's errors in the block into a ``Difference``."""
        try:
            yield
        except Exception as error:
            if isinstance(error, Difference) or not self._processes.raised_by_plane(error):
                raise
            order = kind == "rows" and "GET-01" in getattr(error, "leans_on", ())
            raise self.difference("order" if order else kind, error) from error

    def difference(self, kind: Kind, error: Exception) -> Difference:
        """Return the difference that an error shows."""
        return Difference(requirement_of(kind, self.now), error)

    def expect(self, kind: Kind, right: bool, expected: str, got: object) -> None:
        """Raise a difference of this kind unless the answer is right."""
        if not right:
            raise self.difference(kind, ContractViolation(expected, str(got)))

    def without_groups(self) -> None:
        """Let the next registration ask for single rows."""
        self.group_size = self.model.group_size = 1

    # -- rows ------------------------------------------------------------------------------------

    def live(self) -> list[str]:
        """Return the ids of the rows that have values, in the order of their first put."""
        return [i for i in IDS if self.model.produced(i, [LABELS])]

    @property
    def width(self) -> int:
        """The bytes of a label."""
        return LARGE if self.scenario.layout == "large" else 0

    def register(self, process: int) -> None:
        """Register the partition with the tasks of the current schema."""
        groups = {"grpo_group_size": self.group_size} if self.group_size > 1 else {}
        self.now.registered_again |= bool(self.model.rows)
        fields = [*self.fields, LATER]
        rows = len(ROWS if self.scenario.fewer_rows else IDS)
        self.view(process).register(fields, self.tasks, num_samples=rows, **groups)

    def put(
        self,
        process: int,
        ids: Sequence[str],
        fields: Sequence[str] = (),
        keys: Sequence[str] = (),
        width: int | None = None,
    ) -> None:
        """Put these fields of rows, and tags with these keys."""
        ids, part = list(ids), self.view(process)
        version = self.values.new_version(self.width if width is None else width)
        tags = {i: {key: _tag(key, i, version) for key in keys} for i in ids} if keys else None
        columns = {name: self.values.column(part.id, ids, name, version) for name in fields}
        receipt = part.put(ids, None if tags is None else list(tags.values()), **columns)
        if fields:
            self.receipts.append(KVBatchMeta.of(receipt))
        self.model.note_writer(ids, process)
        self.model.put(ids, fields, version, tags)

    def put_first(self, process: int) -> None:
        """Put the rows that a step begins with, with their tags; a group lacks its last row."""
        lengths = [INPUT_LENGTHS] if self.scenario.dtype % 2 == 0 else []
        rows = list(ROWS[:-1] if self.scenario.layout == "groups" else ROWS)
        other = self.scenario.turns
        shares = {process: rows}
        if other is not None and other != process:
            shares = {process: rows[::2], other: rows[1::2]}
        for writer, ids in shares.items():
            self.put(writer, ids, self.fields, ["m", *lengths])

    def clear(self, process: int, ids: Sequence[str]) -> None:
        """Clear these rows."""
        self.view(process).clear(ids)
        self.model.clear(ids)

    def expect_values(self, process: int, ids: Sequence[str], fields: Sequence[str]) -> None:
        """Expect a read to return the newest values, or to raise where the model says so."""
        part, due = self.view(process), self.model.readable(ids, fields)
        if due == "rows":
            with self.judging("rows"):
                self.compare(part.get(ids, *fields), ids, fields)
            return
        what = f"a read of {list(fields)} of {list(ids)}, as some are {due},"
        self.expect_refusal(due, lambda: part.get(ids, *fields), what)

    def compare(self, batch: object, ids: Sequence[str], fields: Sequence[str]) -> None:
        """Expect a batch to hold the newest values."""
        for name in fields:
            put = [(i, self.model.rows[i].versions[name]) for i in ids]
            self.values.expect(batch, self._part.id, name, put)  # type: ignore[arg-type]

    def expect_refusal(self, kind: Kind, call: Callable[[], object], what: str) -> None:
        """Expect a call to raise, whatever the error."""
        with self.judging(kind):
            expect_rejection(call, what)


def _tag(key: str, sample_id: str, version: int) -> str | int | float:
    """Return a value that no other row or put has: a length, or texts and numbers in turn."""
    number = IDS.index(sample_id)
    if key == INPUT_LENGTHS:
        return 100 * version + number
    text = f"{sample_id}, put {version}"
    values = (
        text,
        f"{text}, and more of a text that is long",
        100.5 * version + number,
        1000 * version + number,
    )
    return values[(number + version) % len(values)]
