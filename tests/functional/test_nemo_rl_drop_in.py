"""The built-in planes are drop-in replacements for NeMo-RL's data-plane clients.

NeMo-RL's data-plane tests, adapters and trainers call the eight methods as this file does. The
contract allows more than NeMo-RL does, for example which error a lookup raises, or whether rows
of equal length are returned dense.
"""

from __future__ import annotations

import inspect
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import numpy as np
import pytest
import torch
from tensordict import TensorDict

from rlconform.backends.memory import MemoryClient
from rlconform.backends.ray_runtime import ensure_ray
from rlconform.backends.ray_store import TARGET as RAY_STORE
from rlconform.backends.transfer_queue import SIMPLE
from rlconform.contract import DataPlaneClient, KVBatchMeta

pytestmark = [pytest.mark.timeout(300), pytest.mark.xdist_group("nemo_rl_drop_in")]

OPENS: dict[str, Callable[[], DataPlaneClient]] = {
    "memory": MemoryClient,
    "ray_store": lambda: RAY_STORE.open(RAY_STORE.config, True),
    "transfer_queue": lambda: SIMPLE.open(SIMPLE.config, True),
}
IDS = [f"u{prompt}_g{n}" for prompt in range(2) for n in range(2)]
FIELDS = ["input_ids", "input_lengths", "advantages", "message_log"]


@pytest.fixture(scope="module", autouse=True)
def ray_running() -> Iterator[None]:
    with ensure_ray():
        yield


@pytest.fixture(scope="module", params=OPENS)
def client(request: pytest.FixtureRequest) -> Iterator[Any]:
    with closing(OPENS[request.param]()) as opened:
        yield opened


@pytest.fixture
def step(client: Any) -> Iterator[str]:
    """A partition, registered as for a training step and cleared after the test."""
    name = f"step-{uuid.uuid4().hex[:8]}"
    register(client, name)
    yield name
    client.clear_samples(None, name)


def register(client: Any, name: str) -> None:
    client.register_partition(name, FIELDS, len(IDS), ["train", "prev_lp"], grpo_group_size=2)


def jagged(*lengths: int) -> torch.Tensor:
    """A jagged column with one row per length, each row filled with its index."""
    rows = [torch.full((length,), row) for row, length in enumerate(lengths)]
    return torch.nested.as_nested_tensor(rows, layout=torch.jagged)


def put(client: Any, step: str, **columns: Any) -> Any:
    return client.put_samples(IDS, step, fields=TensorDict(columns, batch_size=[len(IDS)]))


def rollout(client: Any, step: str) -> Any:
    """The first write of a step: tokens by row, and their lengths as a field and as tags."""
    columns = {"input_ids": jagged(3, 1, 4, 2), "input_lengths": torch.tensor([3, 1, 4, 2])}
    lengths = dict(zip(IDS, (3, 1, 4, 2), strict=True))
    tags = [{"input_lengths": lengths[sample_id], "uid": sample_id[:2]} for sample_id in IDS]
    return client.put_samples(
        IDS, step, fields=TensorDict(columns, batch_size=[len(IDS)]), tags=tags
    )


# -- the calls -----------------------------------------------------------------------------------


def test_the_methods_take_the_arguments_of_the_interface(client: Any) -> None:
    for name, method in inspect.getmembers(DataPlaneClient, inspect.isfunction):
        if not name.startswith("_"):
            wanted = list(inspect.signature(method).parameters.items())[1:]
            given = list(inspect.signature(getattr(client, name)).parameters.items())
            assert [(n, p.default) for n, p in given] == [(n, p.default) for n, p in wanted], name


def test_a_step_from_rollout_to_clear(client: Any, step: str) -> None:
    receipt = rollout(client, step)
    assert (receipt.partition_id, receipt.sample_ids) == (step, IDS)
    assert sorted(receipt.fields) == ["input_ids", "input_lengths"]
    assert not client.check_consumption_status(step, ["train"])
    meta = client.claim_meta(step, "train", ["input_ids"], batch_size=4)
    assert (meta.task_name, sorted(meta.sample_ids)) == ("train", IDS)
    assert dict(zip(meta.sample_ids, meta.sequence_lengths, strict=True)) == dict(
        zip(IDS, (3, 1, 4, 2), strict=True)
    )
    assert client.check_consumption_status(step, ["train"])
    assert not client.check_consumption_status(step, ["train", "prev_lp"])
    again = client.claim_meta(step, "train", ["input_ids"], batch_size=4, blocking=False)
    assert again.sample_ids == []
    batch = client.get_data(meta, select_fields=["input_lengths"])
    assert batch["input_lengths"].tolist() == list(meta.sequence_lengths)
    client.clear_samples(sample_ids=None, partition_id=step)
    register(client, step)  # as the next step does
    assert rollout(client, step).sample_ids == IDS


def test_a_later_stage_adds_columns_for_its_shard(client: Any, step: str) -> None:
    meta = rollout(client, step)
    shard = KVBatchMeta(
        partition_id=step, task_name="train", sample_ids=meta.sample_ids[2:], fields=meta.fields,
        sequence_lengths=[4, 2], extra_info={"global_forward_pad_seqlen": 8},
    )  # fmt: skip
    advantages = torch.tensor([0.5, -0.5], dtype=torch.bfloat16)
    client.put_samples(shard.sample_ids, step, fields=TensorDict({"advantages": advantages}, [2]))
    batch = client.get_data(shard, select_fields=["advantages", "input_lengths"])
    assert torch.equal(batch["advantages"], advantages)
    assert batch["advantages"].dtype == torch.bfloat16
    assert batch["input_lengths"].tolist() == [4, 2]


# -- errors --------------------------------------------------------------------------------------


def test_lookups_raise_key_errors(client: Any, step: str) -> None:
    meta = rollout(client, step)
    unknown: dict[str, Callable[[], object]] = {
        "field": lambda: client.get_samples(IDS, step, ["advantages"]),
        "sample": lambda: client.get_samples([*IDS, "u9_g0"], step, ["input_ids"]),
        "partition": lambda: client.get_samples(IDS, f"{step}-none", ["input_ids"]),
        "task": lambda: client.claim_meta(step, "trian", ["input_ids"], 2, blocking=False),
    }
    for what, call in unknown.items():
        with pytest.raises(KeyError, match=what):
            call()
    client.clear_samples(meta.sample_ids, step)
    with pytest.raises(KeyError):
        client.get_samples(IDS, step, ["input_ids"])


def test_a_read_names_its_fields(client: Any, step: str) -> None:
    rollout(client, step)
    with pytest.raises(ValueError, match="fields"):
        client.get_data(KVBatchMeta(step, "train", IDS, fields=None))


# -- columns -------------------------------------------------------------------------------------


def test_rows_of_any_length_pad_to_the_longest(client: Any, step: str) -> None:
    rollout(client, step)
    column = client.get_samples(IDS, step, ["input_ids"])["input_ids"]
    assert column.is_nested
    padded = torch.nested.to_padded_tensor(column, padding=-1)
    assert padded.tolist() == [[0, 0, 0, -1], [1, -1, -1, -1], [2, 2, 2, 2], [3, 3, -1, -1]]


def test_rows_of_one_length_come_dense(client: Any, step: str) -> None:
    put(client, step, input_ids=jagged(3, 3, 3, 3))
    column = client.get_samples(IDS, step, ["input_ids"])["input_ids"]
    assert not column.is_nested
    assert column.tolist() == [[row] * 3 for row in range(4)]
    rollout(client, step)
    one = client.get_samples(IDS[2:3], step, ["input_ids"])["input_ids"]
    assert (one.is_nested, tuple(one.shape)) == (False, (1, 4))


@pytest.mark.parametrize("shape", [(4,), (4, 1), (4, 2, 3)])
def test_a_dense_column_keeps_its_shape(client: Any, step: str, shape: tuple[int, ...]) -> None:
    values = torch.arange(torch.Size(shape).numel(), dtype=torch.float32).reshape(shape)
    put(client, step, advantages=values)
    assert torch.equal(client.get_samples(IDS, step, ["advantages"])["advantages"], values)


def test_object_columns_come_back_beside_tensors(client: Any, step: str) -> None:
    log = np.empty(len(IDS), dtype=object)
    log[:] = [[{"role": "user", "content": sample_id}] for sample_id in IDS]
    put(client, step, message_log=log, input_lengths=torch.arange(4))
    batch = client.get_samples(IDS[::-1], step, ["message_log", "input_lengths"])
    assert [row[0]["content"] for row in batch["message_log"]] == IDS[::-1]
    assert batch["input_lengths"].tolist() == [3, 2, 1, 0]


def test_a_second_put_replaces_the_first(client: Any, step: str) -> None:
    put(client, step, advantages=torch.zeros(4))
    put(client, step, advantages=torch.ones(4))
    assert client.get_samples(IDS, step, ["advantages"])["advantages"].tolist() == [1.0] * 4


# -- optional methods of newer clients -----------------------------------------------------------


def test_ids_are_listed_without_a_claim(client: Any, step: str) -> None:
    assert client.list_sample_ids(step) == []
    rollout(client, step)
    assert client.list_sample_ids(partition_id=step) == sorted(IDS)
    assert len(client.claim_meta(step, "train", ["input_ids"], 4).sample_ids) == 4
    assert client.list_sample_ids(f"{step}-none") == []
