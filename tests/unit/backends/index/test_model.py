"""The index is compared with a plain dict after random puts, claims, clears and compactions.

A payload holds the version with which each of its cells was put. A source that points at the
wrong block, place or field therefore returns a wrong version.
"""

from __future__ import annotations

import weakref
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from rlconform.backends.index import CompactedBlock, Extent, Index, Source
from rlconform.backends.index.block import SLACK_BYTES
from rlconform.contract import UnknownField, UnknownPartition, UnknownSample, UnknownTask

PARTITIONS = st.sampled_from(["p", "p", "p", "q"])
IDS = ["u_g0", "u_g1", "u_g2", "v_g0", "a", "v_g1", "b", "c"]
FIELDS = ["x", "y", "z"]
TASKS = ["t", "u"]
WRITERS = ["first", "second"]
#: Rows of a few of these sizes waste more than a block may.
SIZES = st.sampled_from([0, 10, 40_000, 70_000])
SOME_IDS = st.lists(st.sampled_from(IDS), unique=True, min_size=1, max_size=4)
SOME_FIELDS = st.sampled_from([["x"], ["x"], ["x", "y"], ["y"], ["y", "x", "z"]])
PLACE_BYTES = 8


@dataclass(eq=False)
class Payload:
    """The versions of a block's cells, by field and place."""

    cells: dict[tuple[str, int], int]


@dataclass
class Sample:
    """The model's record of a row."""

    age: int
    group: tuple[str | None, int]
    writer: str
    versions: dict[str, int] = field(default_factory=dict)
    tags: dict[str, Any] = field(default_factory=dict)
    claimed_by: set[str] = field(default_factory=set)


@dataclass
class Model:
    """A partition as a dict of rows, which every operation searches completely."""

    rows: dict[str, Sample] = field(default_factory=dict)
    tasks: set[str] = field(default_factory=set)
    group_size: int = 1
    ever_produced: bool = False
    n_created: int = 0
    n_ungrouped: int = 0

    def new_row(self, sample_id: str, writer: str) -> Sample:
        uid, is_generation, index = sample_id.rpartition("_g")
        if is_generation:
            group: tuple[str | None, int] = (uid, int(index) // self.group_size)
        else:
            group = (None, self.n_ungrouped // self.group_size)
            self.n_ungrouped += 1
        row = self.rows[sample_id] = Sample(self.n_created, group, writer)
        self.n_created += 1
        return row

    def ready_units(self, task: str, required: list[str]) -> list[list[str]]:
        """Ids that may be claimed, in units of a group, oldest unit first."""
        ready = [
            (sample_id, row)
            for sample_id, row in self.rows.items()
            if set(required) <= row.versions.keys() and task not in row.claimed_by
        ]
        if self.group_size == 1:
            return [[sample_id] for sample_id, _ in ready]
        groups: dict[Any, list[tuple[str, Sample]]] = {}
        for sample_id, row in ready:
            groups.setdefault(row.group, []).append((sample_id, row))
        whole = [members for members in groups.values() if len(members) == self.group_size]
        whole.sort(key=lambda members: max(row.age for _, row in members))
        return [[sample_id for sample_id, _ in members] for members in whole]

    def all_claimed(self, task: str) -> bool:
        produced = [row for row in self.rows.values() if row.versions]
        known = task in self.tasks and self.ever_produced
        return known and all(task in row.claimed_by for row in produced)


class IndexMachine(RuleBasedStateMachine):
    """Makes the same calls to an index and the model; compacts due blocks soon or much later."""

    def __init__(self) -> None:
        super().__init__()
        self.index = Index()
        self.models = {"p": Model(), "q": Model()}
        self.kinds: dict[tuple[str, str], str] = {}
        self.versions = 0
        self.due: list[int] = []
        self.begun: list[tuple[int, Payload, dict[frozenset[str], list[int]]]] = []
        self.sizes: dict[int, int] = {}  # of cells, by version
        self.payloads: list[weakref.ref[Payload]] = []

    @initialize(group_size=st.sampled_from([1, 1, 2]))
    def start(self, group_size: int) -> None:
        self.register("p", TASKS, group_size)

    # Puts

    @rule(
        partition_id=PARTITIONS,
        sample_ids=SOME_IDS | st.permutations(IDS),
        names=SOME_FIELDS | st.just([]),
        kind=st.sampled_from(["int64"] * 9 + ["float32"]),
        tag=st.none() | st.sampled_from(["m", "n"]),
        writer=st.sampled_from(WRITERS),
        size=SIZES,
        ragged=st.booleans(),
    )
    def put(
        self,
        partition_id: str,
        sample_ids: list[str],
        names: list[str],
        kind: str,
        tag: str | None,
        writer: str,
        size: int,
        ragged: bool,
    ) -> None:
        model = self.models[partition_id]
        self.versions += 1
        first_version = self.versions * 1000
        tags = None if tag is None else [{tag: (i, self.versions)} for i in sample_ids]
        cells = {
            (name, place): first_version + number * 100 + place
            for number, name in enumerate(names)
            for place in range(len(sample_ids))
        }
        payload, extents = self._stored(
            names, cells, {v: size + (v % 3 if ragged else 0) for v in cells.values()}, kind, ragged
        )
        held = [
            (name, sample_id)
            for name in names
            for sample_id, row in model.rows.items()
            if name in row.versions and sample_id not in sample_ids
        ]
        mixed = any(self.kinds[partition_id, name] != kind for name, _ in held)
        try:
            due = self.index.commit(partition_id, sample_ids, extents, payload, tags, writer)
        except ValueError:
            assert mixed
            return
        assert not mixed
        self.due += due
        for place, sample_id in enumerate(sample_ids):
            row = model.rows.get(sample_id) or model.new_row(sample_id, writer)
            if names and not row.versions:
                row.writer = writer
            row.versions |= {name: cells[name, place] for name in names}
            row.tags |= {} if tags is None else tags[place]
        for name in names:
            self.kinds[partition_id, name] = kind
            model.ever_produced = True

    def _stored(
        self,
        names: list[str],
        cells: dict[tuple[str, int], int],
        sizes: dict[int, int],
        kind: str,
        ragged: bool,
    ) -> tuple[Payload, dict[str, Extent]]:
        """A payload that the machine watches, with its extents."""
        payload = Payload(cells)
        self.payloads.append(weakref.ref(payload))
        self.sizes |= sizes
        columns = {
            name: [self.sizes[v] for (n, _), v in cells.items() if n == name] for name in names
        }
        return payload, {
            name: Extent(kind, np.array(column) if ragged else column[0])
            for name, column in columns.items()
        }

    # Claims

    @rule(
        partition_id=PARTITIONS,
        task=st.sampled_from(TASKS),
        required=SOME_FIELDS,
        batch_size=st.integers(1, 4),
        looks_first=st.booleans(),
    )
    def claim(
        self,
        partition_id: str,
        task: str,
        required: list[str],
        batch_size: int,
        looks_first: bool,
    ) -> None:
        model = self.models[partition_id]
        try:
            partition = self.index.partition(partition_id)
            names = frozenset(required)
            looked = partition.is_ready(task, names, batch_size) if looks_first else None
            claimed = partition.claim(task, names, batch_size)
        except (UnknownPartition, UnknownTask):
            assert task not in model.tasks
            return
        assert task in model.tasks
        wanted = batch_size // model.group_size
        units = model.ready_units(task, required)
        assert looked in {None, len(units) >= wanted}
        expected = [sample_id for unit in units[:wanted] for sample_id in unit]
        assert [row.sample_id for row in claimed] == expected
        assert [row.tags for row in claimed] == [model.rows[i].tags for i in expected]
        for sample_id in expected:
            model.rows[sample_id].claimed_by.add(task)

    # Clears

    @rule(
        partition_id=PARTITIONS,
        sample_ids=st.sampled_from([IDS[:1], IDS[2:4], IDS[5:], IDS[1:7:2], [], None]),
        writer=st.sampled_from([*WRITERS, "other"]),
    )
    def clear(self, partition_id: str, sample_ids: list[str] | None, writer: str) -> None:
        self.due += self.index.clear(partition_id, sample_ids, writer)
        rows = self.models[partition_id].rows
        gone = [i for i, row in rows.items() if row.writer == writer]
        for sample_id in gone if sample_ids is None else sample_ids:
            rows.pop(sample_id, None)

    # Registrations are rare, because most would find rows and change nothing

    @precondition(lambda self: self.versions % 4 == 3)
    @rule(
        partition_id=PARTITIONS,
        tasks=st.lists(st.sampled_from(TASKS), unique=True),
        group_size=st.integers(1, 3),
    )
    def register(self, partition_id: str, tasks: list[str], group_size: int) -> None:
        model = self.models[partition_id]
        if model.rows and group_size != model.group_size:
            with pytest.raises(ValueError, match="grpo_group_size"):
                self.index.register(partition_id, tasks, group_size)
            return
        self.index.register(partition_id, tasks, group_size)
        if not model.rows:
            model = self.models[partition_id] = Model()
        model.tasks.update(tasks)
        model.group_size = group_size

    # Compaction, during which other calls may happen

    @precondition(lambda self: self.due)
    @rule(newest=st.booleans())
    def begin_to_rewrite(self, newest: bool) -> None:
        number = self.due.pop(-1 if newest else 0)
        payload, live = self.index.survivors(number)
        if live:
            self.begun.append((number, payload, dict(live)))

    @precondition(lambda self: self.begun)
    @rule(newest=st.booleans())
    def finish_to_rewrite(self, newest: bool) -> None:
        number, payload, live = self.begun.pop(-1 if newest else 0)
        parts = []
        for names, indexes in live.items():
            cells = {
                (name, place): payload.cells[name, index]
                for name in names
                for place, index in enumerate(indexes)
            }
            new, extents = self._stored(sorted(names), cells, {}, "int64", ragged=True)
            parts.append(CompactedBlock(indexes, extents, new))
        self.due += self.index.move(number, parts)

    @rule(partition_id=PARTITIONS, sample_id=st.sampled_from(IDS), name=st.sampled_from(FIELDS))
    def what_is_not_there_is_not_found(self, partition_id: str, sample_id: str, name: str) -> None:
        rows = self.models[partition_id].rows
        if not rows:
            return
        if sample_id not in rows:
            with pytest.raises(UnknownSample):
                self.index.locate(partition_id, [*rows, sample_id], [])
        elif name not in rows[sample_id].versions:
            with pytest.raises(UnknownField):
                self.index.locate(partition_id, [sample_id], [*rows[sample_id].versions, name])

    # Invariants after each step

    @invariant()
    def every_cell_lies_once_and_is_the_newest(self) -> None:
        for partition_id, model in self.models.items():
            asked = [i for i in model.rows for _ in range(2)]  # a repeated id is a separate row
            for name in FIELDS:
                here = [i for i in asked if name in model.rows[i].versions]
                if here:
                    found = located(self.index.locate(partition_id, here, [name]))
                    expected = {
                        (place, name): model.rows[i].versions[name] for place, i in enumerate(here)
                    }
                    assert found == expected

    @invariant()
    def status_is_that_of_the_rows(self) -> None:
        for partition_id, model in self.models.items():
            for task in TASKS:
                assert self.index.all_claimed(partition_id, [task]) == model.all_claimed(task)

    @invariant()
    def blocks_hold_what_rows_need_and_bounded_waste(self) -> None:
        """Live bytes are those of the cells in use; a block without any is gone."""
        live: Counter[int] = Counter()
        blocks = {}
        for partition_id, model in self.models.items():
            for sample_id, row in model.rows.items():
                for source in self.index.locate(partition_id, [sample_id], list(row.versions)):
                    number = source.block.number
                    blocks[number] = (
                        source.block.live_bytes,
                        source.block.wasted_bytes,
                        source.block.payload,
                    )
                    live[number] += sum(
                        self.sizes[row.versions[name]] + PLACE_BYTES for name in source.names
                    )
        busy = {number for number, _, _ in self.begun}.union(self.due)
        for number, (live_bytes, wasted_bytes, payload) in blocks.items():
            born = sum(self.sizes[version] + PLACE_BYTES for version in payload.cells.values())
            assert live_bytes == live[number]
            assert wasted_bytes == born - live_bytes
            assert number in busy or wasted_bytes <= max(live_bytes, SLACK_BYTES)
        alive = {id(payload) for ref in self.payloads if (payload := ref()) is not None}
        kept = {id(payload) for _, _, payload in blocks.values()}
        assert alive == kept.union(id(payload) for _, payload, _ in self.begun)


def located(sources: list[Source]) -> dict[tuple[int, str], int]:
    """Versions by position and field; fails if a cell is returned twice."""
    found: dict[tuple[int, str], int] = {}
    for source in sources:
        for index, position in zip(source.indexes, source.positions, strict=True):
            for name in source.names:
                assert (position, name) not in found
                found[position, name] = source.block.payload.cells[name, index]
    return found


TestIndex = IndexMachine.TestCase
TestIndex.settings = settings(max_examples=80, stateful_step_count=50, deadline=None)
