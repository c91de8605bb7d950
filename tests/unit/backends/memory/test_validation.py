"""Each malformed call raises TypeError or ValueError and does not change the plane."""

from __future__ import annotations

import math
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from tensordict import TensorDict

from rlconform.backends.memory import MemoryClient
from rlconform.contract import KVBatchMeta

REGISTER: dict[str, Any] = {
    "partition_id": "p",
    "fields": ["x"],
    "num_samples": 2,
    "consumer_tasks": ["t"],
}
PUT: dict[str, Any] = {"sample_ids": ["a", "b"], "partition_id": "p", "tags": [{}, {}]}
GET: dict[str, Any] = {"sample_ids": ["kept"], "partition_id": "p", "select_fields": ["x"]}
CLAIM: dict[str, Any] = {
    "partition_id": "p",
    "task_name": "t",
    "required_fields": ["x"],
    "batch_size": 1,
    "blocking": False,
}
STATUS: dict[str, Any] = {"partition_id": "p", "task_names": ["t"]}
CLEAR: dict[str, Any] = {"sample_ids": ["a"], "partition_id": "p"}

CALLS = {
    "register_partition": REGISTER,
    "put_samples": PUT,
    "get_samples": GET,
    "claim_meta": CLAIM,
    "check_consumption_status": STATUS,
    "clear_samples": CLEAR,
}

NO_NAMES: list[Any] = [None, "ab", b"ab", [1], [None], ["a", 2], 3, {"a": 1}]

WRONG: list[tuple[str, str, Any]] = [
    *[(call, "partition_id", wrong) for call in CALLS for wrong in (None, 1, "", b"p", ["p"])],
    *[("register_partition", "fields", wrong) for wrong in (*NO_NAMES, ["x", "x"])],
    *[("register_partition", "num_samples", wrong) for wrong in (-1, None, 1.0, True, "2")],
    *[("register_partition", "consumer_tasks", wrong) for wrong in (*NO_NAMES, ["t", "t"])],
    *[("register_partition", "grpo_group_size", wrong) for wrong in (0, -1, 1.5, True, "2")],
    *[("register_partition", "enums", wrong) for wrong in ([], {"a": "bc"}, {1: ["b"]})],
    *[("put_samples", "sample_ids", wrong) for wrong in (*NO_NAMES, ["a", "a"], ["a"])],
    *[("put_samples", "tags", wrong) for wrong in (None, {}, "ab", [{}], [{}, None], [{}, {1: 2}])],
    ("put_samples", "tags", [{}, {"": 1}]),
    ("put_samples", "tags", [{}, {"list": [1]}]),
    ("put_samples", "tags", [{}, {"tensor": torch.ones(1)}]),
    ("put_samples", "fields", {"x": torch.ones(2)}),
    ("put_samples", "fields", TensorDict({"x": torch.ones(3)}, [3])),
    ("put_samples", "fields", TensorDict({"x": torch.ones(2, 2)}, [2, 2])),
    ("put_samples", "fields", TensorDict({"x": torch.ones(2)}, [])),
    *[("get_samples", "sample_ids", wrong) for wrong in NO_NAMES],
    *[("get_samples", "select_fields", wrong) for wrong in (*NO_NAMES, [])],
    *[("claim_meta", "task_name", wrong) for wrong in (None, "", 1)],
    *[("claim_meta", "required_fields", wrong) for wrong in (*NO_NAMES, [])],
    *[("claim_meta", "batch_size", wrong) for wrong in (None, 0, -1, 1.0, True, "1", math.inf)],
    *[("claim_meta", "dp_rank", wrong) for wrong in (-1, 0.0, "0", False)],
    *[("claim_meta", "blocking", wrong) for wrong in (None, 1, "no")],
    *[("claim_meta", "timeout_s", wrong) for wrong in (None, -1, math.nan, "1", True)],
    *[("check_consumption_status", "task_names", wrong) for wrong in (*NO_NAMES, [])],
    *[("clear_samples", "sample_ids", wrong) for wrong in NO_NAMES[1:]],
]


@pytest.fixture
def client() -> Iterator[MemoryClient]:
    client = MemoryClient()
    client.register_partition(**REGISTER)
    client.put_samples(["kept"], "p", TensorDict({"x": torch.ones(1)}, [1]), tags=[{"n": 1}])
    yield client
    client.close()


@pytest.mark.parametrize(
    ("call", "argument", "wrong"),
    WRONG,
    ids=lambda part: part if isinstance(part, str) else type(part).__name__,
)
def test_a_malformed_argument_is_refused_and_named(
    client: MemoryClient, call: str, argument: str, wrong: Any
) -> None:
    with pytest.raises((TypeError, ValueError)) as caught:
        getattr(client, call)(**{**CALLS[call], argument: wrong})
    assert not isinstance(caught.value, LookupError)
    assert argument.removesuffix("s") in str(caught.value)
    claimed = client.claim_meta("p", "t", ["x"], 9, blocking=False)
    assert (claimed.sample_ids, claimed.tags) == (["kept"], [{"n": 1}])
    with pytest.raises(LookupError):
        client.get_samples(["a"], "p", ["x"])


@pytest.mark.parametrize("call", CALLS, ids=str)
def test_the_calls_above_are_right_but_for_the_one_argument(
    client: MemoryClient, call: str
) -> None:
    getattr(client, call)(**CALLS[call])


def test_a_put_of_nothing_at_all_is_refused(client: MemoryClient) -> None:
    with pytest.raises(ValueError, match="fields or tags"):
        client.put_samples(["a"], "p")


@pytest.mark.parametrize("meta", [None, ["kept"], SimpleNamespace(sample_ids=["kept"])])
def test_get_data_takes_metas_only(client: MemoryClient, meta: Any) -> None:
    with pytest.raises(TypeError):
        client.get_data(meta, ["x"])


@pytest.mark.parametrize("select_fields", [None, []])
def test_get_data_never_fetches_everything(
    client: MemoryClient, select_fields: list[str] | None
) -> None:
    with pytest.raises(ValueError, match="select_fields"):
        client.get_data(KVBatchMeta("p", None, ["kept"]), select_fields)


def test_numpy_integers_are_integers(client: MemoryClient) -> None:
    client.put_samples(["kept"], "p", tags=[{"input_lengths": np.int64(3)}])
    claimed = client.claim_meta("p", "t", ["x"], np.int32(1), dp_rank=np.int64(0), blocking=False)
    assert claimed.sequence_lengths == [3]
    assert type(claimed.sequence_lengths[0]) is int


@pytest.mark.parametrize("length", [True, 3.0, "3", None])
def test_only_integers_are_lengths(client: MemoryClient, length: Any) -> None:
    client.put_samples(["kept"], "p", tags=[{"input_lengths": length}])
    assert client.claim_meta("p", "t", ["x"], 1).sequence_lengths is None


def test_a_key_that_is_no_bool_starts_no_plane() -> None:
    with pytest.raises(TypeError, match=r"^bootstrap must be"):
        MemoryClient(bootstrap=None)  # type: ignore[arg-type]
