"""A snapshot notices every change of a value, and nothing else."""

from __future__ import annotations

import math
import struct
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from tensordict import NonTensorData, NonTensorStack, TensorDict

from rlconform.certify.recording.snapshot import LARGE, Snapshot, fingerprint
from rlconform.contract import KVBatchMeta


def batch() -> TensorDict:
    return TensorDict({"x": torch.arange(6.0).reshape(3, 2), "y": jagged()}, batch_size=[3])


def jagged() -> torch.Tensor:
    return torch.nested.nested_tensor([torch.arange(n) for n in (1, 3, 2)], layout=torch.jagged)


def objects() -> TensorDict:
    logs = NonTensorStack(*[NonTensorData([{"turn": n}]) for n in range(2)])
    return TensorDict({"log": logs}, batch_size=[2])


def nan(payload: int) -> float:
    (value,) = struct.unpack("d", struct.pack("Q", 0x7FF8 << 48 | payload))
    assert math.isnan(value)
    return float(value)


def meta() -> KVBatchMeta:
    return KVBatchMeta("p", "train", ["a", "b"], ["x"], [1, 2], {"step": 1}, [{"n": 1}, {}])


CHANGES: dict[str, tuple[Callable[[], Any], Callable[[Any], object]]] = {
    "list_grows": (lambda: ["a"], lambda value: value.append("b")),
    "order": (lambda: ["a", "b"], lambda value: value.reverse()),
    "type_of_number": (lambda: {"n": 1}, lambda value: value.update(n=True)),
    "sign_of_zero": (lambda: {"n": 0.0}, lambda value: value.update(n=-0.0)),
    "set": (lambda: {"stop": {1}}, lambda value: value["stop"].add(2)),
    "nested_log": (lambda: [[{"turns": []}]], lambda value: value[0][0]["turns"].append(1)),
    "tensor": (lambda: torch.zeros(3), lambda value: value.fill_(1)),
    "strided_tensor": (lambda: torch.zeros(3, 4).T, lambda value: value[0].fill_(1)),
    "large_tensor": (lambda: torch.zeros(LARGE), lambda value: value[-1:].fill_(1)),
    "jagged_values": (jagged, lambda value: value.values().fill_(7)),
    "array": (lambda: np.zeros(2), lambda value: value.fill(1)),
    "array_of_objects": (lambda: np.array([{}, {}], object), lambda value: value[0].update(a=1)),
    "column_goes": (batch, lambda value: value.pop("x")),
    "column_comes": (batch, lambda value: value.set("z", torch.zeros(3))),
    "values_of_a_column": (batch, lambda value: value["x"].mul_(2)),
    "object_column": (objects, lambda value: value.get("log").tolist()[0].append("more")),
    "ids_of_a_meta": (meta, lambda value: value.sample_ids.pop()),
    "tags_of_a_meta": (meta, lambda value: value.tags[1].update(n=2)),
    "type_of_a_tag": (lambda: [{"n": 1}, {"n": 2}], lambda value: value[0].update(n=1.0)),
    "sign_of_zero_of_a_tag": (lambda: [{"n": 0.0}], lambda value: value[0].update(n=-0.0)),
    "bits_of_a_nan_of_a_tag": (lambda: [{"n": nan(1)}], lambda value: value[0].update(n=nan(2))),
    "order_of_tags": (
        lambda: [{"a": 1, "b": 2}],
        lambda value: value[0].update(a=value[0].pop("a")),
    ),
    "name_of_a_tag": (lambda: [{"1": 2}], lambda value: value[0].update({1: value[0].pop("1")})),
    "extra_info_of_a_meta": (meta, lambda value: value.extra_info.clear()),
}


@pytest.mark.parametrize(("make", "change"), CHANGES.values(), ids=CHANGES)
def test_a_change_is_noticed(make: Callable[[], Any], change: Callable[[Any], object]) -> None:
    value = make()
    snapshot = Snapshot(value)
    assert not snapshot.changed()
    change(value)
    assert snapshot.changed()


@pytest.mark.parametrize("value", [None, 42, object(), [float("nan")], torch.eye(2).to_sparse()])
def test_values_of_any_kind_stay_equal_to_themselves(value: Any) -> None:
    assert not Snapshot(value).changed()


def test_a_tag_that_python_keeps_once_is_no_change() -> None:
    text = "".join(["in", "_flight_", "57"])
    snapshot = Snapshot([{"state": text}, {"state": text}])
    assert sys.intern(text) is text
    again = "".join(["in", "_flight_", "57"])
    assert again is not text
    assert not snapshot.changed()
    assert fingerprint([{"state": text}] * 2) == fingerprint([{"state": again}, {"state": text}])


def test_a_lazy_batch_of_unlike_rows_can_be_seen() -> None:
    rows = [TensorDict({"x": torch.zeros(n)}, batch_size=[]) for n in (1, 2)]
    lazy = TensorDict.lazy_stack(rows)
    snapshot = Snapshot(lazy)
    assert not snapshot.changed()
    rows[1]["x"].fill_(1)
    assert snapshot.changed()
