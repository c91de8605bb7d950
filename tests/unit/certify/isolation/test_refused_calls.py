"""A right plane refuses each of the refused calls, and is then what it was."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from rlconform.backends.memory import MemoryClient
from rlconform.certify.assertions.expect import is_rejected
from rlconform.certify.isolation.refused_calls import REFUSED, RefusedCalls
from rlconform.certify.scenarios.earlier_steps import (
    FIELDS,
    IMAGE,
    IMAGE_ROWS,
    PARTITION,
    make_steps,
)
from rlconform.contract import DataPlaneClient


def everything(client: DataPlaneClient) -> list[object]:
    """What a client sees of the partition of the earlier steps."""
    batch = client.get_samples(["row0"], PARTITION, [FIELDS[0]])
    image = client.get_samples(IMAGE_ROWS[:1], PARTITION, [IMAGE])
    done = client.check_consumption_status(PARTITION, ["task"])
    return [batch.get(FIELDS[0]).tolist(), image.get(IMAGE).tolist(), done]


@pytest.mark.parametrize("call", REFUSED, ids=map(str, range(len(REFUSED))))
def test_each_call_is_refused_and_changes_nothing(
    call: Callable[[DataPlaneClient], object],
) -> None:
    """The partition of the earlier steps has rows of unlike shapes, which no batch can hold."""
    client = MemoryClient()
    make_steps(client, range(3))
    before = everything(client)
    assert is_rejected(lambda: call(client))
    assert everything(client) == before
    assert is_rejected(lambda: client.get_samples(["refused0"], PARTITION, [FIELDS[0]]))
    claimed = client.claim_meta(PARTITION, "task", [FIELDS[0]], 9, blocking=False)
    assert claimed.sample_ids == ["row0"]


def test_a_check_has_one_refused_call_and_checks_have_different_ones() -> None:
    calls = [RefusedCalls([], f"0 unit/test_{n}.py::test")._call for n in range(200)]
    assert {*calls} == {*REFUSED}
    assert RefusedCalls([], "0 unit/test_0.py::test")._call is calls[0]


def test_the_process_of_the_number_makes_the_call() -> None:
    """The calls go to no recording: a script that repeats a failure leaves them out."""
    asked: list[int] = []

    class Asked:
        def __init__(self, place: int) -> None:
            self._place = place

        def __getattr__(self, _method: str) -> object:
            asked.append(self._place)
            raise LookupError("refused")

    clients: Any = [Asked(place) for place in range(3)]
    for place in (2, 0):
        RefusedCalls(clients, "0").make(place)
    assert asked == [2, 0]
