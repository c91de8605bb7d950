"""The two ways to read a field: by sample ids, and by a meta."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from tensordict import TensorDictBase

from rlconform.certify.scenarios.partition import PartitionUnderTest
from rlconform.contract import KVBatchMeta

Way = Callable[[PartitionUnderTest, Sequence[str]], TensorDictBase]

#: Ways to read the field x.
WAYS: dict[str, Way] = {
    "get_samples": lambda part, ids: part.get(ids, "x"),
    "get_data": lambda part, ids: part.get_data(KVBatchMeta(part.id, None, list(ids), ["x"])),
}

either_way = pytest.mark.parametrize("read", WAYS.values(), ids=WAYS)
