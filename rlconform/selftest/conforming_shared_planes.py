"""Correct planes for several processes that do what ``ray_store`` does in an unusual way."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tensordict import TensorDict

from rlconform.backends.ray_store import TARGET as RIGHT
from rlconform.backends.ray_store.client import RayStoreClient
from rlconform.contract import KVBatchMeta, Tags
from rlconform.selftest.conforming_planes import (
    answer_late,
    nested_where_it_may,
    refuse_stacks,
    turned_round,
    unusual,
)


class NestsFieldsAfar(RayStoreClient):
    """Returns every column of two or more dimensions jagged."""

    def get_samples(
        self, sample_ids: list[str], partition_id: str, select_fields: list[str]
    ) -> TensorDict:
        """Read rows."""
        return nested_where_it_may(super().get_samples(sample_ids, partition_id, select_fields))


class GathersBackwardsAfar(RayStoreClient):
    """Gathers copies of the rows in reverse order, then reverses the result.

    It refuses a stack of objects.
    """

    def put_samples(
        self,
        sample_ids: list[str],
        partition_id: str,
        fields: TensorDict | None = None,
        tags: list[Tags] | None = None,
    ) -> KVBatchMeta:
        """Put."""
        refuse_stacks(fields)
        return super().put_samples(sample_ids, partition_id, fields, tags)

    def get_samples(
        self, sample_ids: list[str], partition_id: str, select_fields: list[str]
    ) -> TensorDict:
        """Read rows."""
        backwards = sample_ids[::-1] if isinstance(sample_ids, list) else sample_ids
        return turned_round(super().get_samples(backwards, partition_id, select_fields))


class AnswersLateAfar:
    """Executes each call immediately and returns 50 ms later, in every process."""

    def __init__(self, cfg: Mapping[str, Any], bootstrap: bool) -> None:
        answer_late(self, RayStoreClient(cfg, bootstrap))


NESTED = unusual("nested-afar", NestsFieldsAfar, RIGHT)
BACKWARDS = unusual("backwards-afar", GathersBackwardsAfar, RIGHT)
LATE = unusual("late-afar", AnswersLateAfar, RIGHT)
