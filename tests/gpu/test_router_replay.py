"""Router replay on a GPU: equal through a plane and in memory, and proven by a trace."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rlconform.certify.scenarios.training_actors import SMALL
from rlconform.grpo.compare_runs import differences
from rlconform.grpo.config import load_config
from rlconform.grpo.router_replay.check import check_trace
from rlconform.grpo.router_replay.trace import TRACE_VARIABLE
from rlconform.grpo.router_replay.trace_records import read_trace

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(300)]

STEPS = 3


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_a_replayed_run_is_the_run_in_memory(
    in_memory: Any,
    through_plane: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    precision: str,
) -> None:
    overrides = (
        "cluster.device=cuda", "cluster.dp_size=1", f"grpo.max_num_steps={STEPS}",
        "policy.router_replay.enabled=true", f"policy.precision={precision}",
    )  # fmt: skip
    config = load_config("tiny_moe_copy", [*SMALL, *overrides])
    expected = in_memory(config)
    monkeypatch.setenv(TRACE_VARIABLE, str(tmp_path))
    run = through_plane(config)
    assert differences(expected, run) == []
    assert all(norm > 0 for norm in run.series("train/grad_norm"))
    verdict = check_trace(read_trace(tmp_path))
    assert verdict.failures == ()
    assert verdict.rows == STEPS * config.grpo.rows_per_step
