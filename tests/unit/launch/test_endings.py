"""Each ending of a job has a verdict and a sentence of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from rlconform.launch.await_nodes import main, missing_nodes
from rlconform.launch.endings import JobEnd, judge_ending, read_end
from rlconform.launch.slurm import JobStatus, parse_status

LOGS = Path("/jobs/x/logs/7")

ENDINGS = {
    "was cancelled on n[1-2]": (JobStatus("7", "CANCELLED", nodes="n[1-2]"), None),
    "was cancelled before it had nodes": (JobStatus("7", "CANCELLED"), None),
    "reached its time limit": (JobStatus("7", "TIMEOUT"), None),
    "lost a node of n[1-2] (NODE_FAIL)": (JobStatus("7", "NODE_FAIL", nodes="n[1-2]"), None),
    "used more memory": (JobStatus("7", "OUT_OF_MEMORY"), None),
    "never started: Slurm says Resources": (JobStatus("7", "PENDING", "Resources"), None),
    "ended as BOOT_FAIL": (JobStatus("7", "BOOT_FAIL"), None),
    "was killed on n1": (JobStatus("7", "FAILED", nodes="n1"), None),
    "node n2 left job 7": (JobStatus("7", "FAILED"), JobEnd("node", 1, "n2")),
    "missing: n2 n3": (JobStatus("7", "FAILED"), JobEnd("bring_up", 69, "n2 n3")),
    "missing: the head": (JobStatus("7", "FAILED"), JobEnd("bring_up", 69)),
    "node n1 of job 7 has no address": (JobStatus("7", "FAILED"), JobEnd("address", 1, "n1")),
    "stopped at a checkpoint, and no run": (JobStatus("7", "FAILED"), JobEnd("stopped", 75)),
    "the driver of job 7 ended with 1;": (JobStatus("7", "FAILED"), JobEnd("driver", 1)),
    "the step of node n2 with it": (JobStatus("7", "FAILED"), JobEnd("driver", 1, "n2")),
    "the driver of job 7 ended with 0": (JobStatus("7", "FAILED"), JobEnd("driver", 0)),
}


@pytest.mark.parametrize("said", ENDINGS)
def test_a_bad_ending_fails_with_a_message_of_its_own(said: str) -> None:
    status, end = ENDINGS[said]
    verdict = judge_ending(status, end, LOGS)
    assert not verdict.passed
    assert said in verdict.message
    others = [other for other in ENDINGS if other != said and other in verdict.message]
    assert others == []


@pytest.mark.parametrize("cause", ["driver", "complete"])
def test_a_good_ending_passes(cause: str) -> None:
    assert judge_ending(JobStatus("7", "COMPLETED"), JobEnd(cause, 0), LOGS).passed


def test_the_scripts_last_words_are_read(tmp_path: Path) -> None:
    assert read_end(tmp_path) is None
    (tmp_path / "end").write_text("driver 1 n1 n2\n")
    assert read_end(tmp_path) == JobEnd("driver", 1, "n1 n2")
    (tmp_path / "end").write_text("dri")
    assert read_end(tmp_path) is None


def test_slurms_line_is_read() -> None:
    line = (
        "JobId=42 JobName=x JobState=FAILED Reason=NonZeroExitCode Dependency=(null) Requeue=1 "
        "Restarts=3 BatchFlag=1 ExitCode=69:9 NodeList=n[1-2] BatchHost=n1"
    )
    assert parse_status(line) == JobStatus("42", "FAILED", "NonZeroExitCode", 69, 9, 3, "n[1-2]")
    waiting = parse_status("JobId=42 JobState=PENDING Reason=None NodeList=(null)")
    assert waiting == JobStatus("42", "PENDING")
    assert not waiting.ended
    assert JobStatus("42", "TIMEOUT").ended


def test_missing_nodes_are_those_that_are_not_alive() -> None:
    nodes = [{"NodeName": "n1", "Alive": True}, {"NodeName": "n2", "Alive": False}]
    assert missing_nodes(["n1", "n2", "n3"], nodes) == ["n2", "n3"]


def test_all_nodes_are_missing_where_nothing_answers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "missing"
    assert main("127.0.0.1:1", "0.001", str(file), "n1", "n2") == 69
    assert file.read_text() == "n1 n2\n"
    assert "missing: n1, n2" in capsys.readouterr().err
