"""The order of checks: those that tell most about a plane in the least time run first.

Each check has a partition of its own and leans on no other, so any order gives the same results.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import groupby

import pytest

from rlconform.certify.isolation.shares import Share
from rlconform.certify.plugin.check_result import check_id, ends_plane, is_scattered, turn_of

#: Files whose checks share what one of them made; the others of the file should follow at once.
_SHARING = ("test_par.py", "test_par_processes.py")


def ordered(
    items: Sequence[pytest.Item],
    telling_first: bool,
    first: Collection[str] = (),
    share: Share = Share(),  # noqa: B008 - frozen
) -> list[pytest.Item]:
    """Return the checks by one process, then those by several, then those that close the plane.

    Those whose ids are in ``first`` come before all others.

    With ``telling_first``, each group begins with one short check of each requirement, in the
    contract's order; it ends with the long ones: generated examples, races, many processes. Each
    ``share`` of several begins what lies between at another file: checks that wait lie together,
    and with all shares at them the machine would do nothing.
    """
    tried: set[tuple[str, bool]] = set()

    def place(item: pytest.Item) -> tuple[bool, bool, bool, int, bool, bool]:
        later = check_id(item) not in first
        before = (later, ends_plane(item), is_scattered(item), turn_of(item))
        if not telling_first:
            return *before, False, False
        mark = item.get_closest_marker("requirement")
        if mark is None or _takes_long(item, mark):
            return *before, True, True
        requirement = (mark.args[0], is_scattered(item))
        again = requirement in tried or item.path.name in _SHARING
        tried.add(requirement)
        return *before, False, again

    places = [place(item) for item in items]
    numbers = sorted(range(len(items)), key=places.__getitem__)
    made: list[pytest.Item] = []
    for (*_, long, again), group in groupby(numbers, key=places.__getitem__):
        between = [items[n] for n in group]
        made += _rotated(between, share) if again and not long else between
    return made


def _rotated(items: Sequence[pytest.Item], share: Share) -> list[pytest.Item]:
    """Return the items from the file on at which this share begins, then those before it."""
    start = len(items) * share.number // share.count
    while 0 < start < len(items) and items[start].path == items[start - 1].path:
        start += 1
    return [*items[start:], *items[:start]]


def _takes_long(item: pytest.Item, mark: pytest.Mark) -> bool:
    """Whether the check is one of many examples, of many processes, of a race or of a long wait."""
    folder = check_id(item).rpartition("/")[0]
    return not folder.endswith("/contract") or mark.kwargs["race"] or mark.kwargs["patience"] > 0
