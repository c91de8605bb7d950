"""Every sampler on every plane, with failures and restarts that are handled rightly: no alarm.

First real runs of a tiny model. Then runs with more kinds of trouble, on the same real planes;
their generations, updates and transfers of weights are simulated, and so is the clock.
"""

from __future__ import annotations

from contextlib import nullcontext
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from rlconform.check_run.judge import judge_run
from rlconform.check_run.verdict import RuleOutcome
from rlconform.contract import DataPlaneClient
from rlconform.grpo.compare_runs import run_to_end
from rlconform.grpo.config import MasterConfig, load_config
from rlconform.grpo.plane_traffic import Attach
from rlconform.grpo.replay.slots import Failure
from rlconform.grpo.rollout.pump import AttemptFailed
from rlconform.grpo.simulation.scenario import SAMPLERS, Scenario, clean_scenarios
from rlconform.grpo.trainers.async_plane import AsyncPlaneTrainer
from rlconform.grpo.training_loop import fit

pytestmark = pytest.mark.timeout(240)
EACH_SAMPLER = pytest.mark.parametrize(
    "sampler",
    [pytest.param(name, marks=[pytest.mark.smoke] * (name == "windowed")) for name in SAMPLERS],
)
#: Groups whose first answer is lost on its way to the driver.
LOST = {"train-1", "train-9", "train-10"}


def config(folder: Path, sampler: str, *overrides: str) -> MasterConfig:
    block = ", ".join(f"{key}: {value}" for key, value in SAMPLERS[sampler].items())
    return load_config(
        "tiny_llama_copy_async",
        [
            "cluster.dp_size=2", f"logger.events_dir={folder / 'events'}",
            f"async_rl.sampler={{{block}}}", "async_rl.in_flight_weight_updates=true",
            "async_rl.rollout_failure.backoff_base_s=0.05", *overrides,
        ],
    )  # fmt: skip


@EACH_SAMPLER
def test_a_run_whose_attempts_fail_is_clean(
    runs: Any, owner: DataPlaneClient, attach: Attach, tmp_path: Path, sampler: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    run = config(tmp_path, sampler, "grpo.max_num_steps=4")
    trainer = AsyncPlaneTrainer(run, runs.plane_actors, owner, attach)
    pump = trainer._controller.pump
    generate = pump._generate

    async def losing(problem: Any, group_id: str, partial: Any) -> Any:
        result = await generate(problem, group_id, partial)
        if group_id in LOST:
            raise AttemptFailed(Failure.INFRA, f"the answer of {group_id} is lost")
        return result

    monkeypatch.setattr(pump, "_generate", losing)
    try:
        run_to_end(trainer)
    finally:
        trainer.shutdown()
    report = judge_run([tmp_path / "events"])
    assert report.not_clean() == []
    assert report.overview.fates["trained"] == 4 * run.grpo.num_prompts_per_step
    assert report.overview.fates["infra_failure"] == len(LOST)


@EACH_SAMPLER
@pytest.mark.parametrize("rows", ["true", "false"], ids=["rows", "without_rows"])
def test_a_run_that_is_resumed_is_clean(
    runs: Any, owner: DataPlaneClient, attach: Attach, tmp_path: Path, sampler: str, rows: str
) -> None:
    run = config(
        tmp_path, sampler, "checkpointing.enabled=true",
        f"checkpointing.checkpoint_dir={tmp_path / 'saved'}", "checkpointing.save_period=2",
        f"async_rl.checkpoint_rows={rows}", "grpo.max_num_steps=5",
    )  # fmt: skip
    trainer = AsyncPlaneTrainer(run, runs.plane_actors, owner, attach)
    list(islice(fit(trainer), 3))  # step 3 is lost, and trained again
    trainer.shutdown()
    runs.plane(run, owner, attach)
    report = judge_run([tmp_path / "events"])
    assert report.not_clean() == []
    resume = next(verdict for verdict in report.verdicts if verdict.rule == "resume")
    assert resume.outcome is RuleOutcome.PASS


SIMULATED = clean_scenarios()


@pytest.mark.parametrize(
    "scenario",
    [
        pytest.param(one, id=name, marks=[pytest.mark.smoke] * name.endswith(": restart"))
        for name, one in SIMULATED.items()
    ],
)
def test_a_run_with_simulated_engines_is_clean(
    owner: DataPlaneClient, tmp_path: Path, scenario: Scenario
) -> None:
    outcome = scenario.run(tmp_path / "events", lambda: nullcontext(owner))
    assert outcome.error is None
    report = judge_run([tmp_path / "events"])
    assert report.not_clean() == []
    assert report.overview.fates["trained"] == scenario.prompts * scenario.steps
