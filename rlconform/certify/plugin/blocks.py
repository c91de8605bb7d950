"""Which checks run a second time with blocks of rows for rows, and their clients.

    can_have_blocks   for each check of several processes: it may have blocks
    drawn_cases       of each check, a few of the cases that do
    in_blocks         in such a run: the client that the check uses

``BlockClient`` says what a block is, and why.
"""

from __future__ import annotations

import inspect
import random
from collections.abc import Sequence
from typing import Any

import pytest

from rlconform.certify.plugin.check_result import check_id, is_in_blocks
from rlconform.certify.plugin.plane_session import PlaneSession
from rlconform.certify.scenarios.block_client import BlockClient, CallsAtOnce

#: The folder of the checks that have blocks; those in others draw their sizes.
FOLDER = "functional/contract/"
#: Cases of a check that run in blocks: others differ in values, or in who looks and who changes.
CASES = 2

#: The key under which an item stores whether its check makes calls at once.
_AT_ONCE = pytest.StashKey[CallsAtOnce]()


def can_have_blocks(metafunc: pytest.Metafunc) -> bool:
    """Whether each row of a check can be a block of rows: it makes its calls by ``part`` alone."""
    mark = metafunc.definition.get_closest_marker("requirement")
    if mark is None or mark.kwargs["ends_plane"] or mark.kwargs["race"] or mark.kwargs["patience"]:
        return False
    if metafunc.definition.get_closest_marker("large") is not None:
        return False
    if not metafunc.config.getoption("rlconform_at_scale"):
        return False
    asked = set(inspect.signature(metafunc.function).parameters)
    by_part = bool(asked & {"part", "new_partition"}) and not asked & {"plane", "processes"}
    return by_part and check_id(metafunc.definition).startswith(FOLDER)


def drawn_cases(items: Sequence[pytest.Item]) -> list[pytest.Item]:
    """Return the items; of those in blocks, a few cases of each check, which its id decides."""
    cases: dict[str, list[str]] = {}
    for item in filter(is_in_blocks, items):
        if item.get_closest_marker("large") is None:
            cases.setdefault(check_id(item).partition("[")[0], []).append(check_id(item))
    drawn: set[str] = set()
    for check, ids in cases.items():
        drawn.update(random.Random(check).sample(ids, min(CASES, len(ids))))
    return [item for item in items if not is_in_blocks(item) or check_id(item) in drawn]


def in_blocks(item: pytest.Item, plane: PlaneSession, client: Any) -> Any:
    """Return the client; in a run with blocks, a ``BlockClient`` that calls it."""
    if not is_in_blocks(item):
        return client
    size = plane.block_size.of(plane.owner(), plane.target.timeouts.operation)
    return BlockClient(client, size, item.stash.setdefault(_AT_ONCE, CallsAtOnce()))
