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


class NestsFieldsShared(NestsColumns, RayStoreClient):
    """Returns every column of two or more dimensions jagged."""


class GathersBackwardsShared(ReversesRows, RayStoreClient):
    """Gathers copies of the rows in reverse order, then reverses the result."""


NESTED = unusual("nested-shared", NestsFieldsShared, RIGHT)
BACKWARDS = unusual("backwards-shared", GathersBackwardsShared, RIGHT)
LATE = unusual("late-shared", answers_late(RayStoreClient), RIGHT)
