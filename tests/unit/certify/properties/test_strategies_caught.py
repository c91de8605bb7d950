"""Property checks find these broken planes."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from tensordict import NonTensorData, NonTensorStack, TensorDict

from rlconform._resources import resource_dir
from rlconform.backends.memory import MemoryClient
from rlconform.certify.properties import runner
from rlconform.contract import KVBatchMeta, Target, Timeouts
from rlconform.wire import object_column, object_rows, rows_of, stack_or_nest

pytest_plugins = ("pytester",)


class Bending(MemoryClient):
    """Changes the rows of each column before it stores them."""

    def put_samples(
        self, sample_ids: Any, partition_id: str, fields: Any = None, tags: Any = None
    ) -> KVBatchMeta:
        if fields is not None:
            leaves = {name: self.bend(fields.get(name)) for name in fields.keys()}  # noqa: SIM118
            fields = TensorDict(leaves, batch_size=fields.batch_size)
        return super().put_samples(sample_ids, partition_id, fields, self.bend_tags(tags))

    def bend(self, leaf: Any) -> Any:
        """The column as this plane stores it."""
        if not isinstance(leaf, torch.Tensor):
            return leaf
        rows = [self.bend_row(row) for row in rows_of(leaf.detach())]
        return torch.nested.nested_tensor(rows, layout=torch.jagged) if leaf.is_nested else (
            stack_or_nest(rows)
        )  # fmt: skip

    def bend_row(self, row: torch.Tensor) -> torch.Tensor:
        """The row as this plane stores it."""
        return row

    def bend_tags(self, tags: Any) -> Any:
        """The tags as this plane stores them."""
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
    """(N, 1) is read as (N,)."""

    def bend_row(self, row: torch.Tensor) -> torch.Tensor:
        return row.squeeze(-1) if row.shape == (1,) else row


class ReadsStorage(Bending):
    """A view is stored as the start of its storage."""

    def bend(self, leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor) or leaf.is_nested:
            return leaf
        flat = leaf.detach().as_strided((leaf.untyped_storage().size() // leaf.itemsize,), (1,), 0)
        need = leaf.numel()
        return flat.repeat(need // max(1, flat.numel()) + 1)[:need].reshape(leaf.shape)


class KeepsGrad(MemoryClient):
    """Rows that are read require grad."""

    def get_samples(self, *args: Any, **more: Any) -> Any:
        batch = super().get_samples(*args, **more)
        for name in batch.keys():  # noqa: SIM118
            leaf = batch.get(name)
            if isinstance(leaf, torch.Tensor) and leaf.is_floating_point():
                batch.set(name, leaf.requires_grad_())
        return batch


class IgnoresTokenStrides(Bending):
    """Reads the tokens of a jagged column contiguously from their start, whatever their strides."""

    def bend(self, leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor) or not leaf.is_nested or leaf.lengths() is not None:  # type: ignore[operator]
            return leaf
        tokens = leaf.detach().values()  # type: ignore[operator]
        first = tokens.as_strided(tokens.shape, torch.empty(tokens.shape).stride())
        held = tokens.untyped_storage().size() // tokens.itemsize - tokens.storage_offset()
        if held < tokens.numel():
            return leaf
        return torch.nested.nested_tensor_from_jagged(first, leaf.offsets())  # type: ignore[operator]


class PutJaggedGapsForgotten(Bending):
    """The unused tokens after a row of a jagged column become part of the row."""

    def bend(self, leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor) or not leaf.is_nested or leaf.lengths() is None:  # type: ignore[operator]
            return leaf
        plain: Any = leaf.detach()
        return torch.nested.nested_tensor_from_jagged(plain.values(), plain.offsets())


class RefusesFiveRaggedDimensions(Bending):
    """Jagged columns are sent by a routine for at most four dimensions."""

    def bend(self, leaf: Any) -> Any:
        if isinstance(leaf, torch.Tensor) and leaf.is_nested and leaf.dim() > 4:
            raise RuntimeError("too many dimensions")
        return leaf


class KeepsTheFirstDtype(MemoryClient):
    """A field has the dtype of its first put; later puts are cast to it."""

    def __init__(self) -> None:
        super().__init__()
        self.dtype: dict[str, torch.dtype] = {}

    def put_samples(
        self, sample_ids: Any, partition_id: str, fields: Any = None, tags: Any = None
    ) -> Any:
        leaf = None if fields is None else fields.get("x", None)
        if isinstance(leaf, torch.Tensor):
            first = self.dtype.setdefault(partition_id, leaf.dtype)
            fields = TensorDict({"x": leaf.to(first)}, fields.batch_size)
        return super().put_samples(sample_ids, partition_id, fields, tags)


class PutObjectsBesideTensorsEmptied(Bending):
    """An object column that is put together with a tensor loses its last value."""

    def put_samples(
        self, sample_ids: Any, partition_id: str, fields: Any = None, tags: Any = None
    ) -> Any:
        names = [] if fields is None else list(fields.keys())
        if "log" in names and len(names) > 1:
            held = object_rows(fields.get("log"), len(sample_ids))
            fields = fields.clone(recurse=False).set("log", object_column([*held[:-1], ""]))
        return super().put_samples(sample_ids, partition_id, fields, tags)


class PutFirstObjectsKept(MemoryClient):
    """An overwrite of an object column is ignored."""

    def put_samples(
        self, sample_ids: Any, partition_id: str, fields: Any = None, tags: Any = None
    ) -> Any:
        if fields is not None and list(fields.keys()) == ["log"]:
            try:
                self.get_samples(sample_ids, partition_id, ["log"])
            except LookupError:
                pass
            else:
                return KVBatchMeta(partition_id, None, list(sample_ids), ["log"])
        return super().put_samples(sample_ids, partition_id, fields, tags)


class PromotesHalves(Bending):
    """bfloat16 is stored as float32."""

    def bend_row(self, row: torch.Tensor) -> torch.Tensor:
        return row.float() if row.dtype is torch.bfloat16 else row


class PadsRows(Bending):
    """Jagged rows with trailing dimensions are padded to one length."""

    def bend(self, leaf: Any) -> Any:
        if isinstance(leaf, torch.Tensor) and leaf.is_nested and leaf.dim() > 2:
            return torch.nested.to_padded_tensor(leaf.float(), 0.0).to(leaf.dtype)
        return leaf


class StripsIds(MemoryClient):
    """Ids are keys of a store that merges separators."""

    def put_samples(self, sample_ids: Any, *args: Any, **more: Any) -> Any:
        folded = [i.replace("/", ":") for i in sample_ids]
        unlike = dict.fromkeys(folded)
        return super().put_samples(
            folded if len(unlike) == len(folded) else sample_ids, *args, **more
        )

    def get_samples(self, sample_ids: Any, *args: Any, **more: Any) -> Any:
        return super().get_samples([i.replace("/", ":") for i in sample_ids], *args, **more)


class FloatsTags(Bending):
    """Integers in tags are read as floats."""

    def bend_tags(self, tags: Any) -> Any:
        return tags and [
            {k: float(v) if type(v) is int else v for k, v in row.items()} for row in tags
        ]


class ConcurrentStampsLost(MemoryClient):
    """The tags of a second put replace the first ones."""

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
    """A put of another column drops the rows' earlier columns."""

    def put_samples(
        self, sample_ids: Any, partition_id: str, fields: Any = None, tags: Any = None
    ) -> Any:
        if fields is not None:
            super().clear_samples(sample_ids, partition_id)
        return super().put_samples(sample_ids, partition_id, fields, tags)


class ReadsSorted(MemoryClient):
    """Rows are read in the order of their ids."""

    def get_samples(self, sample_ids: Any, *args: Any, **more: Any) -> Any:
        return super().get_samples(sorted(sample_ids), *args, **more)


class OverFetches(MemoryClient):
    """Each read returns one column more."""

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
    (IgnoresTokenStrides, "PUT-08"),
    (PutJaggedGapsForgotten, "PUT-08"),
    (RefusesFiveRaggedDimensions, "PUT-05"),
    (KeepsTheFirstDtype, "PUT-23"),
    (PutObjectsBesideTensorsEmptied, "PUT-21"),
    (PutFirstObjectsKept, "PUT-13"),
    (KeepsGrad, "PUT-08"),
    (PadsRows, "PUT-07"),
    (ForgetsEarlierColumns, "PUT-11"),
    (StripsIds, "PUT-20"),
    (EmptiesObjects, "PUT-21"),
    (ReadsSorted, "GET-01"),
    (OverFetches, "GET-03"),
    (FloatsTags, "TAG-01"),
    (ConcurrentStampsLost, "TAG-03"),
    (LosesEmptyRows, "WIRE-01"),
    (PromotesHalves, "WIRE-01"),
]


class Results:
    """Runs only the checks of some requirements, and keeps the messages of those that fail."""

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


@pytest.mark.usefixtures("unhurried")
@pytest.mark.parametrize("plane", dict(CAUGHT), ids=lambda plane: plane.__name__)
def test_a_broken_plane_fails_the_property(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, plane: type[MemoryClient]
) -> None:
    target = Target(
        name="bent",
        open=lambda _c, _b: plane(),
        capabilities={"objects": True},
        timeouts=Timeouts(check=600),
    )
    monkeypatch.setitem(sys.modules, "bent_planes", SimpleNamespace(TARGET=target))
    monkeypatch.setattr(runner, "SHRINK_S", 0.5)  # this test only checks whether it is found
    wanted = {each for kind, each in CAUGHT if kind is plane}
    results = Results(wanted)
    pytester.inline_run(
        str(resource_dir("suites") / "unit" / "properties"),
        *("--rlconform-target", "bent_planes:TARGET", "--rootdir", str(resource_dir("suites"))),
        *(
            "--import-mode=importlib",
            "-p",
            "rlconform.certify.plugin.plugin",
            "-p",
            "no:cacheprovider",
        ),
        plugins=[results],
    )
    assert results.failures.keys() == wanted
    assert all("found with --seed 0" in text for text in results.failures.values())
