"""A right plane refuses each of the refused calls, and is then what it was."""

from __future__ import annotations

import pytest

from rlconform.backends.memory import MemoryClient
from rlconform.certify.assertions.expect import is_rejected
from rlconform.certify.isolation.refused_calls import REFUSED, RefusedCalls
from rlconform.certify.scenarios.earlier_steps import FIELDS, IMAGE, IMAGES, PARTITION, make_steps
from rlconform.contract import DataPlaneClient


def everything(client: DataPlaneClient) -> list[object]:
    """What a client sees of the partition of the earlier steps."""
    batch = client.get_samples(["row0"], PARTITION, [FIELDS[0]])
    image = client.get_samples(IMAGES[:1], PARTITION, [IMAGE])
    done = client.check_consumption_status(PARTITION, ["task"])
    return [batch.get(FIELDS[0]).tolist(), image.get(IMAGE).tolist(), done]


@pytest.mark.parametrize("number", range(len(REFUSED)))
def test_each_call_is_refused_and_changes_nothing(number: int) -> None:
    """The partition of the earlier steps has rows of unlike shapes, which no batch can hold."""
    client = MemoryClient()
    make_steps(client, range(3))
    before = everything(client)
    assert is_rejected(lambda: REFUSED[number](client))
    RefusedCalls([client], number).make(0)
    assert everything(client) == before
    assert is_rejected(lambda: client.get_samples(["refused0"], PARTITION, [FIELDS[0]]))
    claimed = client.claim_meta(PARTITION, "task", [FIELDS[0]], 9, blocking=False)
    assert claimed.sample_ids == ["row0"]
