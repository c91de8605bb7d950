"""``rlconform train`` runs as for a user, in a separate process and folder."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import uuid
from pathlib import Path

import psutil
import pytest

from rlconform.grpo.metrics.reader import read_metrics

pytestmark = pytest.mark.timeout(180)

TINY = ("grpo.num_prompts_per_step=2", "grpo.num_generations_per_prompt=2")


def train(folder: Path, *arguments: str) -> tuple[subprocess.CompletedProcess[str], list[str]]:
    """Run the command; return its result and the names of the processes still running."""
    mark = uuid.uuid4().hex
    process = started(folder, mark, *arguments)
    out, err = process.communicate(timeout=150)
    return subprocess.CompletedProcess(arguments, process.returncode, out, err), left_of(mark)


def started(folder: Path, mark: str, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "rlconform", "train", *arguments],
        cwd=folder,
        env=os.environ | {"RLCONFORM_TEST": mark, "PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def left_of(mark: str) -> list[str]:
    return [each.name() for each in psutil.process_iter() if marked(each, mark)]


def marked(process: psutil.Process, mark: str) -> bool:
    try:
        return process.environ().get("RLCONFORM_TEST") == mark
    except (psutil.Error, OSError):
        return False


def test_a_run_ends_with_its_metrics_and_nothing_left(tmp_path: Path) -> None:
    done, left = train(
        tmp_path,
        "tiny_llama_copy",
        "grpo.max_num_steps=2",
        "grpo.val_at_start=true",
        "grpo.val_period=2",
        "grpo.max_val_samples=2",
        "logger.log_dir=out",
        *TINY,
    )
    assert done.returncode == 0, done.stderr
    assert left == []
    log = read_metrics(tmp_path / "out" / "metrics.jsonl")
    assert log.ended_early() == ""
    assert sorted(log.steps) == [0, 1, 2]
    assert {"train/loss", "time/step", "plane/bytes_read", "plane/s"} <= log.steps[1].keys()
    assert set(log.steps[0]) >= {"val/reward"} <= set(log.steps[2])
    assert list((tmp_path / "out").glob("events.out.tfevents.*"))
    assert "in plane" in done.stdout


def test_a_run_that_fails_says_why_in_a_line_and_ends_what_it_started(tmp_path: Path) -> None:
    done, left = train(
        tmp_path,
        "tiny_llama_copy",
        "grpo.use_dynamic_sampling=true",
        "grpo.dynamic_sampling_max_gen_batches=1",
        "grpo.dynamic_sampling_std_tolerance=100.0",
        "logger.tensorboard_enabled=false",
        "logger.log_dir=out",
        *TINY,
    )
    assert done.returncode == 1
    assert left == []
    assert "0 of 2 groups" in done.stderr
    assert "Traceback" not in done.stderr
    assert read_metrics(tmp_path / "out" / "metrics.jsonl").ending == "failed"


def test_a_run_that_is_cancelled_ends_what_it_started(tmp_path: Path) -> None:
    mark = uuid.uuid4().hex
    arguments = ("grpo.max_num_steps=100000", "logger.log_dir=out", *TINY)
    process = started(tmp_path, mark, "tiny_llama_copy", *arguments)
    assert process.stdout is not None
    next(line for line in process.stdout if "grad norm" in line)  # the run is training
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "interrupted" in err
    assert left_of(mark) == []
    assert read_metrics(tmp_path / "out" / "metrics.jsonl").ending == "failed"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["tiny_lama_copy"], "tiny_llama_copy"),
        (["tiny_llama_copy", "grpo.max_steps=3"], "grpo.max_steps"),
        (["tiny_llama_copy", "policy.model_name=nobody/knows-it"], "nobody/knows-it"),
        (["tiny_llama_copy", "cluster.dp_size=32"], "takes 33 CPUs, and Ray has 16"),
    ],
)
def test_a_configuration_that_cannot_be_used_is_named(
    tmp_path: Path, arguments: list[str], said: str
) -> None:
    done, left = train(tmp_path, *arguments)
    assert done.returncode == 2
    assert left == []
    assert said in done.stderr
    assert "Traceback" not in done.stderr
