"""Columns are packed, written and read through the memory plane, and padded again."""

from __future__ import annotations

from collections import UserDict
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from tensordict import NonTensorData, TensorDict

from rlconform.backends.memory import MemoryClient
from rlconform.contract import KVBatchMeta
from rlconform.plane import kv_first_write, mint_sample_ids, read_columns, write_columns

IDS = ["u_g0", "u_g1", "v_g0"]
LENGTHS = [2, 0, 3]
PAD = 9


@pytest.fixture
def client() -> Iterator[MemoryClient]:
    client = MemoryClient()
    client.register_partition("train", ["input_ids"], 3, ["t"])
    yield client
    client.close()


def padded(width: int = 3, fill: int = PAD) -> torch.Tensor:
    """Rows of LENGTHS tokens whose values encode row and column, padded to ``width``."""
    tokens = torch.arange(3)[:, None] * 100 + torch.arange(width)
    return tokens.where(torch.arange(width) < torch.tensor(LENGTHS)[:, None], fill)


def rollout() -> dict[str, Any]:
    return {
        "input_ids": padded(),
        "input_lengths": torch.tensor(LENGTHS, dtype=torch.int32),
        "sample_mask": torch.ones(3),
        "pixels": torch.randn(3, 4, 5),
        "message_log": [{"role": "user"}, None, "text"],
    }


@pytest.fixture
def meta(client: MemoryClient) -> KVBatchMeta:
    return kv_first_write(client, rollout(), IDS, "train")


# Ids


def test_ids_are_minted_prompt_by_prompt() -> None:
    assert mint_sample_ids(["u", "v"], 2) == ["u_g0", "u_g1", "v_g0", "v_g1"]
    assert mint_sample_ids(iter("u"), 1) == ["u_g0"]
    assert mint_sample_ids([], 4) == []


@pytest.mark.parametrize(("uids", "group_size"), [(["u", "u"], 2), (["u"], 0), (["u"], -1)])
def test_ids_that_would_collide_are_not_minted(uids: list[str], group_size: int) -> None:
    with pytest.raises(ValueError, match=r"uids|group_size"):
        mint_sample_ids(uids, group_size)


# The first write


def test_the_first_write_mints_a_meta_that_reads_its_rows_back(
    client: MemoryClient, meta: KVBatchMeta
) -> None:
    assert (meta.partition_id, meta.task_name, meta.sample_ids) == ("train", None, IDS)
    assert meta.fields == list(rollout())
    assert meta.sequence_lengths == LENGTHS
    assert meta.tags == [{"input_lengths": length} for length in LENGTHS]
    batch = read_columns(client, meta, meta.fields, pad_value_dict={"input_ids": PAD})
    assert torch.equal(batch["input_ids"], padded())
    assert batch["input_lengths"].dtype == torch.int32
    assert batch["sample_mask"].shape == (3,)
    assert batch["pixels"].shape == (3, 4, 5)
    assert batch.get("message_log").tolist() == rollout()["message_log"]


def test_a_claim_knows_what_the_first_write_stamped(client: MemoryClient) -> None:
    tags = [{"version": index} for index in range(3)]
    kv_first_write(client, rollout(), IDS, "train", tags=tags, extra_info={"step": 7})
    claimed = client.claim_meta("train", "t", ["input_ids"], 3)
    assert claimed.sequence_lengths == LENGTHS
    assert claimed.tags == [
        {"version": index, "input_lengths": length} for index, length in enumerate(LENGTHS)
    ]
    assert tags == [{"version": index} for index in range(3)]


def test_extra_info_stays_with_the_meta(client: MemoryClient) -> None:
    meta = kv_first_write(client, rollout(), IDS, "train", extra_info={"step": 7})
    assert meta.extra_info == {"step": 7}


def test_tokens_travel_without_their_padding(client: MemoryClient, meta: KVBatchMeta) -> None:
    stored = client.get_data(meta, ["input_ids"])["input_ids"]
    assert [row.tolist() for row in stored.unbind()] == [[0, 1], [], [200, 201, 202]]


@pytest.mark.parametrize(
    "change",
    [
        {"input_lengths": torch.tensor([2.0, 0.0, 3.0])},
        {"input_lengths": torch.tensor([[2], [0], [3]])},
        {"input_lengths": torch.tensor([True, False, True])},
        {"input_lengths": torch.tensor([2, 0, 4])},
        {"input_lengths": torch.tensor([2, 0])},
        {"input_lengths": [2, 0, 3]},
        {"input_ids": padded()[:2]},
        {"sample_mask": torch.tensor(1.0)},
        {"message_log": ["too", "few"]},
    ],
    ids=lambda change: next(iter(change)),
)
def test_a_first_write_that_does_not_fit_together_stores_nothing(
    client: MemoryClient, change: dict[str, Any]
) -> None:
    with pytest.raises(ValueError, match=r"column|lengths|per-token"):
        kv_first_write(client, {**rollout(), **change}, IDS, "train")
    with pytest.raises(LookupError):
        client.get_samples(IDS[:1], "train", ["sample_mask"])


def test_a_first_write_needs_lengths(client: MemoryClient) -> None:
    batch = rollout()
    del batch["input_lengths"]
    with pytest.raises(ValueError, match="input_lengths"):
        kv_first_write(client, batch, IDS, "train")


@pytest.mark.parametrize("tags", [[{}], [{"input_lengths": 2}, {"input_lengths": 1}, {}]])
def test_tags_must_agree_with_the_batch(client: MemoryClient, tags: list[dict[str, Any]]) -> None:
    with pytest.raises(ValueError, match="tag"):
        kv_first_write(client, rollout(), IDS, "train", tags=tags)
    assert client.claim_meta("train", "t", ["input_ids"], 3, blocking=False).sample_ids == []


# Later writes

MAPPINGS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "dict": dict,
    "UserDict": UserDict,
    "TensorDict": lambda columns: TensorDict(columns, [3]),
}


@pytest.mark.parametrize("mapping", MAPPINGS.values(), ids=MAPPINGS.keys())
def test_any_mapping_of_columns_is_written(
    client: MemoryClient, meta: KVBatchMeta, mapping: Callable[[dict[str, Any]], Any]
) -> None:
    columns = {"prev_logprobs": padded().float(), "score": torch.arange(3)}
    receipt = write_columns(client, meta, mapping(columns))
    assert receipt.sample_ids == IDS
    assert set(receipt.fields) == set(columns)
    batch = read_columns(client, meta, list(columns), pad_value_dict={"prev_logprobs": PAD})
    assert torch.equal(batch["prev_logprobs"], padded().float())
    assert batch["score"].tolist() == [0, 1, 2]


def test_a_wider_write_back_is_cut_row_by_row(client: MemoryClient, meta: KVBatchMeta) -> None:
    write_columns(client, meta, {"advantages": padded(width=8, fill=-1)})
    batch = read_columns(client, meta, ["advantages"], pad_value_dict={"advantages": PAD})
    assert torch.equal(batch["advantages"], padded())


def test_given_lengths_stand_in_for_a_metas(client: MemoryClient, meta: KVBatchMeta) -> None:
    bare = replace(meta, sequence_lengths=None)
    with pytest.raises(ValueError, match="advantages"):
        write_columns(client, bare, {"advantages": padded()})
    write_columns(client, bare, {"advantages": padded()}, torch.tensor(LENGTHS))
    batch = read_columns(client, meta, ["advantages"], pad_value_dict={"advantages": PAD})
    assert torch.equal(batch["advantages"], padded())


def test_rows_without_lengths_take_columns_that_are_not_per_token(
    client: MemoryClient, meta: KVBatchMeta
) -> None:
    write_columns(client, replace(meta, sequence_lengths=None), {"advantages": torch.arange(3.0)})
    assert read_columns(client, meta, ["advantages"])["advantages"].tolist() == [0, 1, 2]


def test_per_token_columns_can_be_named(client: MemoryClient, meta: KVBatchMeta) -> None:
    routes = padded()[..., None, None].expand(3, 3, 2, 4)
    write_columns(client, meta, {"routes": routes}, token_fields=["routes", "not here"])
    stored = client.get_samples(IDS, "train", ["routes"])["routes"]
    assert [row.shape for row in stored.unbind()] == [(length, 2, 4) for length in LENGTHS]


def test_image_features_keep_their_shape(client: MemoryClient, meta: KVBatchMeta) -> None:
    features = torch.randn(3, 7, 2)
    write_columns(client, meta, {"features": features})
    assert torch.equal(read_columns(client, meta, ["features"])["features"], features)


@pytest.mark.parametrize(
    "column",
    [
        [(1, 2), None, {"a": "b"}],
        np.array([(1, 2), None, {"a": "b"}], dtype=object),
        NonTensorData(np.array([(1, 2), None, {"a": "b"}], dtype=object), batch_size=[3]),
    ],
    ids=["list", "ndarray", "NonTensorData"],
)
def test_object_columns_are_written_in_any_form(
    client: MemoryClient, meta: KVBatchMeta, column: Any
) -> None:
    write_columns(client, meta, {"extra": column})
    read = read_columns(client, meta.subset([2, 0]), ["extra"]).get("extra").tolist()
    assert read == [{"a": "b"}, (1, 2)]


@pytest.mark.parametrize(
    "column",
    [
        torch.eye(3).to_sparse(),
        TensorDict({"a": torch.ones(3)}, [3]),
        np.ones(3),
        "text",
        None,
        {"a": 1},
    ],
    ids=["sparse", "TensorDict", "array of numbers", "str", "None", "dict"],
)
def test_a_column_of_another_kind_is_refused_and_never_left_out(
    client: MemoryClient, meta: KVBatchMeta, column: Any
) -> None:
    with pytest.raises(TypeError):
        write_columns(client, meta, {"fine": torch.ones(3), "odd": column})
    with pytest.raises(LookupError):
        read_columns(client, meta, ["fine"])


@pytest.mark.parametrize("name", ["advantages", "score"])
def test_a_column_of_other_rows_is_refused(
    client: MemoryClient, meta: KVBatchMeta, name: str
) -> None:
    with pytest.raises(ValueError, match=name):
        write_columns(client, meta, {name: torch.ones(2, 3)})


def test_a_per_token_column_that_is_too_narrow_is_refused(
    client: MemoryClient, meta: KVBatchMeta
) -> None:
    with pytest.raises(ValueError, match="advantages"):
        write_columns(client, meta, {"advantages": torch.ones(3, 2)})


# Reads


@pytest.mark.parametrize("width", [None, 8])
def test_a_read_pads_every_row_to_the_width_asked(
    client: MemoryClient, meta: KVBatchMeta, width: int | None
) -> None:
    shard = meta.subset([0, 1])
    batch = read_columns(client, shard, ["input_ids"], pad_to_seqlen=width)
    assert batch["input_ids"].shape == (2, width or 2)


def test_a_read_can_stay_jagged(client: MemoryClient, meta: KVBatchMeta) -> None:
    batch = read_columns(client, meta, ["input_ids"], layout="jagged")
    assert [len(row) for row in batch["input_ids"].unbind()] == LENGTHS


def test_a_read_fetches_what_it_was_asked_for(client: MemoryClient, meta: KVBatchMeta) -> None:
    assert set(read_columns(client, meta, ("sample_mask",)).keys()) == {"sample_mask"}
    with pytest.raises(LookupError):
        read_columns(client, meta, ["sample_mask", "advantages"])


def test_an_empty_shard_reads_and_writes_nothing(client: MemoryClient, meta: KVBatchMeta) -> None:
    empty = meta.subset([])
    assert read_columns(client, empty, ["sample_mask"]).batch_size == (0,)
    write_columns(client, empty, {"score": torch.ones(0), "advantages": torch.ones(0, 4)})
    with pytest.raises(LookupError):
        read_columns(client, meta, ["score"])
