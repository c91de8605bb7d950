"""A resumed run equals an uninterrupted one bit for bit."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rlconform.contract import DataPlaneClient
from rlconform.grpo.checkpoint_folders import Checkpoints
from rlconform.grpo.compare_runs import differences
from rlconform.grpo.config import MasterConfig
from rlconform.grpo.plane_traffic import Attach

pytestmark = pytest.mark.timeout(180)


@pytest.fixture(scope="module")
def plane_name() -> str:
    """One plane is enough: ``test_parity`` shows that training is equal with all planes."""
    return "ray_store"


@pytest.mark.parametrize("parallelism", ["ddp", "fsdp2"])
def test_three_steps_a_checkpoint_and_three_more_are_six(
    runs: Any,
    small: Callable[..., MasterConfig],
    tmp_path: Path,
    owner: DataPlaneClient,
    attach: Attach,
    parallelism: str,
) -> None:
    common = (f"policy.parallelism={parallelism}", f"checkpointing.checkpoint_dir={tmp_path}")
    saved = (*common, "checkpointing.enabled=true", "checkpointing.save_period=3")
    whole = runs.legacy(small("tiny_llama_copy", *common, "grpo.max_num_steps=6"))

    first = small("tiny_llama_copy", *saved, "grpo.max_num_steps=3")
    begun = runs.plane(first, owner, attach)
    assert Checkpoints(first.checkpointing).newest() == tmp_path / "step_000003"
    resumed = runs.plane(small("tiny_llama_copy", *saved, "grpo.max_num_steps=6"), owner, attach)

    assert [report.step for report in begun.reports] == [1, 2, 3]
    assert [report.step for report in resumed.reports] == [4, 5, 6]
    assert differences(whole, resumed) == []
    assert [d for d in differences(whole, begun) if d.startswith("step")] == []
    assert any(norm > 0 for norm in resumed.series("train/grad_norm"))
