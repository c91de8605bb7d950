"""What a long run may do on a plane: use unusual names, and register partitions again.

Other requirements judge whether a plane should take these; a run leaves out what it does not take.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from rlconform.certify.assertions.expect import is_rejected
from rlconform.certify.properties.runner import PropertyRunner
from rlconform.certify.scenarios.partition import batch_of


def takes_names(runner: PropertyRunner, fields: Sequence[str], tasks: Sequence[str]) -> bool:
    """Whether the plane takes these names; only ids are opaque, so it may refuse others."""
    part = runner.new_partition()
    try:
        part.register(fields, tasks)
        part.put_batch(["r0"], batch_of({name: torch.zeros(1) for name in fields}, 1))
        for task in tasks:
            part.claim(task, fields[:1], 1)
    except (TypeError, ValueError) as refusal:
        if not runner.raised_by_plane(refusal):
            raise
        return False
    return True


def keeps_rows(runner: PropertyRunner) -> bool:
    """Whether the plane keeps the rows of a partition that is registered again, as REG-08 asks."""
    part = runner.new_partition()
    part.register()
    part.put(["r0"], x=torch.zeros(1))
    refused = is_rejected(part.register)
    return not refused and part.claim("train", ["x"], 1).sample_ids == ["r0"]
