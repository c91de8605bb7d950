"""Rollout filters use only tags, and raise if the tags are not sufficient."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rlconform.certify.plugin.markers import requirement
from rlconform.contract import KVBatchMeta
from rlconform.grpo.rollout.staleness_filter import (
    BaseRolloutFilter,
    MissingTag,
    NoCurrentVersion,
    RolloutFilterError,
    StalenessFilter,
    WrongVersion,
)

CURRENT = 5
ON_TIME = StalenessFilter(max_staleness=1, current_version=CURRENT)


def claimed(*versions: Any, key: str = "weight_version") -> KVBatchMeta:
    return KVBatchMeta(
        "rollouts",
        "train",
        [f"u{row}_g0" for row in range(len(versions))],
        fields=["input_ids"],
        sequence_lengths=[10 + row for row in range(len(versions))],
        extra_info={"step": 3},
        tags=[{key: version, "std": 0.5} for version in versions],
    )


def test_rows_within_the_bound_are_kept() -> None:
    assert ON_TIME.keep(claimed(5, 3, 4, 0, 5)) == [0, 2, 4]


@pytest.mark.parametrize(("bound", "rows"), [(0, [2]), (1, [1, 2]), (5, [0, 1, 2])])
def test_the_bound_is_inclusive(bound: int, rows: list[int]) -> None:
    assert StalenessFilter(bound, CURRENT).keep(claimed(0, 4, 5)) == rows


def test_a_split_carries_ids_lengths_and_tags_along() -> None:
    meta = claimed(3, 5, 2, 4)
    kept, dropped = ON_TIME.split(meta)
    assert kept == meta.subset([1, 3])
    assert dropped == meta.subset([0, 2])


@given(st.lists(st.integers(0, CURRENT)), st.integers(0, CURRENT + 1))
def test_a_split_is_a_partition_in_order(versions: list[int], bound: int) -> None:
    meta = claimed(*versions)
    kept, dropped = StalenessFilter(bound, CURRENT).split(meta)
    fresh = [i for i, v in zip(meta.sample_ids, versions, strict=True) if CURRENT - v <= bound]
    assert kept.sample_ids == fresh
    assert dropped.sample_ids == [i for i in meta.sample_ids if i not in fresh]


def test_a_new_version_makes_rows_stale() -> None:
    aging = StalenessFilter(max_staleness=1, current_version=CURRENT)
    assert aging.keep(claimed(4)) == [0]
    aging.current_version = CURRENT + 1
    assert aging.keep(claimed(4)) == []


def test_an_empty_claim_splits_into_nothing() -> None:
    kept, dropped = ON_TIME.split(claimed())
    assert kept.sample_ids == dropped.sample_ids == []


def test_another_tag_can_hold_the_version() -> None:
    by_policy = StalenessFilter(1, CURRENT, key="policy_version")
    assert by_policy.keep(claimed(1, 5, key="policy_version")) == [1]


def test_a_meta_of_another_class_is_split_into_ours() -> None:
    meta = claimed(3, 5)
    kept, dropped = ON_TIME.split(SimpleNamespace(**vars(meta)))
    assert (kept, dropped) == (meta.subset([1]), meta.subset([0]))


def test_a_filter_of_ones_own_needs_one_method() -> None:
    class Varied(BaseRolloutFilter):
        """Drops groups whose rewards don't differ."""

        def keeps(self, sample_id: str, tags: Mapping[str, Any]) -> bool:  # noqa: ARG002
            return bool(tags["std"] > 0)

    meta = claimed(1, 1).stamp_tags({"std": [0.0, 0.3]})
    assert Varied().keep(meta) == [1]


@requirement("FLOW-06")
def test_missing_tags_raise() -> None:
    meta = KVBatchMeta("rollouts", "train", ["u0_g0", "u1_g0"])
    with pytest.raises(MissingTag, match="u0_g0"):
        ON_TIME.keep(meta)


@requirement("FLOW-06")
def test_a_row_without_tags_among_others_raises() -> None:
    meta = claimed(5, 5, 5)
    meta.tags[1] = None  # type: ignore[index,call-overload]
    with pytest.raises(MissingTag, match="u1_g0"):
        ON_TIME.keep(meta)


@requirement("FLOW-06")
def test_fewer_tags_than_rows_raise() -> None:
    short = SimpleNamespace(**vars(claimed(5, 5)))
    short.tags = short.tags[:1]
    with pytest.raises(ValueError, match="tags"):
        ON_TIME.keep(short)


@requirement("FLOW-06")
@pytest.mark.parametrize("tags", [{}, {"std": 0.5}, {"Weight_Version": 5}])
def test_a_missing_key_raises(tags: dict[str, Any]) -> None:
    meta = claimed(5, 5)
    meta.tags[1] = tags  # type: ignore[index]
    with pytest.raises(MissingTag, match="u1_g0"):
        ON_TIME.keep(meta)


@requirement("FLOW-06")
@pytest.mark.parametrize(
    "version",
    [None, 5.0, float("nan"), np.float32(5), True, False, np.True_, "5", torch.tensor(5), -1],
    ids=repr,
)
def test_what_is_no_version_number_raises(version: object) -> None:
    with pytest.raises(WrongVersion, match="u1_g0"):
        ON_TIME.keep(claimed(5, version))


@requirement("FLOW-06")
@pytest.mark.parametrize("kind", [np.int32, np.int64, np.uint8, np.uint64])
def test_numpy_integers_are_versions(kind: type[np.integer[Any]]) -> None:
    judging = StalenessFilter(1, kind(CURRENT))  # type: ignore[arg-type]
    assert judging.keep(claimed(kind(2), kind(4), kind(5))) == [1, 2]


NO_CURRENT: dict[str, tuple[Any, type[RolloutFilterError]]] = {
    "none": (None, NoCurrentVersion),
    **{repr(wrong): (wrong, WrongVersion) for wrong in (5.0, True, "5", -1)},
}


@requirement("FLOW-06")
@pytest.mark.parametrize("versions", [(5,), ()], ids=["a_row", "no_rows"])
@pytest.mark.parametrize(("current", "error"), NO_CURRENT.values(), ids=NO_CURRENT)
def test_no_current_version_raises_whatever_was_claimed(
    current: Any, error: type[RolloutFilterError], versions: tuple[int, ...]
) -> None:
    judging = StalenessFilter(1, current)
    for judge in (judging.keep, judging.split):
        with pytest.raises(error, match="current version"):
            judge(claimed(*versions))


@requirement("FLOW-06")
@pytest.mark.parametrize(("current", "error"), NO_CURRENT.values(), ids=NO_CURRENT)
def test_no_current_version_raises_for_one_row(
    current: Any, error: type[RolloutFilterError]
) -> None:
    with pytest.raises(error, match="current version"):
        StalenessFilter(1, current).keeps("u0_g0", {"weight_version": 5})


@requirement("FLOW-06")
def test_no_current_version_raises_before_any_row_is_judged() -> None:
    with pytest.raises(NoCurrentVersion):
        StalenessFilter(1).keep(claimed(None))


@requirement("FLOW-06")
def test_a_version_ahead_of_the_current_one_raises() -> None:
    with pytest.raises(WrongVersion, match="u1_g0"):
        ON_TIME.keep(claimed(5, 6))


@pytest.mark.parametrize("bound", [-1, 1.0, None, True], ids=repr)
def test_a_bound_that_is_no_number_is_refused(bound: Any) -> None:
    with pytest.raises(ValueError, match="max_staleness"):
        StalenessFilter(bound, CURRENT)


def test_all_errors_have_one_root() -> None:
    for kind in (MissingTag, WrongVersion, NoCurrentVersion):
        assert issubclass(kind, RolloutFilterError)
