"""PAR: a training run through the plane equals the run in memory bit for bit."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from rlconform.certify.plugin.markers import requirement

if TYPE_CHECKING:  # checks are collected without transformers
    from rlconform.certify.scenarios.training_parity import ParityRuns

#: Seconds for two short runs and, the first time, the start of their actors, on a busy laptop.
PATIENCE_S = 300


@requirement("PAR-03", patience=PATIENCE_S)
@pytest.mark.parametrize("packing", ["none", "sequence_packing", "dynamic_batching"])
@pytest.mark.parametrize("model", ["tiny_llama_copy", "tiny_moe_copy"])
def test_a_run_through_the_plane_equals_the_run_in_memory(
    parity_runs: ParityRuns, model: str, packing: str
) -> None:
    parity_runs.expect_equal_runs(model, packing)


@requirement("PAR-03", patience=PATIENCE_S)
def test_a_policy_learns_through_the_plane_as_in_memory(parity_runs: ParityRuns) -> None:
    parity_runs.expect_learning("tiny_llama_copy")


@requirement("PAR-03", patience=PATIENCE_S)
def test_a_resumed_run_equals_the_uninterrupted_one(
    parity_runs: ParityRuns, tmp_path: Path
) -> None:
    parity_runs.expect_resumed_run(tmp_path)
