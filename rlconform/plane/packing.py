"""Packs rows into bins, the micro-batches of sequence packing, from their lengths only.

    lengths [600, 200, 250, 200, 200, 550], capacity 1000
        concatenative                  [[0, 1], [2, 3, 4], [5]]    in the given order
        first_fit_decreasing           [[0, 2], [5, 1, 3], [4]]    longest first, by first fit
        modified_first_fit_decreasing  [[0, 3, 1], [5, 4, 2]]      short rows added to long rows
        modified_first_fit_shuffle     [[5, 3, 2], [0, 4, 1]]      random order, long rows first

At least ``ceil(sum(lengths) / capacity)`` bins are needed. First fit puts a row into the first open
bin with enough room. Trying one bin after the other is quadratic: a minute for 100,000 rows. A
binary tree, whose nodes store the most room of any bin below, finds the bin in log(bins) steps.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from itertools import accumulate
from operator import itemgetter
from random import Random
from typing import Literal, get_args

import numpy as np
from torch import Tensor

from rlconform.wire import Lengths

PackingAlgorithm = Literal[
    "concatenative",
    "first_fit_decreasing",
    "modified_first_fit_decreasing",
    "modified_first_fit_shuffle",
]
PACKING_ALGORITHMS: tuple[PackingAlgorithm, ...] = get_args(PackingAlgorithm)


def pack_sequences(
    lengths: Lengths,
    capacity: int,
    algorithm: PackingAlgorithm,
    *,
    bin_multiple: int = 1,
    seed: int = 0,
) -> list[list[int]]:
    """Pack the rows; return the row numbers of each bin, in the order in which bins were opened.

    Every row is in one bin, and no bin is empty.

    Args:
        lengths: (N,) tokens of each row, at least 0.
        capacity: Maximum tokens of a bin.
        algorithm: One of ``PACKING_ALGORITHMS``. Rows of equal length are ordered by number.
        bin_multiple: The number of bins is made a multiple of this: the fullest bins are split in
            two if the algorithm opens too few.
        seed: Seed of ``modified_first_fit_shuffle``; the other algorithms ignore it.

    ``ValueError`` for a row longer than ``capacity``, fewer rows than bins to fill, or an argument
    out of range.
    """
    tokens = row_lengths(lengths)
    _check_capacity(tokens, capacity)
    match algorithm:
        case "concatenative":
            bins = _concatenative(tokens, capacity)
        case "first_fit_decreasing":
            bins = _first_fit(_longest_first(tokens), tokens, capacity)
        case "modified_first_fit_decreasing":
            bins = _modified_first_fit_decreasing(tokens, capacity)
        case "modified_first_fit_shuffle":
            bins = _first_fit(_shuffled(tokens, capacity, seed), tokens, capacity)
        case _:
            raise ValueError(
                f"unknown packing algorithm {algorithm!r}; use one of {PACKING_ALGORITHMS}"
            )
    return _even_out(bins, tokens, bin_multiple)


def row_lengths(lengths: Lengths) -> list[int]:
    """Convert the lengths to a list; ``ValueError`` unless all are integers of at least 0.

    An unknown length must not be guessed, because a plan with a wrong length would cut tokens off.
    """
    given = lengths.tolist() if isinstance(lengths, Tensor) else lengths
    for row, length in enumerate(given):
        whole = isinstance(length, int | np.integer) and not isinstance(length, bool)
        if not whole or length < 0:
            raise ValueError(f"row {row} has the length {length!r}; expected its number of tokens")
    return list(map(int, given))


def _check_capacity(lengths: Sequence[int], capacity: int) -> None:
    if capacity < 1:
        raise ValueError(f"capacity must be at least 1 token, got {capacity}")
    longest = max(lengths, default=0)
    if longest > capacity:
        raise ValueError(
            f"row {lengths.index(longest)} has {longest} tokens and a bin holds {capacity}; "
            f"raise the capacity, or drop the row"
        )


def _concatenative(lengths: Sequence[int], capacity: int) -> list[list[int]]:
    """Pack rows in the given order; a row that doesn't fit the current bin opens the next."""
    bins: list[list[int]] = []
    room = -1
    for row, length in enumerate(lengths):
        if length > room:
            bins.append([])
            room = capacity
        bins[-1].append(row)
        room -= length
    return bins


def _longest_first(lengths: Sequence[int]) -> list[int]:
    return sorted(range(len(lengths)), key=lengths.__getitem__, reverse=True)


def _shuffled(lengths: Sequence[int], capacity: int, seed: int) -> list[int]:
    """Return all rows in random order, but rows over half the capacity before all others.

    No two of these long rows can share a bin. They open their bins before short rows use up the
    room, which is the advantage of the modified algorithms. Only ``random()`` is used, because its
    sequence is equal in all Python versions.
    """
    draw = Random(seed).random
    keys = [(2 * length <= capacity, draw()) for length in lengths]
    return sorted(range(len(lengths)), key=keys.__getitem__)


def _first_fit(rows: Sequence[int], lengths: Sequence[int], capacity: int) -> list[list[int]]:
    """Put each row into the first bin with enough room.

    The tree includes unopened bins, which are empty, so the search opens one if no other bin fits.
    """
    # Any two bins that first fit opens contain more than one capacity together.
    most_bins = min(len(rows), 2 * _total(rows, lengths) // capacity + 1)
    leaves = 1
    while leaves < most_bins:
        leaves *= 2
    # The most room under node i, whose children are 2i and 2i + 1; bin 0 is the first leaf.
    room = [capacity] * (2 * leaves)
    bins: list[list[int]] = [[] for _ in range(most_bins)]
    for row in rows:
        length = lengths[row]
        node = 1
        while node < leaves:
            node *= 2
            if room[node] < length:
                node += 1
        bins[node - leaves].append(row)
        room[node] -= length
        while node > 1:
            node //= 2
            left, right = room[2 * node], room[2 * node + 1]
            most = left if left > right else right
            if room[node] == most:
                break
            room[node] = most
    return [rows_of_bin for rows_of_bin in bins if rows_of_bin]


class _Shelf:
    """Rows sorted into numbered places, longest first, then by row number; each is taken once.

        shelf = _Shelf([3, 9, 5])        # rows 1, 2, 0
        shelf.find(room=6)               # 1: row 2 is the longest of at most 6 tokens
        shelf.take(1)                    # 2, the row
        shelf.find(room=6)               # 2: row 0

    An empty place points to the next place, and ``find`` shortens these paths (as in union-find),
    so it takes little longer than a bisection.
    """

    def __init__(self, lengths: Sequence[int]) -> None:
        self.rows = _longest_first(lengths)
        self._shortness = [-lengths[row] for row in self.rows]
        self._next = list(range(len(lengths) + 1))

    def place_of(self, room: int) -> int:
        """Return the first place whose row, even if taken already, has at most ``room`` tokens."""
        return bisect_left(self._shortness, -room)

    def find(self, room: int, start: int = 0) -> int:
        """Return the first place from ``start`` with a row of at most ``room``, else the end."""
        following = self._next
        place = max(start, self.place_of(room))
        while following[place] != place:
            following[place] = following[following[place]]
            place = following[place]
        return place

    def holds(self, place: int) -> bool:
        """Whether the place's row has not been taken."""
        return self._next[place] == place

    def take(self, place: int) -> int:
        """Remove the row from the place and return the row's number."""
        self._next[place] = place + 1
        return self.rows[place]


def _modified_first_fit_decreasing(lengths: Sequence[int], capacity: int) -> list[list[int]]:
    """Pack by MFFD (Johnson, Garey: "A 71/60 theorem for bin packing", J. Complexity 1, 1985).

    Large rows take more than 1/2 of the capacity, medium rows more than 1/3, small rows more than
    1/6, and tiny rows at most 1/6.

    1. Open a bin for each large row, the longest first.
    2. Go forward through these bins: add the longest medium row that fits.
    3. Go backward through the bins in which two small rows fit (with a medium row not even one
       fits): add the shortest small row, and the longest small row that fits beside that.
    4. Go forward through all these bins: add the longest row that fits, until no row fits.
    5. Put the remaining rows into new bins by first fit, the longest first.
    """
    shelf = _Shelf(lengths)
    medium, small, tiny = (shelf.place_of(capacity // part) for part in (2, 3, 6))
    bins = [[shelf.take(place)] for place in range(medium)]
    room = [capacity - lengths[row] for (row,) in bins]

    def join(number: int, place: int) -> None:
        row = shelf.take(place)
        bins[number].append(row)
        room[number] -= lengths[row]

    for number in range(len(bins)):
        place = shelf.find(room[number], medium)
        if place < small:
            join(number, place)

    shortest = tiny - 1
    for number in reversed(range(len(bins))):
        while shortest >= small and not shelf.holds(shortest):
            shortest -= 1
        if shortest < small:
            break
        beside = shelf.find(room[number] - lengths[shelf.rows[shortest]], small)
        if beside < shortest:  # else no second small row fits
            join(number, shortest)
            join(number, beside)

    for number in range(len(bins)):
        while (place := shelf.find(room[number], medium)) < len(lengths):
            join(number, place)

    left = [row for place, row in enumerate(shelf.rows) if shelf.holds(place)]
    return bins + _first_fit(left, lengths, capacity)


def _even_out(bins: list[list[int]], lengths: Sequence[int], bin_multiple: int) -> list[list[int]]:
    """Split the fullest bin that has several rows until ``bin_multiple`` divides the bin count.

    The two parts replace the bin in its place, so rows keep their order.
    """
    if bin_multiple < 1:
        raise ValueError(f"bin_multiple must be at least 1, got {bin_multiple}")
    missing = -len(bins) % bin_multiple
    if missing == 0:
        return bins
    n_rows = sum(map(len, bins))
    if n_rows < len(bins) + missing:
        raise ValueError(
            f"{n_rows} rows can't fill {len(bins) + missing} bins, the next multiple of "
            f"{bin_multiple}; give a number of rows that is a multiple of it"
        )

    def piece(number: int, start: int, rows: list[int]) -> tuple[bool, int, int, int, list[int]]:
        """Build the heap entry of a part of a bin; the fullest part with several rows is least."""
        return len(rows) == 1, -_total(rows, lengths), number, start, rows

    pieces = [piece(number, 0, rows) for number, rows in enumerate(bins)]
    heapq.heapify(pieces)
    for _ in range(missing):
        _, _, number, start, rows = heapq.heappop(pieces)
        cut = _middle([lengths[row] for row in rows])
        heapq.heappush(pieces, piece(number, start, rows[:cut]))
        heapq.heappush(pieces, piece(number, start + cut, rows[cut:]))
    return [rows for *_, rows in sorted(pieces, key=itemgetter(2, 3))]


def _total(rows: Iterable[int], lengths: Sequence[int]) -> int:
    return sum(map(lengths.__getitem__, rows))


def _middle(lengths: Sequence[int]) -> int:
    """Return the cut for which the larger part has the fewest tokens, and then the fewest rows."""
    loads = list(accumulate(lengths))
    return min(
        range(1, len(lengths)),
        key=lambda cut: (
            max(loads[cut - 1], loads[-1] - loads[cut - 1]),
            max(cut, len(lengths) - cut),
        ),
    )
