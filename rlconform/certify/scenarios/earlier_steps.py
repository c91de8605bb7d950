"""Steps that several processes have made with a plane before a scattered check uses it.

A plane that numbers partitions in a byte, keeps a journal of the newest changes or a table of a
fixed size is right when it is new, and wrong after some thousand calls. Other checks run before the
scattered ones, on a new plane.

    take_earlier_steps ──▶ make_steps(owner) ─▶ ClientActor.make_steps(actor1) ─▶ ... one at a time
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial

import torch
from tensordict import TensorDict

from rlconform.certify.assertions.expect import is_rejected
from rlconform.contract import DataPlaneClient

#: Steps of all processes together: more than a journal or a table of 2,048 entries holds.
STEPS = 2100
#: Steps that one process makes before it is another's turn.
AT_ONCE = 70
#: Seconds after which the steps end on a slow plane.
BUDGET_S = 6.0
#: Names that the steps use in turn: more than 6 bits number.
FIELDS = [f"field{n}" for n in range(70)]
#: The partition in which the rows of all steps stay.
PARTITION = "earlier-steps"

#: A field whose rows have unlike shapes, if the plane takes them, and these rows.
IMAGE, IMAGE_ROWS = "image", ["tall", "wide"]

#: Makes some of the steps in one process.
Stepper = Callable[[range], None]


def take_earlier_steps(processes: Sequence[Stepper]) -> int:
    """Let the processes make the steps in turns; return how many they made in time."""
    end = time.monotonic() + BUDGET_S
    for turn, first in enumerate(range(0, STEPS, AT_ONCE)):
        if time.monotonic() > end:
            return first
        processes[turn % len(processes)](range(first, first + AT_ONCE))
    return STEPS


def make_steps(client: DataPlaneClient, steps: range) -> None:
    """Put one row in each step; in every eighth register, fill, claim and clear a partition too.

    Before the first step, two rows of unlike shapes are put, which a read can't return together.
    """
    if 0 in steps:
        client.register_partition(PARTITION, [*FIELDS, IMAGE], STEPS, ["task"])
        for name, shape in zip(IMAGE_ROWS, ((3, 2), (2, 3)), strict=True):
            image = TensorDict({IMAGE: torch.zeros(1, *shape)}, batch_size=[1])
            is_rejected(partial(client.put_samples, [name], PARTITION, image))
    for step in steps:
        _put(client, PARTITION, step)
        if step % 8 == 0:
            partition, field = f"earlier-step{step}", FIELDS[step % len(FIELDS)]
            client.register_partition(partition, [field], 2, ["task"])
            _put(client, partition, step)
            client.claim_meta(partition, "task", [field], 1, blocking=False)
            client.clear_samples([f"row{step}"], partition)


def _put(client: DataPlaneClient, partition: str, step: int) -> None:
    row = TensorDict({FIELDS[step % len(FIELDS)]: torch.tensor([[step]])}, batch_size=[1])
    client.put_samples([f"row{step}"], partition, row, tags=[{"step": step, "by": f"step {step}"}])
