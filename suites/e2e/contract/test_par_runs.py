"""PAR-03: whole GRPO runs, in memory and through the plane under certification.

``nox -s e2e`` runs the same on every built-in plane of several processes: ``test_parity``.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from rlconform.certify.expect import ContractViolation, expect
from rlconform.certify.marks import requirement
from rlconform.certify.recorder import shorten
from rlconform.certify.resolve import open_target
from rlconform.certify.session import PlaneSession
from rlconform.grpo.config import MasterConfig
from rlconform.grpo.record import RunRecord, differences

STEPS = 5


@requirement("PAR-03", patience=120.0)
@pytest.mark.parametrize("packing", ["none", "sequence_packing", "dynamic_batching"])
@pytest.mark.parametrize("model", ["tiny_llama_copy", "tiny_moe_copy"])
def test_training_through_the_plane_ends_as_in_memory(
    plane: PlaneSession,
    small: Callable[..., MasterConfig],
    request: pytest.FixtureRequest,
    model: str,
    packing: str,
) -> None:
    client = plane.owner()
    with plane.starting.running():  # the crews' processes
        trainings: Any = request.getfixturevalue("trainings")
    config = small(model, f"grpo.max_num_steps={STEPS}", f"policy.packing.mode={packing}")
    in_memory = trainings.legacy(config)
    attach = partial(open_target, plane.spec, plane.config or plane.target.config, bootstrap=False)
    through_plane = _run(lambda: trainings.plane(config, client, attach))
    parted = differences(in_memory, through_plane)
    expect(not parted, f"{STEPS} steps of GRPO to agree with those in memory", "; ".join(parted))


def _run(train: Callable[[], RunRecord]) -> RunRecord:
    """The run through the plane; one in memory went through, so that what it raises is told of."""
    try:
        return train()
    except Exception as error:
        raise ContractViolation(
            "a run through the plane to end as the one in memory did",
            shorten(f"{type(error).__name__}: {error}", 400),
        ) from error
