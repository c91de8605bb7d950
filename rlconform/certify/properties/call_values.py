"""Names and values of the calls in sequences, chosen so that a plane may take one for another.

Planes go wrong where they compare by less than the whole: by the beginning of a name, the number of
rows, the sum of lengths, ``==``. So names begin alike, columns of one put have the size of another
put's, and tags are equal in value and differ in type.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

IDS = ("a", "b", "c", "d")
#: The same rows where claims return groups: of two prompts, two rows each.
GROUPED = ("u_g0", "u_g1", "v_g0", "v_g1")
FIELDS = ("x", "y")
#: One name begins with the other, and neither is a field or a partition.
TASKS = ("lp", "lp_ref")

#: How a trainer arranges the rows of a batch.
Arrangement = Literal["as before", "reversed", "rotated", "inner reversed"]
ARRANGED: dict[Arrangement, Callable[[list[int]], list[int]]] = {
    "as before": lambda rows: rows,
    "reversed": lambda rows: rows[::-1],
    "rotated": lambda rows: rows[1:] + rows[:1],
    "inner reversed": lambda rows: [*rows[:1], *rows[-2:0:-1], *rows[1:][-1:]],
}

#: What the second field holds; the first always holds labels.
Layout = Literal["labels", "numbers", "objects"]

#: Values that are equal for ``==`` and differ in type.
ALIKE: tuple[Any, ...] = (1, True, 1.0)


@dataclass(frozen=True)
class Universe:
    """What an example's rows are made of."""

    block: int = 1  # rows that each drawn id stands for
    uneven: bool = False  # whether rows of a put differ in length, by as much in each put
    layout: Layout = "labels"
    stem: str = ""  # of the partitions' names
    #: Batches that the calls come back to, as a run does: what a plane remembers of a batch shows
    #: when something else happens to the same rows.
    favourites: tuple[list[str], ...] = ()

    def rows(self, ids: Sequence[str], group_size: int) -> list[str]:
        """Return the rows that drawn ids stand for: one each, or a block in large examples.

        A plane that is wrong only beyond a number of rows is wrong in some large example.
        """
        names = IDS if group_size == 1 else GROUPED
        own = [names[IDS.index(i)] if i in IDS else i for i in ids]
        return [f"{n}{i}" if n else i for i in own for n in range(self.block)]

    def chosen(self, ids: list[str] | int) -> list[str]:
        """Return the ids drawn, or the favourite of that number."""
        return self.favourites[ids] if isinstance(ids, int) else ids


def tag_value(key: str, sample_id: str, row: int, version: int) -> Any:
    """Return a tag's value, which shows row and put where the key allows it."""
    match key:
        case "input_lengths":
            return 10_000 * version + row
        case "alike":
            return ALIKE[(row + version) % len(ALIKE)]
        case _:
            return f"{sample_id}, put {version}"


def same_tags(got: Any, expected: Any) -> bool:
    """Compare tag values with their types; NaN is the same as NaN."""
    both_nan = got != got and expected != expected  # noqa: PLR0124
    return type(got) is type(expected) and (both_nan or got == expected)
