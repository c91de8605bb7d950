"""Generation by vLLM, where it is installed, with the weights of a tiny model in a folder."""

from __future__ import annotations

import importlib.util
import math
from pathlib import Path
from typing import Any

import pytest

from rlconform.certify.scenarios.training_actors import SMALL
from rlconform.grpo.config import load_config
from rlconform.grpo.models import character_tokenizer
from rlconform.grpo.models.tiny import tiny_model

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(300)]


@pytest.mark.usefixtures("gpus")
def test_a_run_with_rows_from_vllm(through_plane: Any, tmp_path: Path) -> None:
    if importlib.util.find_spec("vllm") is None:
        pytest.skip("vLLM is not installed")
    tiny_model("tiny-llama", 0).save_pretrained(tmp_path)
    character_tokenizer().save_pretrained(tmp_path)
    overrides = [
        *SMALL, "cluster.device=cuda", "cluster.dp_size=1", "grpo.max_num_steps=3",
        "generation.backend=vllm", "generation.vllm.enforce_eager=true",
        "generation.vllm.gpu_memory_utilization=0.3", f"policy.model_name={tmp_path}",
    ]  # fmt: skip
    run = through_plane(load_config("tiny_llama_copy", overrides))
    assert max(run.series("train/grad_norm")) > 0
    assert all(map(math.isfinite, run.series("train/loss")))
