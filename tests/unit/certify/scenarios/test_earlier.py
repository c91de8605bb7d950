"""What a plane has behind it before a scattered check uses it: rows, steps and looks."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pytest

from rlconform.backends.memory.client import MemoryClient
from rlconform.certify.assertions.expect import ContractViolation, FewerExamples
from rlconform.certify.scenarios import earlier_rows, earlier_steps
from rlconform.certify.scenarios.earlier_rows import FIELD, FIRST, ROWS, TRIES, EarlierRows
from rlconform.certify.scenarios.early_looks import has_early_looks, look_early
from rlconform.certify.scenarios.partition import PartitionUnderTest
from rlconform.contract import Timeouts


@pytest.fixture
def client() -> Iterator[MemoryClient]:
    client = MemoryClient({})
    yield client
    client.close()


def test_a_partition_with_earlier_rows_looks_consumed(client: MemoryClient) -> None:
    part = PartitionUnderTest(client, "p", Timeouts())
    EarlierRows().register(part, tasks=["train", "other"])
    assert FIRST < len(part.ids) <= ROWS
    assert part.consumed("train", "other")
    for task in ("train", "other"):
        assert part.claim(task, [FIELD], 1).sample_ids == []
    last = len(part.ids) - 1
    assert part.get([f"{FIELD}{last}"], FIELD)[FIELD].tolist() == [[last]]


def test_a_slow_plane_gets_no_earlier_rows_after_some_tries(
    client: MemoryClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(earlier_rows, "BUDGET_S", 0.0)
    earlier = EarlierRows()
    parts = [PartitionUnderTest(client, f"p{n}", Timeouts()) for n in range(TRIES)]
    for part in parts[1:]:
        earlier.register(part)
    assert any(earlier.wanted(f"check{n}", 0) for n in range(100))
    with pytest.warns(FewerExamples):
        earlier.register(parts[0])
    assert [len(part.ids) for part in parts] == [FIRST] * TRIES
    assert not any(earlier.wanted(f"check{n}", 0) for n in range(100))


def test_half_of_the_checks_have_earlier_rows() -> None:
    chosen = [EarlierRows().wanted(f"check{n}", 0) for n in range(400)]
    assert 150 < sum(chosen) < 250
    assert chosen != [EarlierRows().wanted(f"check{n}", 1) for n in range(400)]


def test_looks_find_nothing_and_leave_nothing(client: MemoryClient) -> None:
    part = PartitionUnderTest(client, "p", Timeouts())
    look_early([part, part])
    part.register()
    look_early([part, part])
    part.put_labeled(["u0_g0"])
    assert not part.consumed()
    assert part.claim().sample_ids == ["u0_g0"]


def test_early_looks_of_a_plane_that_answers_wrongly_are_failures(client: MemoryClient) -> None:
    part = PartitionUnderTest(client, "p", Timeouts())
    part.register()
    part.put_labeled(["u0_g0"])
    client.check_consumption_status = lambda **_call: None  # type: ignore[assignment]
    with pytest.raises(ContractViolation):
        look_early([part])


def test_a_quarter_of_the_checks_have_early_looks() -> None:
    assert 60 < sum(has_early_looks(f"check{n}", 0) for n in range(400)) < 140


def test_processes_make_earlier_steps_in_turns(client: MemoryClient) -> None:
    turns: list[tuple[str, int]] = []

    def make(who: str, steps: range) -> None:
        turns.append((who, steps[0]))
        earlier_steps.make_steps(client, steps)

    made = earlier_steps.take_earlier_steps([partial(make, "owner"), partial(make, "attached")])
    assert made == earlier_steps.STEPS
    assert turns[:3] == [("owner", 0), ("attached", 70), ("owner", 140)]
    last = made - 1
    field = earlier_steps.FIELDS[last % len(earlier_steps.FIELDS)]
    rows = client.get_samples([f"row{last}"], earlier_steps.PARTITION, [field])
    assert rows[field].tolist() == [[last]]


def test_earlier_steps_end_on_a_slow_plane(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(earlier_steps, "BUDGET_S", -1.0)
    assert earlier_steps.take_earlier_steps([lambda _steps: None]) == 0
