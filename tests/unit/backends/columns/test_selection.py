"""Memory for columns: chunks if several are read together, none for stored columns."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tensordict import TensorDict

from rlconform.backends.columns.column_block import bytes_of
from rlconform.backends.columns.encode import pack, read
from rlconform.backends.columns.gather import compact
from rlconform.backends.columns.selection import RowSelection, Shared

KIB, MIB = 1 << 10, 1 << 20


def test_columns_of_a_middling_size_are_cut_from_one_chunk() -> None:
    shared = Shared()
    cut = [shared.memory(4 * MIB - spare) for spare in (1, 63, 1, 0)]
    assert len({id(one.base) for one in cut}) == 1
    places = [one.__array_interface__["data"][0] - cut[0].base.ctypes.data for one in cut]
    assert places == [0, 4 * MIB, 8 * MIB, 12 * MIB]  # on cache lines, and none on another
    assert shared.memory(64 * KIB).base is not cut[0].base


@pytest.mark.parametrize("n_bytes", [64 * KIB - 1, 8 * MIB])
def test_smaller_and_larger_ones_stand_alone(n_bytes: int) -> None:
    assert Shared().memory(n_bytes).base is None


@pytest.mark.parametrize("n_bytes", [64 * KIB, 8 * MIB - 1])
def test_middling_is_from_the_one_to_the_other(n_bytes: int) -> None:
    assert Shared().memory(n_bytes).base is not None


def test_what_is_kept_keeps_no_chunk_alive() -> None:
    leaf = torch.zeros(2, 64 * KIB)
    fields = TensorDict({"x": leaf, "y": leaf}, [2])
    ((_, kept),) = compact(pack(fields, 2), {frozenset("xy"): [1]}).items()
    assert [column.values.base for column in kept.values()] == [None, None]
    assert bytes_of(kept) == 2 * leaf[1].nbytes


def test_fields_that_are_read_together_share_a_chunk() -> None:
    fields = TensorDict({name: torch.ones(1, 64 * KIB, dtype=torch.uint8) for name in "xy"}, [1])
    only = np.zeros(1, np.int64)
    got = read([RowSelection(pack(fields, 1), frozenset("xy"), only, only)], ["x", "y"], 1)
    assert got["y"].data_ptr() - got["x"].data_ptr() == 64 * KIB
