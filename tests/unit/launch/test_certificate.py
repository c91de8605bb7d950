"""The certificate of a job: each bad ending in it and in ``junit.xml``; verified, and forged."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from typer.testing import CliRunner

from rlconform.certify.report.verify import Fault
from rlconform.cli import app
from rlconform.grpo.metrics.writer import MetricWriter
from rlconform.launch.certificate import seal_of
from rlconform.launch.job_folder import JobFolder, create
from rlconform.launch.judge import judge_job, last_status, write_verdict
from rlconform.launch.recipes import load_recipe
from rlconform.launch.sites import Site
from rlconform.launch.slurm import JobStatus
from rlconform.launch.verify_job import verify_job

LEGACY = "grpo-llama3.1-8b-instruct-2n8g-fsdp2-tiny"
NAME = LEGACY.replace("-tiny", "-ray_store-tiny")
STEPS = 6
GOOD = {
    "train/engine_kl": 0.0, "train/engine_prob_error": 1.0, "train/ratio": 1.0,
    "train/loss": 1.0, "train/grad_norm": 1.0, "train/reward": 0.5,
}  # fmt: skip
DONE = JobStatus("7", "COMPLETED", nodes="n[1-2]")
Job = Callable[..., JobFolder]


@pytest.fixture(scope="module")
def launched(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """``launched(recipe)``: the folder of a job that has not run, made once."""
    made: dict[str, Path] = {}

    def folder(name: str) -> Path:
        if name not in made:
            recipe = load_recipe(name, ["gates.check_run=false"])
            made[name] = create(recipe, [], Site(), tmp_path_factory.mktemp("job")).path
        return made[name]

    return folder


@pytest.fixture
def job(launched: Callable[[str], Path], tmp_path: Path) -> Job:
    """``job(recipe, last=, end=, METRIC=)``: a job with a run; METRIC None takes it out.

    The run was cut off after the step ``last`` if that is not the last one; the script wrote
    ``end``.
    """

    def run(
        recipe: str = LEGACY, *, last: int = STEPS, end: str = "driver 0", **changed: float | None
    ) -> JobFolder:
        folder = JobFolder(tmp_path / recipe)
        shutil.copytree(launched(recipe), folder.path, ignore=shutil.ignore_patterns("code"))
        own = {f"train/{name}": value for name, value in changed.items()}
        values = {name: value for name, value in (GOOD | own).items() if value is not None}
        if last:
            writer = MetricWriter(folder.path / "run", STEPS)
            for step in range(1, last + 1):
                writer.write(step, values)
            if last == STEPS:
                writer.__exit__(None, None, None)
        ended(folder, "7", end)
        return folder

    return run


def ended(folder: JobFolder, number: str, end: str) -> None:
    """Write what the script of a job writes at its end."""
    logs = folder.path / "logs" / number
    logs.mkdir(parents=True)
    (logs / "end").write_text(end + "\n")


def judged(folder: JobFolder, status: JobStatus | None = DONE) -> dict[str, Any]:
    """Judge a job, write the verdict, and return what is written."""
    write_verdict(judge_job(folder, status), folder)
    written: dict[str, Any] = json.loads((folder.path / "verdict.json").read_text())
    return written


BAD_ENDINGS: list[tuple[JobStatus, dict[str, Any], str, str, str]] = [
    (DONE, {"last": 2}, "steps", "failure", "truncated run: it was cut off after step 2 of 6"),
    (DONE, {"grad_norm": math.nan}, "min(train/grad_norm) > 0", "failure", "is nan at some step"),
    (DONE, {"grad_norm": None}, "min(train/grad_norm) > 0", "failure", "there is no metric"),
    (DONE, {"last": 0}, "steps", "error", "the gate never ran: expected run/metrics.jsonl"),
    (DONE, {"end": "node 1 n2"}, "job", "failure", "node n2 left job 7: its step ended mid-run"),
    (JobStatus("7", "TIMEOUT"), {}, "job", "failure", "reached its time limit before"),
    (JobStatus("7", "CANCELLED", nodes="n1"), {}, "job", "failure", "was cancelled on n1"),
]


@pytest.mark.parametrize(("status", "options", "gate", "tag", "said"), BAD_ENDINGS)
def test_a_bad_ending_is_in_the_certificate_and_in_junit(
    job: Job, status: JobStatus, options: dict[str, Any], gate: str, tag: str, said: str
) -> None:
    folder = job(**options)
    written = judged(folder, status)
    assert not written["passed"]
    (row,) = [each for each in written["gates"] if each["gate"] == gate]
    assert said in row["message"]
    assert str(folder.path) not in json.dumps(written)
    suite = ElementTree.parse(folder.path / "junit.xml").getroot()
    (case,) = [each for each in suite if each.get("name") == gate]
    assert [(node.tag, node.get("message")) for node in case] == [(tag, row["message"])]
    assert verify_job(folder.path).findings == []  # a certificate may say that the job fails
    verified = CliRunner().invoke(app, ["verify", str(folder.path)])
    assert verified.exit_code == 0, verified.output
    assert "fail at level e2e" in verified.output
    assert CliRunner().invoke(app, ["verify", str(folder.path), "--certified"]).exit_code == 1


def test_a_run_that_ended_as_configured_did_not_reach_its_step(job: Job) -> None:
    folder = job(last=0)
    with MetricWriter(folder.path / "run", STEPS) as writer:
        writer.write(1, GOOD)
    gates = {gate["gate"]: gate["message"] for gate in judged(folder)["gates"]}
    assert "step not reached: expected step 6" in gates["steps"]


def test_a_folder_that_was_moved_is_verified_with_its_legacy_run(job: Job, tmp_path: Path) -> None:
    legacy, folder = job(LEGACY), job(NAME)
    folder.keep_baseline(legacy)
    written = judged(folder)
    assert written["passed"]
    read = {"job.json", "run/metrics.jsonl", "logs/7/end", "baseline/run/metrics.jsonl"}
    assert read <= set(written["files"])
    shutil.rmtree(legacy.path)
    moved = folder.path.rename(tmp_path / "moved")
    verified = CliRunner().invoke(app, ["verify", str(moved), "--certified"])
    assert verified.exit_code == 0, verified.output
    assert f"{NAME}: pass at level e2e" in verified.output


def forge(path: Path, old: str, new: str) -> None:
    """Replace a text that must be in the file."""
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def test_a_changed_certificate_is_found_by_its_seal(job: Job) -> None:
    folder = job(last=2)
    judged(folder)
    forge(folder.path / "verdict.json", '"passed": false', '"passed": true')
    (folder.path / "junit.xml").unlink()
    found = {one.where for one in verify_job(folder.path).findings}
    assert found == {"verdict.json", "passed", "junit.xml"}
    ran = CliRunner().invoke(app, ["verify", str(folder.path)])
    assert ran.exit_code == 1
    assert "3 things are wrong with it" in ran.output


def test_a_certificate_that_was_sealed_again_is_judged_again(job: Job) -> None:
    folder = job(last=2)
    written = judged(folder)
    for gate in written["gates"]:
        gate["outcome"] = "pass"
    sealed_again(folder, written | {"passed": True})
    findings = verify_job(folder.path).findings
    assert (findings[0].where, findings[-1].where) == ("steps", "passed")
    assert "expected fail (truncated run" in findings[0].what
    sealed_again(folder, written | {"gates": written["gates"][:1]})
    assert "got no such gate" in verify_job(folder.path).findings[0].what


def sealed_again(folder: JobFolder, forged: dict[str, Any]) -> None:
    """Write a forged certificate with a seal that agrees."""
    sealed = forged | {"sha256": seal_of(forged)}
    (folder.path / "verdict.json").write_text(json.dumps(sealed))


def test_changed_missing_and_new_evidence_is_found(job: Job) -> None:
    folder = job()
    judged(folder)
    forge(folder.metrics, '"train/loss":1.0', '"train/loss":2.0')
    (folder.path / "config.yaml").unlink()
    ended(folder, "8", "driver 0")
    forge(folder.path / "junit.xml", 'name="steps"', 'name="step"')
    found = {one.where: one.fault for one in verify_job(folder.path).findings}
    assert found == {
        "run/metrics.jsonl": Fault.TAMPERED,
        "config.yaml": Fault.MISSING,
        "logs/8/end": Fault.TAMPERED,
        "junit.xml": Fault.TAMPERED,
    }


@pytest.mark.parametrize("text", ["no json", '{"schema": 1}', "[]", '{"schema": 2}'])
def test_a_certificate_that_cannot_be_read_is_none(tmp_path: Path, text: str) -> None:
    (tmp_path / "verdict.json").write_text(text)
    ran = CliRunner().invoke(app, ["verify", str(tmp_path)])
    assert ran.exit_code == 1
    assert "can't be read" in ran.output


def test_keys_are_for_reports(job: Job) -> None:
    folder = job()
    judged(folder)
    ran = CliRunner().invoke(app, ["verify", str(folder.path), "--key", "acme.pub"])
    assert ran.exit_code == 2
    assert "certificates of jobs are unsigned" in ran.output


def test_judging_again_keeps_slurms_last_word(job: Job) -> None:
    folder = job()
    judged(folder, JobStatus("7", "OUT_OF_MEMORY"))
    ran = CliRunner().invoke(app, ["judge", str(folder.path)])
    assert ran.exit_code == 1
    assert "used more memory" in ran.output
    ended(folder, "8", "driver 0")
    assert last_status(folder) is None  # a later job ran, of which Slurm was not asked
    assert last_status(JobFolder(folder.path.parent)) is None
