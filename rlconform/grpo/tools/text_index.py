"""``TextIndex``: finds the passages of local text that fit a query best, by BM25.

    folder of .txt and .md ── one passage per paragraph ──▶ counts of words ── scores ──▶ best k

score(q, d) = sum over words w of q of idf(w) f (k1 + 1) / (f + k1 (1 - b + b |d| / mean |d|))
with f the number of w in d. Source: Robertson and Zaragoza 2009, eq. 3.15; k1 = 1.2, b = 0.75.
"""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from heapq import nsmallest
from pathlib import Path

_WORD = re.compile(r"\w+")
_K1, _B = 1.2, 0.75


@dataclass(frozen=True)
class Passage:
    """A paragraph and the file that it comes from."""

    source: str
    text: str


class TextIndex:
    """Passages with the counts of their words; it never changes, so any thread may search."""

    def __init__(self, passages: Sequence[Passage]) -> None:
        self.passages = list(passages)
        counts = [Counter(_words(passage.text)) for passage in self.passages]
        sizes = [count.total() for count in counts]
        mean = sum(sizes) / len(sizes) if sum(sizes) else 1.0
        self._norms = [_K1 * (1 - _B + _B * size / mean) for size in sizes]
        #: For each word the passages that have it, and how often.
        self._places: dict[str, list[tuple[int, int]]] = defaultdict(list)
        for number, count in enumerate(counts):
            for word, times in count.items():
                self._places[word].append((number, times))

    @classmethod
    def of_folder(cls, folder: Path) -> TextIndex:
        """Index the paragraphs of ``.txt`` and ``.md`` files; ``ValueError`` if there is none."""
        files = sorted(path for path in folder.rglob("*") if path.suffix in {".txt", ".md"})
        passages = [
            Passage(str(path.relative_to(folder)), text.strip())
            for path in files
            for text in path.read_text("utf-8").split("\n\n")
            if text.strip()
        ]
        if not passages:
            raise ValueError(f"expected .txt or .md files with text in {folder}")
        return cls(passages)

    def search(self, query: str, count: int) -> list[Passage]:
        """Return at most ``count`` passages with a word of the query, the best first."""
        scores: dict[int, float] = defaultdict(float)
        for word in set(_words(query)):
            places = self._places.get(word, ())
            rarity = math.log(1 + (len(self.passages) - len(places) + 0.5) / (len(places) + 0.5))
            for number, times in places:
                scores[number] += rarity * times * (_K1 + 1) / (times + self._norms[number])
        best = nsmallest(count, scores, key=lambda number: (-scores[number], number))
        return [self.passages[number] for number in best]

    def search_all(self, queries: Iterable[str], count: int) -> list[list[Passage]]:
        """Search for several queries; equal ones are searched once."""
        found: dict[str, list[Passage]] = {}
        return [
            found[query] if query in found else found.setdefault(query, self.search(query, count))
            for query in queries
        ]


def _words(text: str) -> list[str]:
    return _WORD.findall(text.lower())
