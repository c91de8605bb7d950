"""Hints for mistyped names."""

from __future__ import annotations

from rlconform.contract import did_you_mean


def test_the_names_most_like_it_are_told() -> None:
    assert did_you_mean("memroy", ["ray_store", "memory"]) == "; did you mean 'memory'?"
    hint = did_you_mean("CLEAR-77", ["CLEAR-07", "PUT-01", "CLEAR-17"])
    assert "'CLEAR-07'" in hint
    assert "'CLEAR-17'" in hint


def test_nothing_is_told_where_no_name_is_like_it() -> None:
    assert did_you_mean("redis", ["memory"]) == did_you_mean("x", []) == ""
