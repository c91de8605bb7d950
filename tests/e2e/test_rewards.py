"""Runs whose reward function fails for some rows: these are left out, and the others train."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rlconform.check_run.judge import judge_run
from rlconform.contract import DataPlaneClient
from rlconform.events.reader import LogReader, log_files
from rlconform.events.schema import (
    Committed,
    RewardComputed,
    RewardFailed,
    RewardFailureCause,
    Trained,
)
from rlconform.grpo.compare_runs import differences, run_to_end
from rlconform.grpo.config import MasterConfig, load_config
from rlconform.grpo.failures import RewardFailure
from rlconform.grpo.plane_traffic import Attach
from rlconform.grpo.trainers.async_plane import AsyncPlaneTrainer
from rlconform.grpo.trainers.legacy import LegacyTrainer
from rlconform.grpo.trainers.plane import PlaneTrainer
from rlconform.grpo.training_loop import fit

pytestmark = [
    pytest.mark.timeout(300),
    pytest.mark.parametrize("plane_name", ["ray_store"], scope="module"),
]

#: Row 1 of every group has no reward; row 2 of some has one that isn't finite; the first attempt of
#: one prompt has no reward at all.
FUNCTION = """
def compute_score(data_source, solution_str, ground_truth, extra_info, bonus):
    assert data_source == "copy"
    group, _, row = extra_info["sample_id"].rpartition("_g")
    if row == "1" or group == "train-5":
        raise ValueError(f"no reward of {extra_info['sample_id']}")
    if row == "2" and group.endswith("3"):
        return float("nan")
    answer = {"score": bonus * (solution_str == ground_truth)}
    return {**answer, "rows_like_this": row} if row == "3" else answer
"""
STEPS = 3
CAUSES = tuple(RewardFailureCause)
#: The reward of a response without a text, which no function is asked for.
EMPTY = -7.0


def config(name: str, folder: Path, *overrides: str) -> MasterConfig:
    folder.mkdir(exist_ok=True)
    (folder / "reward.py").write_text(FUNCTION, "utf-8")
    return load_config(
        name,
        [
            "cluster.dp_size=2",
            "grpo.num_prompts_per_step=4",
            "grpo.num_generations_per_prompt=4",
            f"grpo.max_num_steps={STEPS}",
            f"logger.events_dir={folder / 'events'}",
            f"custom_reward_function.path={folder / 'reward.py'}",
            "custom_reward_function.reward_kwargs.bonus=2.0",
            f"reward_loop.empty_response_reward={EMPTY}",
            *overrides,
        ],
    )


def failing_rows(group_id: str) -> dict[int, str]:
    """The cause of each row that ``FUNCTION`` gives no reward, unless the row has no text."""
    if group_id == "train-5":
        return dict.fromkeys(range(4), "raised")
    return {1: "raised"} | ({2: "not_finite"} if group_id.endswith("3") else {})


class Rewards:
    """The rewards of a run's rows as its log has them."""

    def __init__(self, folder: Path) -> None:
        self.given: dict[tuple[str, int], float | None] = {}
        self.causes: dict[tuple[str, int], str] = {}
        self.committed: dict[str, list[float | None]] = {}
        self.trained: dict[str, list[int]] = {}
        for record in LogReader(log_files([folder / "events"])):
            match record.event:
                case RewardComputed(group_id=group_id, row=row, reward=reward):
                    assert (group_id, row) not in self.given
                    self.given[group_id, row] = reward
                case RewardFailed(group_id=group_id, row=row, cause=cause):
                    assert (group_id, row) not in self.given
                    self.given[group_id, row], self.causes[group_id, row] = None, cause.value
                case Committed(group_id=group_id, rewards=rewards):
                    self.committed[group_id] = rewards or []
                case Trained(group_id=group_id, rows=rows):
                    self.trained[group_id] = rows

    def expect_as_scored(self) -> None:
        """Each row has what ``FUNCTION`` says of it; rows without a reward aren't trained on."""
        for (group_id, row), reward in self.given.items():
            cause = failing_rows(group_id).get(row)
            if reward == EMPTY:
                assert (group_id, row) not in self.causes
            elif cause is None:
                assert reward in {0.0, 2.0}
            else:
                assert self.causes[group_id, row] == cause
        for group_id, rows in self.trained.items():
            rewards = [self.given[group_id, row] for row in range(4)]
            assert self.committed[group_id] == rewards
            assert rows == [row for row, reward in enumerate(rewards) if reward is not None]
        assert len(self.trained) >= STEPS * 4 - 1
        assert {"raised", "not_finite"} == {*self.causes.values()}


def expect_clean(folder: Path) -> Rewards:
    """The log is right, and it says of every row what was meant."""
    report = judge_run([folder / "events"])
    assert report.not_clean() == []
    assert report.overview.fates["reward_failure"] == 1, "the first attempt of train-5"
    rewards = Rewards(folder)
    rewards.expect_as_scored()
    return rewards


@pytest.mark.parametrize(
    "name",
    [pytest.param("tiny_llama_copy_async", marks=pytest.mark.smoke), "tiny_llama_copy"],
    ids=["async", "sync"],
)
def test_rows_without_a_reward_are_left_out_and_the_others_train(
    runs: Any, owner: DataPlaneClient, attach: Attach, tmp_path: Path, name: str
) -> None:
    run = config(name, tmp_path, "policy.witness=true")
    kind = AsyncPlaneTrainer if run.async_rl is not None else PlaneTrainer
    trainer = kind(run, runs.plane_actors, owner, attach)
    policy = trainer.policy if isinstance(trainer, AsyncPlaneTrainer) else trainer._policy
    witnessed: set[str] = set()
    failed = 0.0
    for report in fit(trainer):
        witnessed |= set(policy.witnessed())
        failed += sum(report.metrics[f"rewards/failed/{cause.value}"] for cause in CAUSES)
        assert report.metrics["train/masked_rows"] >= 3, "row 1 of each group, if it has a text"
    trainer.shutdown()
    rewards = expect_clean(tmp_path)
    without = {f"{group_id}_g{row}" for group_id, row in rewards.causes}
    assert not witnessed & without
    assert len(witnessed) > STEPS * 4
    in_steps = [key for key in rewards.causes if run.async_rl is None or key[0] != "train-5"]
    assert failed == len([key for key in in_steps if key[0] in rewards.committed])


def test_a_run_in_memory_equals_the_one_through_the_plane(
    runs: Any, owner: DataPlaneClient, attach: Attach, tmp_path: Path
) -> None:
    legacy = LegacyTrainer(config("tiny_llama_copy", tmp_path / "a"), runs.legacy_actors)
    in_memory = run_to_end(legacy)
    legacy.shutdown()
    through_plane = runs.plane(config("tiny_llama_copy", tmp_path / "b"), owner, attach)
    assert differences(in_memory, through_plane) == []
    assert sum(in_memory.series("train/masked_rows")) > STEPS * 4
    expect_clean(tmp_path / "a")


@pytest.mark.parametrize("name", ["tiny_llama_copy_async", "tiny_llama_copy"])
def test_a_failed_reward_may_end_the_run(
    runs: Any, owner: DataPlaneClient, attach: Attach, tmp_path: Path, name: str
) -> None:
    run = config(name, tmp_path, "reward_loop.on_failure=raise")
    kind = AsyncPlaneTrainer if run.async_rl is not None else PlaneTrainer
    trainer = kind(run, runs.plane_actors, owner, attach)
    with pytest.raises(RewardFailure, match=r"_g1' has no reward: the scorer raised ValueError"):
        trainer.step()
    trainer.shutdown()


def test_the_mean_of_a_validation_leaves_rows_without_a_reward_out(
    runs: Any, owner: DataPlaneClient, attach: Attach, tmp_path: Path
) -> None:
    run = config(
        "tiny_llama_copy", tmp_path, "grpo.val_at_start=true", "grpo.max_val_samples=6",
        "grpo.val_num_generations_per_prompt=2", "generation.val_greedy=false",
    )  # fmt: skip
    (tmp_path / "reward.py").write_text(
        "def compute_score(data_source, solution_str, ground_truth, extra_info, bonus):\n"
        "    assert extra_info['validate']\n"
        "    return 1 / (extra_info['sample_id'] not in {'val-0_g0', 'val-4_g0', 'val-4_g1'})\n",
        "utf-8",
    )
    trainer = PlaneTrainer(run, runs.plane_actors, owner, attach)
    metrics = trainer.validate()
    trainer.shutdown()
    assert 1 <= metrics["val/reward_failed"] <= 3, "rows without a text don't fail"
    scored = 12 - metrics["val/reward_failed"]
    empty = round((1 - metrics["val/reward"]) * scored / (1 - EMPTY))
    assert metrics["val/reward"] == pytest.approx((scored - empty + EMPTY * empty) / scored)
