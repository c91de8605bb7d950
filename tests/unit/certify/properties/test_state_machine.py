"""A plane with one small defect fails the ``PlaneStateMachine`` profile of that requirement."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tensordict import TensorDict

from rlconform.backends.memory import MemoryClient
from rlconform.certify.properties import runner as runner_module
from rlconform.certify.properties.requirement_sequences import PROFILES
from rlconform.certify.properties.runner import FailedExample, PropertyRunner
from rlconform.certify.properties.state_machine import run_sequences
from rlconform.certify.recording.recorder import Recording
from rlconform.certify.recording.recording_client import RecordingClient
from rlconform.contract import KVBatchMeta, Timeouts, load_requirements
from rlconform.mutants.memory.helpers import give_back, partitions_of


class DropsUnknownRows(MemoryClient):
    """A read returns the rows that it finds."""

    def __init__(self) -> None:
        super().__init__()
        self.known: dict[str, set[str]] = defaultdict(set)

    def put_samples(self, sample_ids: Any, partition_id: str, *args: Any, **more: Any) -> Any:
        meta = super().put_samples(sample_ids, partition_id, *args, **more)
        self.known[partition_id].update(sample_ids)
        return meta

    def get_samples(self, sample_ids: Any, partition_id: str, select_fields: Any) -> Any:
        found = [i for i in sample_ids if i in self.known[partition_id]]
        return super().get_samples(found, partition_id, select_fields)


class ForgetsToDropRows(MemoryClient):
    """A cleared row stays until its id is put again."""

    def __init__(self) -> None:
        super().__init__()
        self.marked: dict[str, set[str]] = defaultdict(set)
        self.known: dict[str, set[str]] = defaultdict(set)

    def put_samples(self, sample_ids: Any, partition_id: str, *args: Any, **more: Any) -> Any:
        again = self.marked[partition_id] & set(sample_ids)
        super().clear_samples(sorted(again), partition_id)
        self.marked[partition_id] -= again
        self.known[partition_id].update(sample_ids)
        return super().put_samples(sample_ids, partition_id, *args, **more)

    def clear_samples(self, sample_ids: Any, partition_id: str) -> None:
        self.marked[partition_id].update(sample_ids or self.known[partition_id])


class SharesCursors(MemoryClient):
    """All tasks have one cursor."""

    def claim_meta(self, *args: Any, **more: Any) -> KVBatchMeta:
        return super().claim_meta(*args, **(more | {"task_name": "train"}))


class KeepsTags(MemoryClient):
    """Tags outlive their row."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: dict[tuple[str, str], dict[str, Any]] = defaultdict(dict)

    def put_samples(
        self, sample_ids: Any, partition_id: str, fields: Any = None, tags: Any = None
    ) -> Any:
        for sample_id, row in zip(sample_ids, tags or (), strict=False):
            self.tags[partition_id, sample_id].update(row)
        return super().put_samples(sample_ids, partition_id, fields, tags)

    def claim_meta(self, partition_id: str, *args: Any, **more: Any) -> KVBatchMeta:
        meta = super().claim_meta(partition_id, *args, **more)
        for sample_id, row in zip(meta.sample_ids, meta.tags or (), strict=True):
            row.update(self.tags[partition_id, sample_id])
        return meta


class SwapsTags(MemoryClient):
    """A claim of several rows returns their tags in the wrong order."""

    def claim_meta(self, *args: Any, **more: Any) -> KVBatchMeta:
        meta = super().claim_meta(*args, **more)
        assert meta.tags is not None
        meta.tags.reverse()
        return meta


class Overwriting(MemoryClient):
    """Records which rows already have a field."""

    def __init__(self) -> None:
        super().__init__()
        self.held: dict[tuple[str, str], set[str]] = defaultdict(set)

    def put_samples(
        self, sample_ids: Any, partition_id: str, fields: Any = None, tags: Any = None
    ) -> Any:
        names = set() if fields is None else set(map(str, fields.keys()))
        again = [i for i in sample_ids if names & self.held[partition_id, i]]
        for sample_id in sample_ids:
            self.held[partition_id, sample_id] |= names
        return self.put_again(again, sample_ids, partition_id, fields, tags)

    def put_again(self, again: list[str], *call: Any) -> Any:
        """A put in which the rows ``again`` have one of the fields."""
        del again
        return super().put_samples(*call)

    def clear_samples(self, sample_ids: Any, partition_id: str) -> None:
        for key in list(self.held):
            if key[0] == partition_id and (sample_ids is None or key[1] in sample_ids):
                del self.held[key]
        super().clear_samples(sample_ids, partition_id)


class IgnoresOverwrites(Overwriting):
    """An overwrite is ignored."""

    def put_again(self, again: list[str], *call: Any) -> Any:
        if again:
            return KVBatchMeta(call[1], None, call[0], fields=list(call[2].keys()))
        return super().put_again(again, *call)


class RefusesOverwrites(Overwriting):
    """The store rejects a key that it contains."""

    def put_again(self, again: list[str], *call: Any) -> Any:
        if again:
            raise RuntimeError("key exists")
        return super().put_again(again, *call)


class HandsOutOverwrittenRows(Overwriting):
    """An overwritten row is ready again for a task that has claimed it."""

    def __init__(self) -> None:
        super().__init__()
        self.again: dict[str, list[str]] = defaultdict(list)

    def put_again(self, again: list[str], *call: Any) -> Any:
        self.again[call[1]] += again
        return super().put_again(again, *call)

    def claim_meta(self, partition_id: str, *args: Any, **more: Any) -> KVBatchMeta:
        meta = super().claim_meta(partition_id, *args, **more)
        if not meta.sample_ids and self.again[partition_id]:
            ids = [self.again[partition_id].pop()]
            return KVBatchMeta(partition_id, meta.task_name, ids, meta.fields)
        return meta


class MixesPartitions(MemoryClient):
    """A clear finds its rows by sample id alone."""

    def __init__(self) -> None:
        super().__init__()
        self.partitions: list[str] = []

    def register_partition(self, partition_id: str, *args: Any, **more: Any) -> None:
        self.partitions.append(partition_id)
        super().register_partition(partition_id, *args, **more)

    def clear_samples(self, sample_ids: Any, partition_id: str) -> None:
        for each in {*self.partitions, partition_id} if sample_ids else {partition_id}:
            super().clear_samples(sample_ids, each)


class KeepsAField(Overwriting):
    """A row that is put again still has the fields that it had before its clear."""

    def __init__(self) -> None:
        super().__init__()
        self.old: dict[tuple[str, str], TensorDict] = {}

    def clear_samples(self, sample_ids: Any, partition_id: str) -> None:
        for sample_id in sample_ids or ():
            names = sorted(self.held[partition_id, sample_id])
            if names:
                self.old[partition_id, sample_id] = self.get_samples(
                    [sample_id], partition_id, names
                )
        super().clear_samples(sample_ids, partition_id)

    def put_again(self, again: list[str], *call: Any) -> Any:
        ids, partition_id, fields, _ = call
        for sample_id in ids if fields is not None else ():
            old = self.old.pop((partition_id, sample_id), None)
            if old is not None:
                left = old.exclude(*fields.keys())
                MemoryClient.put_samples(self, [sample_id], partition_id, left)
        return super().put_again(again, *call)


class SticksToItsStatus(MemoryClient):
    """A status that was True once stays True."""

    def __init__(self) -> None:
        super().__init__()
        self.done: set[tuple[str, ...]] = set()

    def check_consumption_status(self, partition_id: str, task_names: Any) -> bool:
        key = (partition_id, *task_names)
        if super().check_consumption_status(partition_id, task_names):
            self.done.add(key)
        return key in self.done


class ClaimsOneMore(MemoryClient):
    """A claim returns one row too many."""

    def claim_meta(self, *args: Any, **more: Any) -> KVBatchMeta:
        size = more["batch_size"] + (not more["blocking"])
        return super().claim_meta(*args, **(more | {"batch_size": size}))


class LosesTimedOutRows(MemoryClient):
    """A claim that times out consumes the ready rows."""

    def claim_meta(self, *args: Any, **more: Any) -> KVBatchMeta:
        try:
            return super().claim_meta(*args, **more)
        except TimeoutError:
            super().claim_meta(*args, **(more | {"blocking": False}))
            raise


class ClearsANeighbour(Overwriting):
    """A clear of two rows or more drops the next row too."""

    def clear_samples(self, sample_ids: Any, partition_id: str) -> None:
        others = sorted(i for p, i in self.held if p == partition_id)
        more = [i for i in others if sample_ids and i > max(sample_ids)][:1]
        taken = [*sample_ids, *more] if sample_ids and len(sample_ids) > 1 else sample_ids
        super().clear_samples(taken, partition_id)


class ReadsInOrderOfPut(Overwriting):
    """A read returns rows in the order of their puts."""

    def get_samples(self, sample_ids: Any, partition_id: str, select_fields: Any) -> Any:
        order = [i for p, i in self.held if p == partition_id and i in sample_ids]
        return super().get_samples(order or sample_ids, partition_id, select_fields)


class KeepsCursors(MemoryClient):
    """A task never claims an id twice, even after the id was cleared and put again."""

    def __init__(self) -> None:
        super().__init__()
        self.claimed: Counter[tuple[str, str, str]] = Counter()

    def claim_meta(self, *args: Any, **more: Any) -> KVBatchMeta:
        meta = super().claim_meta(*args, **more)
        keys = [(meta.partition_id, str(meta.task_name), i) for i in meta.sample_ids]
        fresh = [n for n, key in enumerate(keys) if not self.claimed[key]]
        self.claimed.update(keys)
        return meta.subset(fresh)


class ProducesForAll(Overwriting):
    """A field that was put counts as produced for every row, with the bytes of one row."""

    def get_samples(self, sample_ids: Any, partition_id: str, select_fields: Any) -> Any:
        try:
            return super().get_samples(sample_ids, partition_id, select_fields)
        except LookupError:
            for (partition, sample_id), names in self.held.items():
                if partition == partition_id and names >= set(select_fields):
                    same = [sample_id] * len(sample_ids)
                    return super().get_samples(same, partition_id, select_fields)
            raise


class HandsOutGhosts(Overwriting):
    """A claim that finds nothing returns a cleared row."""

    def __init__(self) -> None:
        super().__init__()
        self.gone: dict[str, list[str]] = defaultdict(list)

    def clear_samples(self, sample_ids: Any, partition_id: str) -> None:
        self.gone[partition_id] += [i for i in sample_ids or () if self.held[partition_id, i]]
        super().clear_samples(sample_ids, partition_id)

    def claim_meta(self, partition_id: str, *args: Any, **more: Any) -> KVBatchMeta:
        meta = super().claim_meta(partition_id, *args, **more)
        if not meta.sample_ids and self.gone[partition_id]:
            ids = [self.gone[partition_id].pop()]
            return KVBatchMeta(partition_id, meta.task_name, ids, meta.fields)
        return meta


class TracksByFields(MemoryClient):
    """A task has one cursor for each list of fields in its claims."""

    def register_partition(self, *args: Any, **more: Any) -> None:
        tasks = [f"{task} {n}" for task in more["consumer_tasks"] for n in ("x", "y", "x y")]
        super().register_partition(*args, **(more | {"consumer_tasks": tasks}))

    def claim_meta(self, *args: Any, **more: Any) -> KVBatchMeta:
        task = f"{more['task_name']} {' '.join(sorted(more['required_fields']))}"
        return super().claim_meta(*args, **(more | {"task_name": task}))


class FetchesTheNewestClaim(MemoryClient):
    """``get_data`` works only for the meta of the last claim."""

    def __init__(self) -> None:
        super().__init__()
        self.newest: KVBatchMeta | None = None

    def claim_meta(self, *args: Any, **more: Any) -> KVBatchMeta:
        meta = super().claim_meta(*args, **more)
        self.newest = meta if meta.sample_ids else self.newest
        return meta

    def get_data(self, meta: Any, select_fields: Any = None) -> TensorDict:
        return super().get_data(self.newest or meta, select_fields)


class CountsAllPartitions(MemoryClient):
    """The status covers all partitions with rows."""

    def __init__(self) -> None:
        super().__init__()
        self.partitions: set[str] = set()

    def put_samples(self, sample_ids: Any, partition_id: str, *args: Any, **more: Any) -> Any:
        self.partitions.add(partition_id)
        return super().put_samples(sample_ids, partition_id, *args, **more)

    def check_consumption_status(self, partition_id: str, task_names: Any) -> bool:
        each = {*self.partitions, partition_id}
        return all(MemoryClient.check_consumption_status(self, p, task_names) for p in each)


class RegisterResetsAllPartitions(MemoryClient):
    """Registering a partition again resets the cursors of all others."""

    def __init__(self) -> None:
        super().__init__()
        self.known: set[str] = set()

    def register_partition(self, partition_id: str, *args: Any, **more: Any) -> None:
        super().register_partition(partition_id, *args, **more)
        if partition_id in self.known:
            for other in self.known - {partition_id}:
                partition = partitions_of(self)[other]
                for task in partition._tasks:
                    rows = [row for row in partition._rows.values() if task in row.claimed_by]
                    give_back(partition, rows, task)
        self.known.add(partition_id)


BROKEN: list[tuple[type[MemoryClient], str]] = [
    (DropsUnknownRows, "GET-04"),
    (ForgetsToDropRows, "GET-06"),
    (SharesCursors, "CLAIM-02"),
    (KeepsTags, "CLEAR-04"),
    (SwapsTags, "TAG-01"),
    (IgnoresOverwrites, "PUT-13"),
    (RefusesOverwrites, "PUT-13"),
    (HandsOutOverwrittenRows, "CLAIM-08"),
    (MixesPartitions, "REG-04"),
    (RegisterResetsAllPartitions, "REG-04"),
    (FetchesTheNewestClaim, "CLAIM-09"),
    (CountsAllPartitions, "STAT-01"),
    (KeepsAField, "CLEAR-04"),
    (SticksToItsStatus, "STAT-01"),
    (ClaimsOneMore, "CLAIM-02"),
    (LosesTimedOutRows, "CLAIM-06"),
    (ClearsANeighbour, "CLEAR-01"),
    (ReadsInOrderOfPut, "GET-01"),
    (KeepsCursors, "REG-03"),
    (ProducesForAll, "PUT-12"),
    (HandsOutGhosts, "CLAIM-10"),
    (TracksByFields, "CLAIM-02"),
]

Open = Callable[..., PropertyRunner]


@pytest.fixture
def explore() -> Iterator[Open]:
    """``explore(plane, seed)``: a runner of a fresh plane."""
    opened: list[MemoryClient] = []

    def open_plane(
        kind: type[MemoryClient], seed: int = 0, stream: str = "", effort: float = 1.0
    ) -> PropertyRunner:
        opened.append(kind())
        client = RecordingClient(opened[-1], Recording())
        return PropertyRunner(client, Timeouts(check=600), seed, stream, effort)

    yield open_plane
    for client in opened:
        client.close()


@pytest.mark.usefixtures("unhurried")
@pytest.mark.parametrize(
    ("plane", "requirement_id"), BROKEN, ids=[f"{kind.__name__}-{i}" for kind, i in BROKEN]
)
def test_a_broken_plane_is_found(
    explore: Open, monkeypatch: pytest.MonkeyPatch, plane: type[MemoryClient], requirement_id: str
) -> None:
    monkeypatch.setattr(runner_module, "SHRINK_S", 0.5)  # this test only checks whether it is found
    with pytest.raises(FailedExample, match="--seed 0"):
        run_sequences(explore(plane), PROFILES[requirement_id])


@pytest.mark.usefixtures("unhurried")
def test_a_sequence_shrinks_to_the_calls_that_matter(explore: Open) -> None:
    runner = explore(RefusesOverwrites)
    with pytest.raises(FailedExample, match="put_samples raised RuntimeError: key exists"):
        run_sequences(runner, PROFILES["PUT-13"])
    assert runner.failure is not None
    made = [line.partition("(")[0] for line in runner.failure.calls.lines()]
    assert len(made) <= 4  # for some seeds Hypothesis keeps a read in between
    writes = [call for call in made if call != "client.get_samples"]
    assert writes == ["client.register_partition", "client.put_samples", "client.put_samples"]


def test_what_another_profile_judges_is_not_reported(explore: Open) -> None:
    run_sequences(explore(RefusesOverwrites), PROFILES["CLAIM-08"])
    run_sequences(explore(ReadsInOrderOfPut), PROFILES["STAT-01"])


class RefusesClaims(MemoryClient):
    """Every claim raises."""

    def claim_meta(self, *_args: Any, **_more: Any) -> KVBatchMeta:
        raise RuntimeError("no quorum")


def test_a_run_that_judges_nothing_fails(explore: Open) -> None:
    with pytest.raises(FailedExample, match=r"no quorum.* too early to judge anything"):
        run_sequences(explore(RefusesClaims), PROFILES["TAG-01"])


@pytest.mark.parametrize("requirement_id", PROFILES)
def test_a_correct_plane_never_fails(explore: Open, requirement_id: str) -> None:
    run_sequences(explore(MemoryClient, 1), PROFILES[requirement_id])


@pytest.mark.parametrize("requirement_id", PROFILES)
def test_a_small_effort_judges_something(explore: Open, requirement_id: str) -> None:
    for seed in range(4):
        try:
            run_sequences(explore(MemoryClient, seed, effort=0.01), PROFILES[requirement_id])
        except pytest.skip.Exception as nothing:
            pytest.fail(f"{nothing}, with seed {seed}")


def test_every_profile_is_of_a_requirement_of_planes() -> None:
    rows = load_requirements()
    assert {rows[name].scope for name in PROFILES} == {"plane"}
