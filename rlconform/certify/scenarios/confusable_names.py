"""Names that differ, and that a plane takes for one if it folds, cuts, escapes or matches them.

They serve as ids, fields, tasks and partitions: a plane that makes a key, a path, a pattern or a
column's name of a name may give the rows of one to another.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence


def _of_choices(*pairs: tuple[str, str]) -> Callable[[int], Sequence[str]]:
    """Return names of parts; each part is spelled in one of two ways, by the bits of a number."""

    def names(count: int) -> Sequence[str]:
        parts = [pairs[n % len(pairs)] for n in range(max(1, (count - 1).bit_length()))]
        return [
            f"n{''.join(part[number >> place & 1] for place, part in enumerate(parts))}n"
            for number in range(count)
        ]

    return names


def _cut_at(length: int) -> Callable[[int], Sequence[str]]:
    return lambda count: [f"{'n' * length}{number}" for number in range(count)]


def _numbered(name: Callable[[int], str]) -> Callable[[int], Sequence[str]]:
    return lambda count: [name(number) for number in range(count)]


#: Texts that a shell, SQL's LIKE or a regular expression matches with each other.
_PATTERNS = ("*", "n", "%", "m", "?", "[nm]", "_", ".")

#: For each way in which names are taken for one another, a function that returns so many of them.
CONFUSABLE: Mapping[str, Callable[[int], Sequence[str]]] = {
    "case": _of_choices(("a", "A"), ("s", "S"), ("ä", "Ä")),
    "signs": _of_choices(("/", "_"), (".", "_"), ("-", "_"), (" ", "_"), (":", "_")),
    "escapes": _of_choices(("/", "%2F"), (" ", "+"), ("&", "&amp;"), (".", "%2E")),
    "accents": _of_choices(("\u00e9", "e\u0301"), ("\ufb01", "fi"), ("\uff21", "A")),
    "spaces": _numbered(lambda number: f"n{' ' * number}"),
    "zeros": _numbered(lambda number: f"{'0' * number}7"),
    "parts": _numbered(lambda number: ".".join("n" * (number + 1))),
    "paths": _numbered(lambda number: "/".join("n" * (number + 1))),
    "suffixes": _numbered(lambda number: f"n{'_0' * number}"),
    "patterns": _numbered(lambda n: _PATTERNS[n % len(_PATTERNS)] * (n // len(_PATTERNS) + 1)),
    "31": _cut_at(31),
    "63": _cut_at(63),
    "127": _cut_at(127),
    "254": _cut_at(254),
}


def confusable_names(way: str, count: int) -> list[str]:
    """Return ``count`` names that are all different, and alike in this way."""
    return list(CONFUSABLE[way](count))
