"""PUT-08, PUT-13: buffers that a caller fills again and again, also in inference mode.

A rollout worker fills one buffer in each step, often under ``torch.inference_mode()``, in which
torch counts no changes of a tensor.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from tensordict import TensorDict

from rlconform.certify.plugin.markers import requirement
from rlconform.certify.scenarios.partition import PartitionUnderTest

IDS = ["u0_g0", "u0_g1", "u1_g0"]

Fill = Callable[[torch.Tensor, int], None]


def _in_place(buffer: torch.Tensor, value: int) -> None:
    buffer.fill_(value)


def _by_numpy(buffer: torch.Tensor, value: int) -> None:
    buffer.numpy()[:] = value


def _by_data(buffer: torch.Tensor, value: int) -> None:
    buffer.data = torch.full_like(buffer, value)


FILLS: dict[str, Fill] = {
    "in_place": _in_place,
    "numpy": _by_numpy,
    "other_storage": _by_data,
}


@requirement("PUT-13")
@pytest.mark.parametrize("same_batch", [False, True], ids=["buffer", "batch"])
@pytest.mark.parametrize("width", [4, 1 << 15], ids=["small", "large"])
@pytest.mark.parametrize("fill", FILLS.values(), ids=FILLS)
def test_a_buffer_that_is_filled_again_is_put_with_its_new_values(
    part: PartitionUnderTest, fill: Fill, width: int, same_batch: bool
) -> None:
    """Planes that keep a copy of a tensor by its identity or its version take the old copy."""
    buffer = torch.empty(len(IDS), width)
    batch = TensorDict({"x": buffer}, batch_size=[len(IDS)])
    for step in range(4):
        fill(buffer, step)
        if same_batch:
            part.put_batch(IDS, batch)
        else:
            part.put(IDS, x=buffer)
        part.expect_rows(IDS, x=[torch.full((width,), float(step))] * len(IDS))


#: In which of the puts, one after another, torch is in inference mode.
MODES = {"first": [True, False], "second": [False, True], "between": [False, True, False]}


@requirement("PUT-08")
@pytest.mark.parametrize("jagged", [False, True], ids=["dense", "jagged"])
@pytest.mark.parametrize("modes", MODES.values(), ids=MODES)
def test_puts_in_inference_mode_and_out_of_it_are_accepted(
    part: PartitionUnderTest, modes: list[bool], jagged: bool
) -> None:
    """Planes that make a buffer in inference mode can't write to it afterwards."""
    for step, inference in enumerate(modes):
        with torch.inference_mode(inference):
            rows = [torch.full((2 + n * jagged,), step) for n in range(len(IDS))]
            column = torch.nested.nested_tensor(rows, layout=torch.jagged)
            part.put(IDS, x=column if jagged else torch.stack(rows))
        part.expect_rows(IDS, x=rows)
        part.put([f"later_{step}"], x=torch.full((1, 2), 9))
        part.expect_rows([f"later_{step}"], x=[torch.tensor([9, 9])])
    part.expect_rows(IDS, x=rows)
