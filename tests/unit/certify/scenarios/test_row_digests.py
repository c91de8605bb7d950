"""``DigestClient`` lets rows through that are as their rollout wrote them, and no others."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from tensordict import TensorDict

from rlconform.backends.memory import MemoryClient
from rlconform.certify.scenarios.row_digests import DIGESTED, DIGESTS, DigestClient, WrongRow
from rlconform.contract import KVBatchMeta
from rlconform.contract.fields import ADVANTAGES, INPUT_IDS
from rlconform.wire import stack_or_nest

IDS = ["a_g0", "a_g1", "b_g0"]


def rollout(seed: int = 0, lengths: tuple[int, ...] = (3, 5, 4)) -> TensorDict:
    generator = torch.Generator().manual_seed(seed)
    columns = {
        name: stack_or_nest([torch.randint(100, (n,), generator=generator) for n in lengths])
        for name in DIGESTED
    }
    return TensorDict(columns, batch_size=[len(lengths)])


@pytest.fixture
def plane() -> Iterator[MemoryClient]:
    client = MemoryClient(None)
    client.register_partition("p", [*DIGESTED], 8, ["train"])
    yield client
    client.close()


@pytest.fixture
def client(plane: MemoryClient) -> DigestClient:
    wrapped = DigestClient(plane)
    wrapped.put_samples(sample_ids=IDS, partition_id="p", fields=rollout())
    return wrapped


def read(client: Any, ids: list[str] = IDS, *names: str) -> TensorDict:
    result: TensorDict = client.get_samples(
        sample_ids=ids, partition_id="p", select_fields=list(names or DIGESTED)
    )
    return result


def test_rows_in_any_order_are_returned_without_their_digests(client: DigestClient) -> None:
    assert set(read(client, IDS[::-1]).keys()) == set(DIGESTED)


def test_a_meta_reads_the_same(client: DigestClient) -> None:
    meta = KVBatchMeta("p", None, IDS, fields=[INPUT_IDS])
    assert set(client.get_data(meta).keys()) == {INPUT_IDS}


def test_columns_without_digests_are_not_verified(client: DigestClient) -> None:
    later = TensorDict({ADVANTAGES: torch.ones(3)}, batch_size=[3])
    client.put_samples(sample_ids=IDS, partition_id="p", fields=later)
    assert torch.equal(read(client, IDS, ADVANTAGES)[ADVANTAGES], torch.ones(3))


@pytest.mark.parametrize("name", DIGESTED)
def test_other_bytes_in_any_column_are_found(
    client: DigestClient, plane: MemoryClient, name: str
) -> None:
    other = rollout(seed=1).select(name)
    plane.put_samples(IDS, "p", other)
    with pytest.raises(WrongRow, match=f"expected '{name}' of 'a_g0'"):
        read(client)


def test_whole_rows_of_another_id_are_found(client: DigestClient, plane: MemoryClient) -> None:
    moved = plane.get_samples(["b_g0"], "p", [*DIGESTED, DIGESTS])
    plane.put_samples(["a_g1"], "p", moved)
    read(client, ["a_g0", "b_g0"])
    with pytest.raises(WrongRow, match="'a_g1'"):
        read(client)
