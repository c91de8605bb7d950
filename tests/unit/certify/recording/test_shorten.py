"""Values and texts are shortened to one line."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tensordict import NonTensorData, NonTensorStack, TensorDict

from rlconform.certify.recording.shorten import brief, shorten
from rlconform.contract import KVBatchMeta


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (torch.zeros(2, 3, dtype=torch.bfloat16), "bfloat16[2x3]"),
        (torch.tensor(True), "bool[scalar]"),
        (torch.zeros(0), "float32[0]"),
        (
            torch.nested.nested_tensor([torch.zeros(1), torch.zeros(2)], layout=torch.jagged),
            "float32[jagged]",
        ),
        (TensorDict({"y": torch.zeros(2), "x": torch.zeros(2, 1)}, batch_size=[2]),
         "{x: float32[2x1], y: float32[2]} x (2,)"),
        (["a", "b", "c", "d"], "['a', 'b', 'c', 'd']"),
        ([*"abcde"], "['a', 'b', 'c', ... 5 in all]"),
        ((torch.zeros(1),) * 5, "[float32[1], float32[1], float32[1], ... 5 in all]"),
        (KVBatchMeta("p", None, ["a"]), "meta of ['a']"),
        (np.arange(6).reshape(2, 3), "numpy int64[2x3]"),
        (NonTensorData({"a": 1}), "NonTensorData({'a': 1})"),
        (NonTensorStack(*map(NonTensorData, range(5))), "5 objects"),
        (None, "None"),
    ],
)  # fmt: skip
def test_a_value_in_brief(value: object, text: str) -> None:
    assert brief(value) == text


def test_an_object_column_in_brief() -> None:
    column = NonTensorStack(NonTensorData("a"), NonTensorData("b" * 10**4))
    text = brief(TensorDict({"log": column}, batch_size=[2]))
    assert text.startswith("{log: ")
    assert len(text) < 200


@pytest.mark.parametrize(
    ("text", "short"),
    [
        ("a\n  b\tc", "a b c"),
        ("x" * 20, "x" * 20),
        ("x" * 21, "x" * 17 + "..."),
        ("", ""),
    ],
)
def test_a_text_is_one_short_line(text: str, short: str) -> None:
    assert shorten(text, 20) == short
