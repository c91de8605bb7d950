"""``TextIndex``: which passages a query finds."""

from __future__ import annotations

from pathlib import Path

import pytest

from rlconform.grpo.tools.text_index import Passage, TextIndex

TEXTS = ("A plane carries rows.", "Rows rows rows and rows.", "A worker trains.", "")


@pytest.fixture
def index() -> TextIndex:
    return TextIndex([Passage(str(number), text) for number, text in enumerate(TEXTS)])


def found(index: TextIndex, query: str, count: int = 3) -> list[str]:
    return [passage.source for passage in index.search(query, count)]


def test_the_best_passage_is_first(index: TextIndex) -> None:
    assert found(index, "rows") == ["1", "0"]
    assert found(index, "which PLANE carries rows?") == ["0", "1"]
    assert found(index, "rows", 1) == ["1"]
    assert found(index, "nothing of this") == []


def test_several_queries_get_what_each_gets_alone(index: TextIndex) -> None:
    queries = ["rows", "worker", "rows", "a"]
    assert index.search_all(queries, 2) == [index.search(query, 2) for query in queries]


def test_paragraphs_of_a_folder_are_passages(tmp_path: Path) -> None:
    (tmp_path / "b.md").write_text("One plane.\n\nTwo workers.\n", "utf-8")
    (tmp_path / "a.txt").write_text("Three ranks.", "utf-8")
    (tmp_path / "c.py").write_text("plane", "utf-8")
    index = TextIndex.of_folder(tmp_path)
    assert index.passages == [
        Passage("a.txt", "Three ranks."),
        Passage("b.md", "One plane."),
        Passage("b.md", "Two workers."),
    ]
    with pytest.raises(ValueError, match=r"\.txt or \.md"):
        TextIndex.of_folder(tmp_path / "none")
