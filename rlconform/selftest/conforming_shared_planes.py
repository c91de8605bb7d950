"""Correct planes for several processes that use unusual behaviour which the contract allows."""

from __future__ import annotations

from rlconform.backends.ray_store import TARGET as RIGHT
from rlconform.backends.ray_store.client import RayStoreClient
from rlconform.selftest.conforming_planes import (
    NestsColumns,
    ReversesRows,
    answers_late,
    unusual,
)


class NestsFieldsAfar(NestsColumns, RayStoreClient):
    """Returns every column of two or more dimensions jagged."""


class GathersBackwardsAfar(ReversesRows, RayStoreClient):
    """Gathers copies of the rows in reverse order, then reverses the result."""


NESTED = unusual("nested-afar", NestsFieldsAfar, RIGHT)
BACKWARDS = unusual("backwards-afar", GathersBackwardsAfar, RIGHT)
LATE = unusual("late-afar", answers_late(RayStoreClient), RIGHT)
