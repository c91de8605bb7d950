"""``KVBatchMeta``: every transform keeps rows aligned and does not change its source."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from copy import deepcopy
from dataclasses import FrozenInstanceError, asdict, replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rlconform.contract import BatchMeta, KVBatchMeta

META = KVBatchMeta(
    partition_id="train",
    task_name="prev_lp",
    sample_ids=["a", "b", "c"],
    fields=["x", "y"],
    sequence_lengths=[3, 1, 2],
    extra_info={"plan": {"bins": [[0, 1], [2]]}, "pad": 8},
    tags=[{"version": 1}, {"version": 2}, {"version": 3}],
)

TRANSFORMS: dict[str, Callable[[KVBatchMeta], KVBatchMeta]] = {
    "subset": lambda meta: meta.subset([2, 0]),
    "subset of all": lambda meta: meta.subset(range(meta.size)),
    "slice": lambda meta: meta.slice(0, 2),
    "drop": lambda meta: meta.drop([1]),
    "drop nothing": lambda meta: meta.drop([]),
    "concat": lambda meta: meta.concat(meta),
    "concat of nothing": lambda meta: meta.concat(),
    "stamp_tags": lambda meta: meta.stamp_tags({"std": [0.0, 0.5, 1.0]}),
    "stamp nothing": lambda meta: meta.stamp_tags({}),
    "with_fields": lambda meta: meta.with_fields(["z"]),
    "with no fields": lambda meta: meta.with_fields([]),
}


def scribble(value: Any) -> None:
    """Change every mutable container in ``value``, at any depth."""
    if isinstance(value, dict):
        for held in value.values():
            scribble(held)
        value["scribbled"] = True
    elif isinstance(value, list):
        for held in value:
            scribble(held)
        value.append("scribbled")


def scribble_over(meta: KVBatchMeta) -> None:
    for held in vars(meta).values():
        scribble(held)


@pytest.mark.parametrize("transform", TRANSFORMS.values(), ids=TRANSFORMS)
def test_a_transform_leaves_its_source_alone(transform: Callable[[KVBatchMeta], KVBatchMeta]):
    source = deepcopy(META)
    scribble_over(transform(source))
    assert source == META


@pytest.mark.parametrize("transform", TRANSFORMS.values(), ids=TRANSFORMS)
def test_a_result_does_not_follow_its_source(transform: Callable[[KVBatchMeta], KVBatchMeta]):
    source = deepcopy(META)
    result = transform(source)
    as_made = deepcopy(result)
    scribble_over(source)
    assert result == as_made


@pytest.mark.parametrize("transform", TRANSFORMS.values(), ids=TRANSFORMS)
def test_batch_level_values_go_along(transform: Callable[[KVBatchMeta], KVBatchMeta]):
    result = transform(META)
    assert (result.partition_id, result.task_name) == ("train", "prev_lp")
    assert result.extra_info == META.extra_info


@pytest.mark.parametrize("transform", TRANSFORMS.values(), ids=TRANSFORMS)
def test_what_a_meta_does_not_know_stays_unknown(transform: Callable[[KVBatchMeta], KVBatchMeta]):
    bare = replace(META, sequence_lengths=None)
    assert transform(bare).sequence_lengths is None


def test_scribbling_changes_a_meta() -> None:
    """Checks that the tests above can fail: they would notice a shared nested list."""
    source = deepcopy(META)
    shared = replace(source, extra_info=dict(source.extra_info))
    scribble_over(shared)
    assert source.extra_info != META.extra_info


# -- alignment ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["tags", "sequence_lengths"])
@pytest.mark.parametrize("count", [0, 2, 4])
def test_values_beside_the_rows_must_align(name: str, count: int) -> None:
    values = [{}] * count if name == "tags" else [1] * count
    with pytest.raises(ValueError, match=rf"{name} has {count} entries for 3"):
        replace(META, **{name: values})


@pytest.mark.parametrize("outside", [3, -4])
def test_a_row_outside_is_an_index_error(outside: int) -> None:
    for select in (META.subset, META.drop):
        with pytest.raises(IndexError):
            select([0, outside])


def test_a_row_may_repeat_in_a_subset() -> None:
    meta = META.subset([1, 1, -1])
    assert meta.sample_ids == ["b", "b", "c"]
    assert meta.sequence_lengths == [1, 1, 2]
    meta.tags[0]["version"] = 9
    assert meta.tags[1] == {"version": 2}


def test_slices_count_as_pythons_do() -> None:
    assert META.slice(-2, 99).sample_ids == ["b", "c"]
    assert META.slice(2, 1).sample_ids == []
    assert META.slice(2, 1).tags == []


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("partition_id", "val"),
        ("task_name", "train"),
        ("fields", ["x"]),
        ("fields", None),
        ("sequence_lengths", None),
        ("tags", None),
    ],
)
def test_unlike_metas_are_not_joined(name: str, value: Any) -> None:
    other = replace(META, **{name: value})
    for first, second in ((META, other), (other, META)):
        with pytest.raises(ValueError, match=name):
            first.concat(second)


def test_the_order_of_fields_does_not_part_metas() -> None:
    assert META.concat(replace(META, fields=["y", "x"])).fields == ["x", "y"]


def test_the_earliest_value_of_a_key_wins() -> None:
    parts = [replace(META, extra_info=info) for info in ({"a": 1}, {"a": 2, "b": 2}, {"b": 3})]
    assert parts[0].concat(*parts[1:]).extra_info == {"a": 1, "b": 2}


# -- tags and fields ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        ([1, 2, 3], [1, 2, 3]),
        (["a", None, True], ["a", None, True]),
        (torch.tensor([1, 2, 3]), [1, 2, 3]),
        (torch.tensor([0.5, 1.0, -0.0]), [0.5, 1.0, -0.0]),
        (torch.tensor([True, False, True]), [True, False, True]),
        ([torch.tensor(1), np.float64(0.5), np.int64(7)], [1, 0.5, 7]),
        (np.array([True, False, True]), [True, False, True]),
    ],
    ids=["ints", "primitives", "int tensor", "float tensor", "bool tensor", "scalars", "numpy"],
)
def test_stamped_tags_are_primitives(column: Any, expected: list[Any]) -> None:
    stamped = META.stamp_tags({"stamp": column}).tags
    got = [row["stamp"] for row in stamped]
    assert got == expected
    assert [type(value) for value in got] == [type(value) for value in expected]
    assert [row["version"] for row in stamped] == [1, 2, 3]


def test_a_stamp_replaces_a_tag_of_the_same_name() -> None:
    assert META.stamp_tags({"version": [7, 8, 9]}).tags == [{"version": v} for v in (7, 8, 9)]


def test_rows_without_tags_can_be_stamped() -> None:
    bare = replace(META, tags=None)
    assert bare.stamp_tags({"n": [1, 2, 3]}).tags == [{"n": 1}, {"n": 2}, {"n": 3}]
    assert bare.subset([]).stamp_tags({"n": []}).tags == []


@pytest.mark.parametrize("count", [0, 1, 2, 4])
def test_a_stamp_must_align(count: int) -> None:
    with pytest.raises(ValueError, match=rf"'n' has {count} values for 3 rows"):
        META.stamp_tags({"fits": [0, 0, 0], "n": [0] * count})


def test_fields_are_added_once_and_in_order() -> None:
    assert META.with_fields(iter(["z", "x", "z"])).fields == ["x", "y", "z"]
    assert replace(META, fields=None).with_fields(["x"]).fields == ["x"]


def test_added_fields_leave_the_rows_lengths_and_tags() -> None:
    assert META.with_fields(["z"]) == replace(META, fields=["x", "y", "z"])


# -- the record ----------------------------------------------------------------------------------


def test_it_is_a_batch_meta() -> None:
    assert isinstance(META, BatchMeta)


def test_defaults_are_not_shared() -> None:
    first, second = KVBatchMeta("p", None, []), KVBatchMeta("p", None, [])
    first.extra_info["pad"] = 8
    assert second.extra_info == {}


def test_it_is_frozen() -> None:
    with pytest.raises(FrozenInstanceError):
        META.partition_id = "val"  # type: ignore[misc]


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_it_travels_by_pickle(protocol: int) -> None:
    assert pickle.loads(pickle.dumps(META, protocol)) == META


# -- properties ----------------------------------------------------------------------------------


def metas() -> st.SearchStrategy[KVBatchMeta]:
    """Metas of a few rows, with and without the optional attributes."""
    return st.builds(_meta, st.integers(0, 6), st.booleans(), st.booleans(), st.integers(0, 99))


def _meta(count: int, lengths: bool, tags: bool, first: int) -> KVBatchMeta:
    rows = range(first, first + count)
    return KVBatchMeta(
        "p",
        "t",
        [f"u{n}" for n in rows],
        ["x"],
        [n % 7 for n in rows] if lengths else None,
        {"first": {"row": first}},
        [{"n": n} for n in rows] if tags else None,
    )


def alike(count: int) -> st.SearchStrategy[list[KVBatchMeta]]:
    """``count`` metas that can be joined."""
    sizes = st.lists(st.integers(0, 4), min_size=count, max_size=count)
    return st.builds(
        lambda sizes, lengths, tags: [
            _meta(size, lengths, tags, 10 * n) for n, size in enumerate(sizes)
        ],
        sizes,
        st.booleans(),
        st.booleans(),
    )


def rows_of(meta: KVBatchMeta, data: st.DataObject) -> list[int]:
    """Indexes of some of the meta's rows, counted from either end."""
    if not meta.size:
        return []
    return data.draw(st.lists(st.integers(-meta.size, meta.size - 1), max_size=6))


@given(metas(), st.data())
def test_a_subset_takes_each_row_whole(meta: KVBatchMeta, data: st.DataObject) -> None:
    rows = rows_of(meta, data)
    got = asdict(meta.subset(rows))
    for name in ("sample_ids", "sequence_lengths", "tags"):
        whole = getattr(meta, name)
        assert got[name] == (None if whole is None else [whole[i] for i in rows])


@given(metas())
def test_the_subset_of_all_rows_is_the_meta(meta: KVBatchMeta) -> None:
    assert meta.subset(range(meta.size)) == meta


@given(metas(), st.data())
def test_a_subset_of_a_subset_is_a_subset(meta: KVBatchMeta, data: st.DataObject) -> None:
    outer = rows_of(meta, data)
    inner = rows_of(meta.subset(outer), data)
    assert meta.subset(outer).subset(inner) == meta.subset([outer[i] for i in inner])


@given(metas(), st.data())
def test_subset_and_drop_part_the_rows(meta: KVBatchMeta, data: st.DataObject) -> None:
    rows = rows_of(meta, data)
    kept = sorted({i % meta.size for i in rows})
    dropped = meta.drop(rows)
    assert dropped == meta.subset([i for i in range(meta.size) if i not in kept])
    joined = meta.subset(kept).concat(dropped)
    assert sorted(joined.sample_ids) == sorted(meta.sample_ids)


@given(metas(), st.integers(-8, 8), st.integers(-8, 8))
def test_a_slice_is_a_subset_in_a_row(meta: KVBatchMeta, start: int, stop: int) -> None:
    assert meta.slice(start, stop).sample_ids == meta.sample_ids[start:stop]
    assert meta.slice(start, stop) == meta.subset(range(meta.size)[start:stop])


@given(metas(), st.data())
def test_slices_join_to_the_whole(meta: KVBatchMeta, data: st.DataObject) -> None:
    cut = data.draw(st.integers(0, meta.size))
    assert meta.slice(0, cut).concat(meta.slice(cut, meta.size)) == meta


@given(alike(3))
def test_joining_is_associative(metas: list[KVBatchMeta]) -> None:
    first, second, third = metas
    at_once = first.concat(second, third)
    assert at_once == first.concat(second).concat(third)
    assert at_once == first.concat(second.concat(third))
    assert at_once.size == sum(meta.size for meta in metas)


def test_a_mask_of_booleans_is_no_list_of_rows() -> None:
    meta = KVBatchMeta(partition_id="p", task_name=None, sample_ids=["a", "b", "c"])
    with pytest.raises(TypeError, match=r"^KVBatchMeta\.subset takes row numbers.*booleans$"):
        meta.subset([True, False, True])


class ForeignMeta:
    """A meta of a vendor's class, without extra_info."""

    partition_id, task_name, sample_ids, fields = "p", "train", ["a", "b"], ["x"]
    sequence_lengths, tags = [3, 4], [{"v": 1}, {"v": 2}]
    extra_info: dict[str, Any] | None = None


def test_a_meta_of_another_class_becomes_ours() -> None:
    meta = KVBatchMeta.of(ForeignMeta())  # type: ignore[arg-type]
    assert meta == KVBatchMeta("p", "train", ["a", "b"], ["x"], [3, 4], {}, [{"v": 1}, {"v": 2}])
    assert KVBatchMeta.of(meta) is meta


def test_what_another_class_says_of_the_batch_goes_along() -> None:
    foreign = ForeignMeta()
    foreign.extra_info = {"pad": 8}
    assert KVBatchMeta.of(foreign).extra_info == {"pad": 8}  # type: ignore[arg-type]
