"""Confusable names differ, and a plane that folds, cuts or matches names takes some for others."""

from __future__ import annotations

import html
import re
import unicodedata
from collections.abc import Callable
from fnmatch import fnmatchcase
from urllib.parse import unquote_plus

import pytest

from rlconform.certify.scenarios.confusable_names import CONFUSABLE, confusable_names

#: What planes do to names, by the way in which the names are alike.
MISTAKES: dict[str, Callable[[str], object]] = {
    "case": str.lower,
    "signs": lambda name: re.sub(r"\W", "_", name),
    "escapes": lambda name: html.unescape(unquote_plus(name)),
    "accents": lambda name: unicodedata.normalize("NFKC", name),
    "spaces": str.strip,
    "zeros": int,
    "parts": lambda name: name.split(".")[0],
    "paths": lambda name: name.rpartition("/")[2],
    "suffixes": lambda name: re.sub(r"(_0)+$", "", name),
    "31": lambda name: name[:31],
    "63": lambda name: name[:63],
    "127": lambda name: name[:127],
    "254": lambda name: name[:254],
}


@pytest.mark.parametrize("way", CONFUSABLE)
@pytest.mark.parametrize("count", [1, 4, 95])
def test_names_differ(way: str, count: int) -> None:
    names = confusable_names(way, count)
    assert len({*names}) == len(names) == count
    assert all(names)


@pytest.mark.parametrize("way", MISTAKES)
def test_a_plane_that_makes_this_mistake_confuses_them(way: str) -> None:
    names = confusable_names(way, 8)
    assert len({MISTAKES[way](name) for name in names}) < len(names)


def test_a_plane_that_matches_names_as_patterns_confuses_them() -> None:
    names = confusable_names("patterns", 8)
    assert [n for n in names if sum(fnmatchcase(other, n) for other in names) > 1]


def test_each_way_is_a_mistake_of_a_plane() -> None:
    assert {*MISTAKES, "patterns"} == {*CONFUSABLE}
