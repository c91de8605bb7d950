"""Checkpoint folders are always complete; the newest is loaded and old ones are deleted."""

from __future__ import annotations

from pathlib import Path

import pytest

from rlconform.grpo.checkpoint_folders import Checkpoints
from rlconform.grpo.config import CheckpointingConfig


def checkpoints(folder: Path, **values: object) -> Checkpoints:
    settings = {"enabled": True, "checkpoint_dir": str(folder), "save_period": 4, **values}
    return Checkpoints(CheckpointingConfig.model_validate(settings))


def save(folder: Path) -> None:
    folder.mkdir()
    (folder / "state").write_text("whole", "utf-8")


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_the_newest_is_found_by_number(tmp_path: Path) -> None:
    kept = checkpoints(tmp_path / "deep" / "down")
    assert kept.newest() is None
    for step in (999_999, 1_000_000, 8):
        kept.write(step, save)
    newest = kept.newest()
    assert newest is not None
    assert newest.name == "step_1000000"
    assert (newest / "state").read_text("utf-8") == "whole"


def test_one_that_was_being_written_is_none(tmp_path: Path) -> None:
    def die(folder: Path) -> None:
        save(folder)
        raise KeyboardInterrupt

    kept = checkpoints(tmp_path)
    kept.write(4, save)
    with pytest.raises(KeyboardInterrupt):
        kept.write(8, die)
    assert kept.newest() == tmp_path / "step_000004"
    kept.write(8, save)  # replaces the files of the failed run
    assert kept.newest() == tmp_path / "step_000008"
    assert names(tmp_path) == ["step_000004", "step_000008"]


def test_a_step_that_is_saved_again_takes_the_place_of_the_first(tmp_path: Path) -> None:
    kept = checkpoints(tmp_path)
    kept.write(4, save)
    (tmp_path / "step_000004" / "state").write_text("old", "utf-8")
    kept.write(4, save)
    assert (tmp_path / "step_000004" / "state").read_text("utf-8") == "whole"


def test_old_ones_are_dropped_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "notes").mkdir()
    kept = checkpoints(tmp_path, keep_last=2)
    for step in (4, 8, 12):
        kept.write(step, save)
    assert names(tmp_path) == ["notes", "step_000008", "step_000012"]


def test_one_is_due_every_period_and_at_the_end(tmp_path: Path) -> None:
    kept = checkpoints(tmp_path)
    assert [step for step in range(1, 11) if kept.is_due(step, step == 10)] == [4, 8, 10]


def test_nothing_is_written_nor_found_where_they_are_off(tmp_path: Path) -> None:
    checkpoints(tmp_path).write(4, save)
    off = checkpoints(tmp_path, enabled=False)
    assert off.newest() is None
    assert not off.is_due(4, is_last=True)
