"""The metrics file is written and read for finished, killed, failed and resumed runs."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from rlconform.contract import ConfigError
from rlconform.grpo.metrics.reader import MetricLog, read_metrics
from rlconform.grpo.metrics.records import METRICS_FILE, RECORD, StepMetrics
from rlconform.grpo.metrics.writer import MetricWriter

NUMBERS = st.floats(width=64)


def a_run(folder: Path, steps: range, num_steps: int, add: float = 0.0) -> Path:
    with MetricWriter(folder, num_steps, first_step=steps.start) as writer:
        for step in steps:
            writer.write(step, {"train/loss": step + add})
    return writer.path


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    with MetricWriter(tmp_path / "run", num_steps=2) as writer:
        writer.write(0, {"val/reward": 0.1})
        writer.write(1, {"train/loss": 0.5, "train/reward": 0})
        writer.write(1, {"val/reward": 0.2})
        writer.write(2, {"train/loss": 0.25, "train/reward": 1})
    log = read_metrics(tmp_path / "run" / METRICS_FILE)
    assert log.ended_early() == ""
    assert log.names == {"train/loss", "train/reward", "val/reward"}
    assert log.series("train/loss") == [0.5, 0.25]
    assert log.series("train/reward") == [0.0, 1.0]
    assert log.series("val/reward") == [0.1, 0.2]
    assert log.series("train/kl") == []


@settings(deadline=None)
@given(st.dictionaries(st.text(min_size=1), NUMBERS, max_size=5))
def test_every_number_and_name_survives_a_line(metrics: dict[str, float]) -> None:
    line = StepMetrics(step=1, metrics=metrics).model_dump_json()
    json.loads(line, parse_constant=pytest.fail)  # NaN and Infinity are not JSON
    read = RECORD.validate_json(line)
    assert isinstance(read, StepMetrics)
    assert read.metrics.keys() == metrics.keys()
    for name, value in metrics.items():
        assert read.metrics[name] == value or (math.isnan(value) and math.isnan(read.metrics[name]))


@pytest.mark.parametrize(
    "value",
    [2, 2.0, np.float32(2), np.int64(2), np.array([2]), torch.tensor(2), torch.tensor([[2.0]])],
    ids=repr,
)
def test_numbers_of_any_kind_are_written(tmp_path: Path, value: Any) -> None:
    with MetricWriter(tmp_path, 1) as writer:
        writer.write(1, {"x": value})
    assert read_metrics(writer.path).series("x") == [2.0]


@pytest.mark.parametrize(
    "value", [True, np.True_, torch.tensor(True), "2", None, torch.ones(2), 1j], ids=repr
)
def test_what_is_no_number_is_refused_and_leaves_no_line(tmp_path: Path, value: Any) -> None:
    with MetricWriter(tmp_path, 1) as writer:
        before = writer.path.read_text()
        with pytest.raises(TypeError, match="'x'"):
            writer.write(1, {"fine": 1, "x": value})
        assert writer.path.read_text() == before


def test_steps_do_not_fall(tmp_path: Path) -> None:
    with MetricWriter(tmp_path, 3) as writer:
        writer.write(2, {"x": 1})
        with pytest.raises(ValueError, match="step 1 comes after step 2"):
            writer.write(1, {"x": 1})


@pytest.mark.parametrize(("first", "last"), [(0, 3), (4, 3), (1, 0)])
def test_a_run_of_no_steps_is_refused(tmp_path: Path, first: int, last: int) -> None:
    with pytest.raises(ValueError, match="count from 1"):
        MetricWriter(tmp_path, last, first_step=first)
    assert not list(tmp_path.iterdir())


def test_each_step_is_readable_while_the_run_goes_on(tmp_path: Path) -> None:
    with MetricWriter(tmp_path, 2) as writer:
        writer.write(1, {"x": 7})
        log = read_metrics(writer.path)
        assert log.series("x") == [7.0]
        assert "cut off after step 1 of 2" in log.ended_early()


class Broken(Exception):
    """An exception that ends a run."""


def break_at_step_2(folder: Path) -> None:
    with MetricWriter(folder, 2) as writer:
        writer.write(1, {"x": 1})
        raise Broken


def test_an_exception_marks_the_run_as_failed(tmp_path: Path) -> None:
    with pytest.raises(Broken):
        break_at_step_2(tmp_path)
    log = read_metrics(tmp_path / METRICS_FILE)
    assert "failed after step 1 of 2" in log.ended_early()


def test_a_run_that_stops_short_has_ended_early(tmp_path: Path) -> None:
    assert (
        "no metrics of step 3 of 4" in read_metrics(a_run(tmp_path, range(1, 3), 4)).ended_early()
    )


def test_a_run_with_a_step_left_out_has_ended_early(tmp_path: Path) -> None:
    a_run(tmp_path, range(1, 3), 5)
    path = a_run(tmp_path, range(4, 6), 5)
    assert "no metrics of step 3 of 5" in read_metrics(path).ended_early()


def test_closing_twice_writes_one_end(tmp_path: Path) -> None:
    with MetricWriter(tmp_path, 1) as writer:
        writer.write(1, {"x": 1})
        writer.close(finished=True)
        writer.close(finished=False)
    assert writer.path.read_text().count('"end"') == 1
    assert read_metrics(writer.path).ended_early() == ""


def test_a_resumed_run_goes_on_in_the_same_file(tmp_path: Path) -> None:
    a_run(tmp_path, range(1, 6), 6)
    log = read_metrics(a_run(tmp_path, range(4, 7), 6, add=0.5))
    assert log.series("train/loss") == [1, 2, 3, 4.5, 5.5, 6.5], "steps 4 and 5 were done again"
    assert log.ended_early() == ""


def test_a_run_that_starts_over_keeps_nothing(tmp_path: Path) -> None:
    with MetricWriter(tmp_path, 3) as writer:
        writer.write(0, {"val/reward": 0.5})
        writer.write(1, {"train/loss": 9})
    log = read_metrics(a_run(tmp_path, range(1, 3), 2))
    assert log.series("train/loss") == [1, 2]
    assert log.names == {"train/loss"}
    assert (log.num_steps, log.ended_early()) == (2, "")


def test_a_finished_run_that_is_resumed_and_killed_has_ended_early(tmp_path: Path) -> None:
    path = a_run(tmp_path, range(1, 4), 3)
    writer = MetricWriter(tmp_path, 4, first_step=4)
    assert "cut off after step 3 of 4" in read_metrics(path).ended_early()
    writer.close(finished=False)


@pytest.mark.parametrize("cut", [1, 10, 40])
def test_a_half_written_record_is_a_run_that_was_killed(tmp_path: Path, cut: int) -> None:
    path = a_run(tmp_path, range(1, 4), 3)
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(lines[:3]) + lines[3][:cut])
    log = read_metrics(path)
    assert log.series("train/loss") == [1, 2]
    assert "cut off after step 2 of 3" in log.ended_early()

    resumed = read_metrics(a_run(tmp_path, range(3, 4), 3))
    assert resumed.series("train/loss") == [1, 2, 3]
    assert resumed.ended_early() == ""


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "empty"),
        ("step,loss\n1,0.5\n", "line 1"),
        ('{"record": "step", "step": 1, "metrics": {}, "time": 0}\n', "line 1"),
        ('{"record": "start", "format": 2, "first_step": 1, "num_steps": 1}\n', "line 1"),
        ("[]\n", "line 1"),
        ("\n", "line 1"),
    ],
)
def test_another_file_is_no_metrics_file(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / METRICS_FILE
    path.write_text(text)
    with pytest.raises(ConfigError, match=message):
        read_metrics(path)


def test_a_broken_line_within_a_run_is_told(tmp_path: Path) -> None:
    path = a_run(tmp_path, range(1, 4), 3)
    lines = path.read_text().splitlines()
    path.write_text("\n".join([*lines[:2], "oops", *lines[2:]]))
    with pytest.raises(ConfigError, match="line 3"):
        read_metrics(path)


def test_a_file_that_is_not_there_or_no_text_is_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file"):
        read_metrics(tmp_path / METRICS_FILE)
    (tmp_path / METRICS_FILE).write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="not UTF-8"):
        read_metrics(tmp_path / METRICS_FILE)


def test_values_are_in_the_order_of_their_steps() -> None:
    log = MetricLog()
    for step in (2, 10, 1):
        log.add(StepMetrics(step=step, metrics={"x": float(step)}))
    assert log.series("x") == [1, 2, 10]


def test_tensorboard_has_the_same_numbers(tmp_path: Path) -> None:
    with MetricWriter(tmp_path, 3, tensorboard=True) as writer:
        for step in (1, 2, 3):
            writer.write(step, {"train/loss": step / 2})
    board = EventAccumulator(str(tmp_path)).Reload()
    seen = [(event.step, event.value) for event in board.Scalars("train/loss")]
    assert seen == [(1, 0.5), (2, 1.0), (3, 1.5)]


def test_tensorboard_that_is_not_installed_is_told_at_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "torch.utils.tensorboard", raising=False)
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    with pytest.raises(ConfigError, match="tensorboard"):
        MetricWriter(tmp_path, 1, tensorboard=True)
    assert not list(tmp_path.iterdir())
