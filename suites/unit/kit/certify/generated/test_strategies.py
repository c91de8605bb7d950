"""Strategies: what comes up, what it shrinks to, and which broken planes the properties catch."""

from __future__ import annotations

import sys
from collections.abc import Callable
from random import Random
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import find, given, settings
from hypothesis import strategies as st
from tensordict import NonTensorData, NonTensorStack, TensorDict

from rlconform.backends.memory import MemoryClient
from rlconform.certify.evidence.expect import row_difference
from rlconform.certify.generated import examples
from rlconform.certify.generated.examples import SETTINGS
from rlconform.certify.generated.strategies import (
    Batch,
    Write,
    batches,
    objects,
    overwrites,
    sample_ids,
    tags,
)
from rlconform.certify.generated.strategies_columns import (
    DTYPES,
    Column,
    columns,
    dense_columns,
    jagged_columns,
    tensors,
    unusual_columns,
)
from rlconform.certify.generated.strategies_padded import Padded, padded_batches
from rlconform.contract import KVBatchMeta, Target
from rlconform.resources import resource_dir
from rlconform.wire import rows_of, stack_or_nest

pytest_plugins = ("pytester",)

SEARCH = settings(SETTINGS, max_examples=1000)


def comes_up(strategy: st.SearchStrategy[Any], wanted: Callable[[Any], bool]) -> Any:
    """The smallest value that is wanted; an error if none comes up."""
    return find(strategy, wanted, settings=SEARCH, random=Random(0))


# -- what comes up, and what it shrinks to -------------------------------------------------------


def has_bits(dtype: torch.dtype, bits: int) -> Callable[[torch.Tensor], bool]:
    size = {2: torch.int16, 4: torch.int32, 8: torch.int64}[dtype.itemsize]
    return lambda value: bool((value.view(size) == bits).any())


@pytest.mark.parametrize(
    ("dtype", "bits"),
    [(torch.float32, -(2**31)), (torch.float32, 0x7F80_0001), (torch.bfloat16, 0x7F81),
     (torch.float64, 1), (torch.int64, -(2**63)), (torch.float16, -(2**15))],
)  # fmt: skip
def test_bits_that_get_lost_easily_come_up(dtype: torch.dtype, bits: int) -> None:
    smallest = comes_up(tensors(dtype, (2, 2)), has_bits(dtype, bits))
    plain = smallest.view({2: torch.int16, 4: torch.int32, 8: torch.int64}[dtype.itemsize])
    assert sorted(plain.flatten().tolist(), key=abs)[:3] == [0, 0, 0]


@pytest.mark.parametrize(
    "wanted",
    [
        lambda c: c.value.dim() == 1,
        lambda c: c.value.dim() == 5,
        lambda c: c.value.dim() > 2 and 0 in c.value.shape[1:],
        lambda c: c.value.shape[1:] == (1,),
        *(lambda c, dtype=dtype: c.value.dtype is dtype for dtype in DTYPES),
    ],
)
def test_every_kind_of_dense_column_comes_up(wanted: Callable[[Column], bool]) -> None:
    comes_up(dense_columns(2), wanted)


@pytest.mark.parametrize(
    "lengths", [[0, 0], [0, 3], [3, 0], [2, 2]], ids=["none", "first", "last", "equal"]
)
def test_every_kind_of_jagged_column_comes_up(lengths: list[int]) -> None:
    column = comes_up(jagged_columns(2), lambda c: [len(row) for row in c.rows] == lengths)
    assert column.value.is_nested
    assert not any(row.any() for row in column.rows)


@pytest.mark.parametrize(
    "wanted",
    [
        lambda value: 0 in value.stride(),
        lambda value: value.storage_offset() > 0,
        lambda value: value.dim() > 1 and value.stride()[0] == 1 and value.stride()[-1] > 1,
        lambda value: value.requires_grad and value.is_leaf,
        lambda value: value.requires_grad and not value.is_leaf,
        lambda value: value.dim() > 1 and value.stride()[-1] == 2,
    ],
    ids=["expanded", "sliced", "transposed", "grad_leaf", "grad_result", "strided"],
)
def test_every_unusual_input_comes_up(wanted: Callable[[torch.Tensor], bool]) -> None:
    comes_up(unusual_columns(2), lambda column: wanted(column.value))


@settings(SETTINGS, max_examples=60)
@given(column=columns(3))
def test_a_columns_rows_are_those_of_its_value(column: Column) -> None:
    for got, want in zip(rows_of(column.value.detach()), column.rows, strict=True):
        assert row_difference(got, want) is None


def test_ids_shrink_to_short_ones() -> None:
    assert comes_up(sample_ids(2), lambda ids: any("/" in i for i in ids)) in (
        ["/", "a"],
        ["a", "/"],
    )
    assert max(map(len, comes_up(sample_ids(), lambda ids: len(ids[0]) > 200))) == 201


@settings(SETTINGS, max_examples=60)
@given(ids=sample_ids())
def test_ids_are_unlike_and_of_at_most_a_kibibyte(ids: list[str]) -> None:
    assert len(set(ids)) == len(ids)
    assert all(0 < len(i.encode()) <= 1024 for i in ids)


@pytest.mark.parametrize(
    "wanted",
    [
        lambda value: value is None,
        lambda value: value == [None],
        lambda value: isinstance(value, dict) and any(type(v) is list for v in value.values()),
    ],
    ids=["none", "list", "nested"],
)
def test_every_kind_of_object_comes_up(wanted: Callable[[Any], bool]) -> None:
    comes_up(objects(), wanted)


@pytest.mark.parametrize("kind", [int, float, str, bool, type(None)])
def test_every_kind_of_tag_comes_up(kind: type) -> None:
    row = comes_up(tags(), lambda row: any(type(value) is kind for value in row.values()))
    assert len(row) == 1


def test_overwrites_change_the_dtype_only_of_all_rows() -> None:
    def changes(writes: list[Write]) -> bool:
        return len({row.dtype for write in writes for row in write.rows.values()}) > 1

    first, *_, last = comes_up(overwrites(["a", "b"]), changes)
    assert set(first.rows) == set(last.rows) == {"a", "b"}
    shorter = comes_up(overwrites(["a", "b"]), lambda writes: len(writes[1].rows) == 1)
    assert len(shorter) == 2


@settings(SETTINGS, max_examples=60)
@given(batch=padded_batches())
def test_padding_is_all_that_a_reader_sees_changed(batch: Padded) -> None:
    lengths = batch.columns["input_lengths"].tolist()
    for name in batch.token_fields:
        put, read = batch.columns[name], batch.expected[name]
        assert read.shape[1] == (max(lengths) if batch.width is None else batch.width)
        for row, length in enumerate(lengths):
            assert row_difference(read[row, :length], put[row, :length]) is None
            assert (read[row, length:] == batch.pad_values[name]).all()


def test_a_batch_shrinks_to_one_row_of_one_column() -> None:
    batch = comes_up(batches(), lambda _batch: True)
    assert isinstance(batch, Batch)
    assert (batch.ids, list(batch.columns)) == (["r0"], ["x"])


# -- planes that the properties catch ------------------------------------------------------------


class Bending(MemoryClient):
    """Changes the rows of each column on their way in."""

    def put_samples(
        self, sample_ids: Any, partition_id: str, fields: Any = None, tags: Any = None
    ) -> KVBatchMeta:
        if fields is not None:
            leaves = {name: self.bend(fields.get(name)) for name in fields.keys()}  # noqa: SIM118
            fields = TensorDict(leaves, batch_size=fields.batch_size)
        return super().put_samples(sample_ids, partition_id, fields, self.bend_tags(tags))

    def bend(self, leaf: Any) -> Any:
        """The column as this plane has it."""
        if not isinstance(leaf, torch.Tensor):
            return leaf
        rows = [self.bend_row(row) for row in rows_of(leaf.detach())]
        return torch.nested.nested_tensor(rows, layout=torch.jagged) if leaf.is_nested else (
            stack_or_nest(rows)
        )  # fmt: skip

    def bend_row(self, row: torch.Tensor) -> torch.Tensor:
        """The row as this plane has it."""
        return row

    def bend_tags(self, tags: Any) -> Any:
        """The tags as this plane has them."""
        return tags


class NormalisesZeros(Bending):
    """-0.0 becomes 0.0."""

    def bend_row(self, row: torch.Tensor) -> torch.Tensor:
        return torch.where(row == 0, torch.zeros_like(row), row)


class CanonicalisesNans(Bending):
    """A NaN loses its payload."""

    def bend_row(self, row: torch.Tensor) -> torch.Tensor:
        if not row.is_floating_point() or row.dtype.itemsize == 1:
            return row
        return torch.where(row.isnan(), torch.full_like(row, float("nan")), row)


class LosesEmptyRows(Bending):
    """A row of length zero gets one zero."""

    def bend_row(self, row: torch.Tensor) -> torch.Tensor:
        return row.new_zeros(1, *row.shape[1:]) if row.dim() == 1 and len(row) == 0 else row


class SqueezesOnes(Bending):
    """(N, 1) comes back as (N,)."""

    def bend_row(self, row: torch.Tensor) -> torch.Tensor:
        return row.squeeze(-1) if row.shape == (1,) else row


class ReadsStorage(Bending):
    """A view is taken for the start of its storage."""

    def bend(self, leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor) or leaf.is_nested:
            return leaf
        flat = leaf.detach().as_strided((leaf.untyped_storage().size() // leaf.itemsize,), (1,), 0)
        need = leaf.numel()
        return flat.repeat(need // max(1, flat.numel()) + 1)[:need].reshape(leaf.shape)


class KeepsGrad(MemoryClient):
    """What is read needs grad."""

    def get_samples(self, *args: Any, **more: Any) -> Any:
        batch = super().get_samples(*args, **more)
        for name in batch.keys():  # noqa: SIM118
            leaf = batch.get(name)
            if isinstance(leaf, torch.Tensor) and leaf.is_floating_point():
                batch.set(name, leaf.requires_grad_())
        return batch


class PromotesHalves(Bending):
    """bfloat16 is carried as float32."""

    def bend_row(self, row: torch.Tensor) -> torch.Tensor:
        return row.float() if row.dtype is torch.bfloat16 else row


class PadsRows(Bending):
    """Jagged rows with trailing dimensions are padded to one length."""

    def bend(self, leaf: Any) -> Any:
        if isinstance(leaf, torch.Tensor) and leaf.is_nested and leaf.dim() > 2:
            return torch.nested.to_padded_tensor(leaf.float(), 0.0).to(leaf.dtype)
        return leaf


class StripsIds(MemoryClient):
    """Ids are keys of a store that folds separators."""

    def put_samples(self, sample_ids: Any, *args: Any, **more: Any) -> Any:
        folded = [i.replace("/", ":") for i in sample_ids]
        unlike = dict.fromkeys(folded)
        return super().put_samples(
            folded if len(unlike) == len(folded) else sample_ids, *args, **more
        )

    def get_samples(self, sample_ids: Any, *args: Any, **more: Any) -> Any:
        return super().get_samples([i.replace("/", ":") for i in sample_ids], *args, **more)


class FloatsTags(Bending):
    """Integers in tags come back as floats."""

    def bend_tags(self, tags: Any) -> Any:
        return tags and [
            {k: float(v) if type(v) is int else v for k, v in row.items()} for row in tags
        ]


class ReplacesTags(MemoryClient):
    """The tags of a second put take the place of the first ones."""

    def __init__(self) -> None:
        super().__init__()
        self.newest: dict[str, Any] = {}

    def put_samples(
        self, sample_ids: Any, partition_id: str, fields: Any = None, tags: Any = None
    ) -> Any:
        for sample_id, row in zip(sample_ids, tags or (), strict=False):
            self.newest[sample_id] = set(row)
        return super().put_samples(sample_ids, partition_id, fields, tags)

    def claim_meta(self, *args: Any, **more: Any) -> KVBatchMeta:
        meta = super().claim_meta(*args, **more)
        for sample_id, row in zip(meta.sample_ids, meta.tags or (), strict=True):
            for key in set(row) - self.newest.get(sample_id, set()):
                del row[key]
        return meta


class EmptiesObjects(Bending):
    """None in an object column becomes an empty string."""

    def bend(self, leaf: Any) -> Any:
        if not isinstance(leaf, NonTensorData) or not isinstance(leaf.data, np.ndarray):
            return leaf
        return NonTensorStack(*[NonTensorData("" if v is None else v) for v in leaf.data])


class ForgetsEarlierColumns(MemoryClient):
    """The put of a further column drops the others of its rows."""

    def put_samples(
        self, sample_ids: Any, partition_id: str, fields: Any = None, tags: Any = None
    ) -> Any:
        if fields is not None:
            super().clear_samples(sample_ids, partition_id)
        return super().put_samples(sample_ids, partition_id, fields, tags)


class ReadsSorted(MemoryClient):
    """Rows come in the order of their ids."""

    def get_samples(self, sample_ids: Any, *args: Any, **more: Any) -> Any:
        return super().get_samples(sorted(sample_ids), *args, **more)


class OverFetches(MemoryClient):
    """Each read brings a column more."""

    def get_samples(self, sample_ids: Any, partition_id: str, select_fields: Any) -> Any:
        batch = super().get_samples(sample_ids, partition_id, select_fields)
        try:
            return super().get_samples(sample_ids, partition_id, [*select_fields, "y"])
        except (LookupError, ValueError):
            return batch


CAUGHT: list[tuple[type[MemoryClient], str]] = [
    (NormalisesZeros, "PUT-01"),
    (CanonicalisesNans, "PUT-01"),
    (PromotesHalves, "PUT-05"),
    (LosesEmptyRows, "PUT-06"),
    (SqueezesOnes, "PUT-03"),
    (ReadsStorage, "PUT-08"),
    (KeepsGrad, "PUT-08"),
    (PadsRows, "PUT-07"),
    (ForgetsEarlierColumns, "PUT-11"),
    (StripsIds, "PUT-20"),
    (EmptiesObjects, "PUT-21"),
    (ReadsSorted, "GET-01"),
    (OverFetches, "GET-03"),
    (FloatsTags, "TAG-01"),
    (ReplacesTags, "TAG-03"),
    (LosesEmptyRows, "WIRE-01"),
    (PromotesHalves, "WIRE-01"),
]


class Results:
    """Runs the checks of some requirements only, and keeps what those that fail say."""

    def __init__(self, wanted: set[str]) -> None:
        self._wanted = wanted
        self._requirement: dict[str, str] = {}
        self.failures: dict[str, str] = {}

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        for item in items:
            mark = item.get_closest_marker("requirement")
            assert mark is not None
            self._requirement[item.nodeid] = mark.args[0]
        items[:] = [item for item in items if self._requirement[item.nodeid] in self._wanted]

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.failures[self._requirement[report.nodeid]] = report.longreprtext


@pytest.mark.parametrize("plane", dict(CAUGHT), ids=lambda plane: plane.__name__)
def test_a_broken_plane_fails_the_property(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, plane: type[MemoryClient]
) -> None:
    target = Target(name="bent", open=lambda _c, _b: plane(), capabilities={"objects": True})
    monkeypatch.setitem(sys.modules, "bent_planes", SimpleNamespace(TARGET=target))  # type: ignore[arg-type]
    monkeypatch.setattr(examples, "PLANE_S", 60.0)  # also where other work slows this process
    monkeypatch.setattr(examples, "SHRINK_S", 0.5)  # what is looked at is whether it is found
    wanted = {each for kind, each in CAUGHT if kind is plane}
    results = Results(wanted)
    pytester.inline_run(
        str(resource_dir("suites") / "unit" / "properties"),
        *("--target", "bent_planes:TARGET", "--rootdir", str(resource_dir("suites"))),
        *("--import-mode=importlib", "-p", "rlconform.certify.plugin", "-p", "no:cacheprovider"),
        plugins=[results],
    )
    assert results.failures.keys() == wanted
    assert all("found with --seed 0" in text for text in results.failures.values())
