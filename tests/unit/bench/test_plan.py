"""Shapes and plans: those of rlconform are valid, invalid ones are refused."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from rlconform.bench.batches import describe
from rlconform.bench.plan import BatchShape, load_plan, load_shape, shape_names
from rlconform.contract import ConfigError
from rlconform.contract.fields import DP_TRAIN_FIELDS

EXPECTED_ROWS = {"tiny": 8, "llama8b": 512, "qwen30b-r3": 256, "vlm": 64, "many-small": 10_000}


def test_shapes_are_in_order_with_their_rows() -> None:
    assert {name: load_shape(name).rows for name in shape_names()} == EXPECTED_ROWS
    assert shape_names() == list(EXPECTED_ROWS)


@pytest.mark.parametrize("name", EXPECTED_ROWS)
def test_every_shape_carries_the_training_columns(name: str) -> None:
    assert set(DP_TRAIN_FIELDS) <= set(load_shape(name).fields)


def test_shapes_are_as_large_as_a_training_step() -> None:
    llama = describe(load_shape("llama8b"))
    assert llama.tokens / llama.rows == pytest.approx(1_000, rel=0.05)
    replay = describe(load_shape("qwen30b-r3"))
    assert replay.tokens / replay.rows == pytest.approx(2_000, rel=0.05)
    assert replay.fields["routed_experts"] == "uint8 (N, j, 48, 8)"
    assert replay.bytes == pytest.approx(210e6, rel=0.05)


def test_quick_is_no_more_than_full() -> None:
    for name in shape_names():
        full, quick = load_shape(name), load_shape(name, quick=True)
        assert quick.rows <= full.rows
        assert quick.repetitions < full.repetitions
    assert load_plan(quick=True).growth.rows == [1_000, 10_000]
    assert load_plan(quick=False).growth.rows == [1_000, 10_000, 100_000]
    assert load_plan(quick=True).claim_rate.consumers == [1, 2, 4]


def test_an_unknown_shape_lists_the_known_ones() -> None:
    with pytest.raises(ConfigError, match="many-small"):
        load_shape("tinny")


def _shape(**changes: Any) -> BatchShape:
    base = {
        "name": "s",
        "title": "t",
        "rows": 2,
        "ragged": {"tokens": (1, 3)},
        "fields": {"x": "int64 (N, tokens)"},
        "repetitions": 1,
        "quick": {"repetitions": 1},
    }
    return BatchShape.model_validate(base | changes)


@pytest.mark.parametrize(
    ("text", "dtype", "ragged", "sizes"),
    [
        ("int64 (N,)", "int64", "", ()),
        ("bfloat16 (N, tokens)", "bfloat16", "tokens", ()),
        ("uint8 (N, tokens, 48, 8)", "uint8", "tokens", (48, 8)),
        ("int64 (N, 3)", "int64", "", (3,)),
    ],
)
def test_columns_are_parsed(text: str, dtype: str, ragged: str, sizes: tuple[int, ...]) -> None:
    column = _shape(fields={"x": text}).columns["x"]
    assert column == (dtype, ragged, sizes)
    assert str(column) == text.replace("tokens", "j")


@pytest.mark.parametrize(
    "changes",
    [
        {"fields": {"x": "int64"}},
        {"fields": {"x": "int64 (N, patches)"}},
        {"fields": {}},
        {"rows": 0},
        {"ragged": {"tokens": (3, 1)}},
        {"colour": "red"},
    ],
)
def test_invalid_shapes_are_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        _shape(**changes)
