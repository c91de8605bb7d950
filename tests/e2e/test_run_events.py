"""Runs of all trainers write events, and ``check-run`` is clean on them."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from rlconform.check_run.judge import RunReport, judge_run
from rlconform.check_run.verdict import RuleOutcome
from rlconform.contract import DataPlaneClient
from rlconform.grpo.config import MasterConfig, load_config
from rlconform.grpo.plane_traffic import Attach
from rlconform.grpo.trainers.async_plane import AsyncPlaneTrainer
from rlconform.grpo.trainers.legacy import LegacyTrainer
from rlconform.grpo.training_loop import fit

pytestmark = [
    pytest.mark.timeout(180),
    pytest.mark.parametrize("plane_name", ["ray_store"], scope="module"),
]


def config(name: str, folder: Path, *overrides: str) -> MasterConfig:
    return load_config(
        name, ["cluster.dp_size=2", f"logger.events_dir={folder / 'events'}", *overrides]
    )


def judged(folder: Path) -> RunReport:
    """The report of a run whose rules all pass, or don't apply."""
    report = judge_run([folder / "events"])
    allowed = {RuleOutcome.PASS, RuleOutcome.NOT_APPLICABLE}
    wrong = [
        (verdict.rule, [one.sentence for one in verdict.anomalies], verdict.missing)
        for verdict in report.verdicts
        if verdict.outcome not in allowed
    ]
    assert wrong == []
    return report


def not_applicable(report: RunReport) -> set[str]:
    outcome = RuleOutcome.NOT_APPLICABLE
    return {verdict.rule for verdict in report.verdicts if verdict.outcome is outcome}


@pytest.mark.smoke
@pytest.mark.parametrize(
    "mode",
    ["async_rl.in_flight_weight_updates=true", "async_rl.partial_rollouts=true"],
    ids=["in_flight", "partial"],
)
def test_an_asynchronous_run_is_clean(
    runs: Any, owner: DataPlaneClient, attach: Attach, tmp_path: Path, mode: str
) -> None:
    run = config(
        "tiny_llama_copy_async", tmp_path, mode, "grpo.max_num_steps=4",
        "async_rl.min_groups_for_streaming_train=3",
    )  # fmt: skip
    runs.plane(run, owner, attach)
    report = judged(tmp_path)
    assert report.overview.fates["trained"] == 4 * run.grpo.num_prompts_per_step
    assert not_applicable(report) == {"resume"}
    assert len(report.files) == 4, "driver, rollout worker, two ranks"
    assert max(report.lags["start"]) == 1


def test_a_resumed_run_is_clean(
    runs: Any, owner: DataPlaneClient, attach: Attach, tmp_path: Path
) -> None:
    run = config(
        "tiny_llama_copy_async", tmp_path, "checkpointing.enabled=true",
        f"checkpointing.checkpoint_dir={tmp_path / 'saved'}", "checkpointing.save_period=3",
        "grpo.max_num_steps=6",
    )  # fmt: skip
    trainer = AsyncPlaneTrainer(run, runs.plane_actors, owner, attach)
    list(islice(fit(trainer), 4))  # step 4 is lost, and trained again
    trainer.shutdown()
    runs.plane(run, owner, attach)
    report = judged(tmp_path)
    assert not_applicable(report) == set()


def test_synchronous_runs_are_clean(
    runs: Any, owner: DataPlaneClient, attach: Attach, tmp_path: Path
) -> None:
    run = config("tiny_llama_copy", tmp_path / "plane", "grpo.max_num_steps=3")
    runs.plane(run, owner, attach)
    assert not_applicable(judged(tmp_path / "plane")) == {"resume"}

    run = config(
        "tiny_llama_copy", tmp_path / "memory", "grpo.max_num_steps=3",
        "grpo.use_dynamic_sampling=true", "grpo.dynamic_sampling_max_gen_batches=10",
        "grpo.batch_multiplier=2",
    )  # fmt: skip
    trainer = LegacyTrainer(run, runs.legacy_actors)
    list(fit(trainer))
    trainer.shutdown()
    report = judged(tmp_path / "memory")
    assert not_applicable(report) == {"resume", "plane_ops"}
    assert report.overview.fates["filtered_uniform"] or report.overview.fates["surplus"]
