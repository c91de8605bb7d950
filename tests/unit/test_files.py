"""The readers of files, and the limits on what YAML may grow to."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from rlconform._files import (
    DEEPEST,
    LARGEST_BY_HAND,
    excerpt,
    is_file,
    lines_of,
    parse_json,
    parse_toml,
    read_bytes,
    read_text,
)
from rlconform._yaml import read_config
from rlconform.contract import ConfigError


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[1,", "not JSON"),
        ("NaN", "expected a finite number; got NaN"),
        ("[1e999]", "expected a finite number; got 1e999"),
        ('{"a": 1, "b": 2, "a": 3}', "the key 'a' occurs twice"),
        ("[" * DEEPEST + "1" + "]" * DEEPEST, ""),
        ("[" * (DEEPEST + 1) + "1" + "]" * (DEEPEST + 1), f"at most {DEEPEST} levels"),
        ("[" * 10**5, f"at most {DEEPEST} levels"),
        ("9" * 5000, "not JSON"),
    ],
    ids=["cut", "nan", "infinite", "twice", "deep", "deeper", "deepest", "digits"],
)
def test_json_that_is_refused(text: str, message: str) -> None:
    if not message:
        assert parse_json(text, "here")
        return
    with pytest.raises(ConfigError, match=rf"^here: .*{message}"):
        parse_json(text, "here")


def test_numbers_that_are_not_finite_are_read_where_they_may_be() -> None:
    assert parse_json("[Infinity, 1e999]", "here", finite=False) == [float("inf")] * 2


@pytest.mark.parametrize(
    "text", ["a = [", "a = " + "[" * 10_000, "a = " + "9" * 5000, ".".join("a" * 100) + " = 1"]
)
def test_toml_that_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"^here: "):
        parse_toml(text, "here")


def test_a_file_of_more_bytes_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"x" * LARGEST_BY_HAND)
    assert len(read_bytes(path, "hint", LARGEST_BY_HAND)) == LARGEST_BY_HAND
    path.write_bytes(b"x" * (LARGEST_BY_HAND + 1))
    with pytest.raises(ConfigError, match="expected at most 1 MiB; got more; hint"):
        read_bytes(path, "hint", LARGEST_BY_HAND)
    with pytest.raises(ConfigError, match="expected lines of at most 0 MiB"):
        list(lines_of(path, 100))


def test_a_pipe_can_be_read(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_text, args=("text",))
    writer.start()
    assert read_text(pipe, "hint") == "text"
    writer.join()


@pytest.mark.parametrize("name", ["a\0b", "x" * 5000, "\ud800"])
def test_a_name_that_no_file_can_have(tmp_path: Path, name: str) -> None:
    assert not is_file(tmp_path / name)
    with pytest.raises(ConfigError) as refused:
        read_bytes(tmp_path / name, "hint")
    assert len(str(refused.value)) < 600


def test_an_excerpt_is_short_and_printable() -> None:
    assert excerpt("a\n\x1b[2J  b") == "a [2J b"
    assert len(excerpt("x" * 10**6)) == 200


def growing(first: str, line: str, named: str, apart: str = "") -> str:
    """A file whose lines each name the line before ten times."""
    lines = [
        line.replace("@", str(n)).replace("*", apart.join([named.replace("#", str(n - 1))] * 10))
        for n in range(1, 12)
    ]
    return "\n".join([first, *lines, ""])


GROWING = {
    "aliases": growing("a0: &a0 [x, x]", "a@: &a@ [*]", "!a#", ", ").replace("!", "*"),
    "merges": growing("a0: &a0 {x: 1}", "a@: &a@ {<<: [*]}", "!a#", ", ").replace("!", "*"),
    "strings": growing("a0: xxxxxxxxxx", "a@: *", "${a#}"),
    "below": growing("b:\n  a0: xxxxxxxxxx", "  a@: *", "${.a#}"),
    "resolver": growing("a0: xxxxxxxxxx", "a@: '*'", "${oc.select:a#}"),
    "trees": growing("a0: {x: 1}", "a@: [*]", '"${a#}"', ", "),
}


@pytest.mark.parametrize("name", GROWING)
def test_yaml_that_would_grow_is_refused(tmp_path: Path, name: str) -> None:
    path = tmp_path / "plane.yaml"
    path.write_text(GROWING[name], "utf-8")
    with pytest.raises(ConfigError, match=r"expected at most 100,000 values|more than 1 MiB"):
        read_config(path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: &a [*a]", "the alias .a stands for what it lies in"),
        ("a: " + "[" * 100, "levels of nesting"),
        ("a: ${a}", "Recursive interpolation"),
        ("a: ${b}", "Interpolation key 'b' not found"),
        ("a: !!int x", "not valid YAML"),
        ("a: !!timestamp 2001-99-99", "not valid YAML"),
        ("a: 1\na: 2", "found duplicate key a"),
        ("!!python/object/apply:os.system [id]", "could not determine a constructor"),
    ],
)
def test_yaml_that_is_refused(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "plane.yaml"
    path.write_text(text, "utf-8")
    with pytest.raises(ConfigError, match=message):
        read_config(path)


def test_interpolations_of_a_usual_size_are_resolved(tmp_path: Path) -> None:
    path = tmp_path / "plane.yaml"
    path.write_text(
        "name: m\nHOME: ${oc.env:NO_SUCH_VARIABLE,none}\nmodel: {path: '/x/${name}', n: [1, 2]}\n"
        "again: ${model}\nfirst: ${model.n[0]}\nbeside: {a: 1, b: '${.a}${..name}'}\n",
        "utf-8",
    )
    assert read_config(path) == {
        "name": "m", "HOME": "none", "model": {"path": "/x/m", "n": [1, 2]},
        "again": {"path": "/x/m", "n": [1, 2]}, "first": 1, "beside": {"a": 1, "b": "1m"},
    }  # fmt: skip
