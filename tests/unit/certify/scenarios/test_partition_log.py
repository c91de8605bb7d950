"""``PartitionUnderTest.claim`` asks by default for exactly the rows that are ready."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from rlconform.backends.memory import MemoryClient
from rlconform.certify.assertions.expect import ContractViolation
from rlconform.certify.scenarios.partition import PartitionUnderTest
from rlconform.contract import KVBatchMeta, Timeouts


class Asked(MemoryClient):
    """Records how many rows each claim requests; returns ``extra`` rows besides the ready ones."""

    def __init__(self) -> None:
        super().__init__({}, True)
        self.sizes: list[int] = []
        self.extra: list[str] = []

    def claim_meta(self, *args: Any, **kwargs: Any) -> KVBatchMeta:
        self.sizes.append(kwargs["batch_size"])
        meta = super().claim_meta(*args, **kwargs)
        if not meta.sample_ids and self.extra:
            return KVBatchMeta(meta.partition_id, meta.task_name, [self.extra.pop()])
        return meta


@pytest.fixture
def client() -> Asked:
    return Asked()


@pytest.fixture
def part(client: Asked) -> PartitionUnderTest:
    part = PartitionUnderTest(client, "p", Timeouts())
    part.register()
    return part


def test_a_claim_asks_for_the_rows_that_have_every_field(
    client: Asked, part: PartitionUnderTest
) -> None:
    part.put(["a", "b", "c"], x=torch.ones(3))
    part.put(["b", "c"], y=torch.ones(2))
    assert part.claim("train", ["x", "y"]).sample_ids == ["b", "c"]
    assert client.sizes == [2, 1]  # and then one more, because no other row may be returned


def test_claimed_and_cleared_rows_are_not_ready(client: Asked, part: PartitionUnderTest) -> None:
    part.put(["a", "b", "c"], x=torch.ones(3))
    part.claim("train", batch_size=1)
    part.clear(["b"])
    assert part.claim("train").sample_ids == ["c"]
    assert client.sizes == [1, 1, 1]


def test_a_put_that_is_refused_makes_nothing_ready(client: Asked, part: PartitionUnderTest) -> None:
    part.put(["a"], x=torch.ones(1))
    with pytest.raises(ValueError, match="tags"):
        part.put(["b"], tags=[], x=torch.ones(1))
    assert part.claim("train").sample_ids == ["a"]
    assert client.sizes == [1, 1]


def test_claim_all_asks_only_for_ready_rows(client: Asked, part: PartitionUnderTest) -> None:
    part.put(["a", "b", "c"], x=torch.ones(3))
    assert part.claim_all(batch_size=2) == ["a", "b", "c"]
    assert client.sizes == [2, 1, 1]


def test_a_row_beside_the_ready_ones_is_a_violation(
    client: Asked, part: PartitionUnderTest
) -> None:
    part.put(["a", "b"], x=torch.ones(2))
    part.clear(["b"])
    client.extra = ["b"]
    with pytest.raises(ContractViolation, match="no row ready") as caught:
        part.claim("train")
    assert caught.value.leans_on == ("CLAIM-01",)


def test_other_clients_of_the_partition_share_the_bookkeeping(part: PartitionUnderTest) -> None:
    part.put(["a"], x=torch.ones(1))
    other = part.via(part.client)
    other.put(["b"], x=torch.ones(1))
    assert part.claim("train").sample_ids == ["a", "b"]
    assert other.ids == {"a", "b"}
