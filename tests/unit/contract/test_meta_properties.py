"""Properties of a meta's transforms: rows keep their values, and share nothing with the source."""

from __future__ import annotations

from copy import deepcopy

from hypothesis import Verbosity, given, settings
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from rlconform.certify.properties.runner import SETTINGS
from rlconform.certify.properties.strategies import sample_ids, tags
from rlconform.contract import KVBatchMeta

#: A failure shows the drawn values and the line that reproduces it.
MANY = settings(SETTINGS, max_examples=40, print_blob=True, verbosity=Verbosity.normal)

Row = tuple[str, int | None, tuple[tuple[str, object], ...] | None]


@st.composite
def metas(draw: DrawFn) -> KVBatchMeta:
    ids = draw(sample_ids(min_size=0))
    n = len(ids)
    lengths = st.lists(st.integers(0, 4096), min_size=n, max_size=n)
    return KVBatchMeta(
        "train",
        draw(st.sampled_from([None, "train"])),
        ids,
        draw(st.none() | st.just(["x", "y"])),
        draw(st.none() | lengths),
        draw(st.just({}) | st.just({"plan": [[1, 2]]})),
        draw(st.none() | st.lists(tags(), min_size=n, max_size=n)),
    )


def rows_of(meta: KVBatchMeta) -> list[Row]:
    """Each row with its length and tags."""
    lengths = meta.sequence_lengths or [None] * meta.size
    held = [None] * meta.size if meta.tags is None else [tuple(row.items()) for row in meta.tags]
    return list(zip(meta.sample_ids, lengths, held, strict=True))


def frame_of(meta: KVBatchMeta) -> tuple[object, ...]:
    """The values of the whole batch."""
    return (
        meta.partition_id,
        meta.task_name,
        meta.fields,
        meta.extra_info,
        meta.sequence_lengths is None,
        meta.tags is None,
    )


@MANY
@given(meta=metas(), data=st.data())
def test_a_subset_has_the_rows_asked_for(meta: KVBatchMeta, data: st.DataObject) -> None:
    indices = data.draw(st.lists(st.integers(0, meta.size - 1)) if meta.size else st.just([]))
    chosen = meta.subset(indices)
    assert rows_of(chosen) == [rows_of(meta)[i] for i in indices]
    assert frame_of(chosen) == frame_of(meta)


@MANY
@given(meta=metas(), data=st.data())
def test_subset_and_drop_share_the_rows_out(meta: KVBatchMeta, data: st.DataObject) -> None:
    kept = data.draw(st.sets(st.integers(0, meta.size - 1)) if meta.size else st.just(set()))
    halves = meta.subset(sorted(kept)), meta.drop(kept)
    assert sorted(rows_of(halves[0]) + rows_of(halves[1]), key=repr) == sorted(
        rows_of(meta), key=repr
    )
    assert frame_of(halves[1]) == frame_of(meta)


@MANY
@given(meta=metas(), cut=st.integers(0, 6))
def test_slices_concatenate_to_the_whole(meta: KVBatchMeta, cut: int) -> None:
    joined = meta.slice(0, cut).concat(meta.slice(cut, meta.size))
    assert (rows_of(joined), frame_of(joined)) == (rows_of(meta), frame_of(meta))


@MANY
@given(a=metas(), data=st.data())
def test_concat_is_associative(a: KVBatchMeta, data: st.DataObject) -> None:
    b, c = (a.subset(data.draw(st.permutations(range(a.size)))) for _ in range(2))
    assert a.concat(b).concat(c) == a.concat(b.concat(c)) == a.concat(b, c)


@MANY
@given(meta=metas(), values=st.lists(st.integers() | st.none(), min_size=5, max_size=5))
def test_a_stamp_goes_to_its_row_and_leaves_the_others_tags(
    meta: KVBatchMeta, values: list[int | None]
) -> None:
    stamped = meta.stamp_tags({"std": values[: meta.size]})
    before = [{} for _ in meta.sample_ids] if meta.tags is None else meta.tags
    due = [row | {"std": value} for row, value in zip(before, values, strict=False)]
    assert stamped.tags == due
    assert stamped.sample_ids == meta.sample_ids
    assert frame_of(stamped)[:-1] == frame_of(meta)[:-1]


@MANY
@given(meta=metas(), names=st.lists(st.sampled_from(["x", "z", "a"])))
def test_fields_are_added_once_in_order(meta: KVBatchMeta, names: list[str]) -> None:
    merged = meta.with_fields(names).fields
    assert merged == list(dict.fromkeys([*(meta.fields or []), *names]))
    assert meta.with_fields(names).with_fields(names).fields == merged


@MANY
@given(meta=metas(), data=st.data())
def test_no_transform_shares_anything_with_its_source(
    meta: KVBatchMeta, data: st.DataObject
) -> None:
    before = deepcopy(meta)
    transform = data.draw(
        st.sampled_from([
            lambda m: m.subset(range(m.size)),
            lambda m: m.drop([]),
            lambda m: m.concat(m.slice(0, 0)),
            lambda m: m.stamp_tags({}),
            lambda m: m.with_fields(["z"]),
        ])
    )  # fmt: skip
    made = transform(meta)
    made.sample_ids.append("other")
    made.extra_info["plan"] = "other"
    for row in made.tags or ():
        row["other"] = 1
    assert meta == before
