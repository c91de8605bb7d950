"""``rlconform size`` predicts within a tenth what a run's rows take in ray_store."""

from __future__ import annotations

from collections.abc import Callable
from statistics import mean
from typing import Any

import pytest

from rlconform.backends.ray_store.client import RayStoreClient
from rlconform.contract import BatchMeta
from rlconform.grpo.config import MasterConfig
from rlconform.grpo.plane_traffic import Attach
from rlconform.grpo.trainers.plane_policy import PlanePolicy
from rlconform.launch.sizing import plane_size

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def plane_name() -> str:
    return "ray_store"


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch, owner: RayStoreClient) -> list[tuple[float, ...]]:
    """Rows, their mean length and the plane's live bytes, each time before a step is cleared."""
    found: list[tuple[float, ...]] = []
    finish = PlanePolicy.finish_step

    def note(self: PlanePolicy, meta: BatchMeta, *args: Any) -> Any:
        usage = owner.usage()
        found.append((usage.rows, mean(meta.sequence_lengths or [0]), usage.live_bytes))
        return finish(self, meta, *args)

    monkeypatch.setattr(PlanePolicy, "finish_step", note)
    return found


@pytest.mark.parametrize(
    ("name", "overrides"),
    [
        ("tiny_llama_copy", ()),
        ("tiny_llama_copy", ("loss_fn.reference_policy_kl_penalty=0.01",)),
        ("tiny_moe_copy", ("policy.router_replay.enabled=true",)),
    ],
)
def test_the_formula_agrees_with_a_run(
    runs: Any,
    small: Callable[..., MasterConfig],
    owner: RayStoreClient,
    attach: Attach,
    measured: list[tuple[float, ...]],
    name: str,
    overrides: tuple[str, ...],
) -> None:
    config = small(name, "grpo.max_num_steps=2", "grpo.val_period=0", *overrides)
    runs.plane(config, owner, attach)
    assert len(measured) == 2
    for rows, tokens, live_bytes in measured:
        size = plane_size(config, tokens)
        assert size.rows == rows
        assert live_bytes == pytest.approx(size.total, rel=0.1)
