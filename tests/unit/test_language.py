"""No text uses a word of ``banned_words.txt``, and no class name occurs twice."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

import rlconform

ROOT = Path(rlconform.__file__).resolve().parents[1]
FOLDERS = ("rlconform", "suites", "tests", "benchmarks", "fixtures", "docs", "ci")
#: Class names that may occur twice.
NAMES_LEFT = {"Client"}
#: The list, and the test that reads it.
NOT_READ = {"banned_words.txt", Path(__file__).name}

BANNED = [
    line
    for line in (Path(__file__).parent / "banned_words.txt").read_text("utf-8").splitlines()
    if line and not line.startswith("#")
]
PATTERN = re.compile(rf"(?<![\w-])({'|'.join(map(re.escape, BANNED))})(?![\w-])", re.IGNORECASE)


def texts(path: Path) -> Iterator[tuple[int, str]]:
    """Line numbers and texts: comments and strings of a Python file, all lines of another file."""
    source = path.read_text("utf-8")
    if path.suffix != ".py":
        yield from enumerate(source.splitlines(), 1)
        return
    spoken = {tokenize.COMMENT, tokenize.STRING, getattr(tokenize, "FSTRING_MIDDLE", None)}
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type in spoken:
            yield from enumerate(token.string.splitlines(), token.start[0])


def banned_in(path: Path) -> list[str]:
    """The places where a file uses a banned word."""
    return [
        f"{path.relative_to(ROOT)}:{number}: {found[1]!r} in {line.strip()!r}"
        for number, line in texts(path)
        for found in PATTERN.finditer(" ".join(line.split()))
    ]


def test_no_text_uses_a_banned_word() -> None:
    pages = list(ROOT.glob("*.md"))
    files = [
        path
        for folder in FOLDERS
        for suffix in ("*.py", "*.md", "*.toml")
        for path in (ROOT / folder).rglob(suffix)
    ]
    assert len(files) > 100
    found = [one for path in pages + files if path.name not in NOT_READ for one in banned_in(path)]
    assert not found, "\n".join(found)


@pytest.mark.parametrize("word", BANNED)
def test_a_banned_word_would_be_found(word: str, tmp_path: Path) -> None:
    path = tmp_path / "module.py"
    path.write_text(f'"""First.\n\nIt is {word.upper()}."""\nx = f"{{y}} {word}"  # {word}\n')
    assert [number for number, line in texts(path) if PATTERN.search(line)] == [3, 4, 4]


def test_no_class_name_occurs_twice() -> None:
    names = Counter(
        node.name
        for path in (ROOT / "rlconform").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.ClassDef)
    )
    assert {name for name, count in names.items() if count > 1} - NAMES_LEFT == set()
