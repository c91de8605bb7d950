"""Each way in which a job ends badly fails the verdict, with a message of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from rlconform.launch.verify_job import verify_job

if TYPE_CHECKING:
    Launch = Callable[..., Any]
    Until = Callable[..., None]

pytestmark = pytest.mark.timeout(900)

RECIPE = "grpo-llama3.1-8b-instruct-2n8g-fsdp2-ray_store-tiny"
LONG = ("--steps", "2000", "job.steps_per_run=2000", "gates.parity=null")


def test_a_node_that_dies_mid_run_ends_the_job_and_is_named(
    launch: Launch, cluster: Any, until: Until
) -> None:
    job = launch(RECIPE, *LONG, name="dead-node", site="requeue: false\n")
    until("a step", lambda: job.steps() >= 1, 400)
    cluster.hosts["n2"].kill()
    try:
        assert job.ended() == 1
    finally:
        cluster.start_node("n2")
    failures = job.not_passed()
    assert "n2" in failures["job"] or "NODE_FAIL" in failures["job"]
    assert "run" in failures["steps"]
    assert "after step" in failures["steps"]
    cluster.await_idle()


def test_a_node_whose_step_ends_fails_the_job_at_once(
    launch: Launch, cluster: Any, until: Until
) -> None:
    job = launch(RECIPE, *LONG, name="lost-step", site="requeue: false\n")
    until("a step", lambda: job.steps() >= 1, 400)
    until("a Ray on n2", lambda: cluster.kill_process("n2", "raylet"))
    assert job.ended(60) == 1
    assert "n2" in job.not_passed()["job"]


@pytest.mark.slurm_ci
def test_a_cancelled_job_is_called_cancelled(launch: Launch, cluster: Any, until: Until) -> None:
    job = launch(RECIPE, *LONG, name="cancelled")
    until("a running job", job.job)
    cluster.slurm("scancel", job.job())
    assert job.ended(90) == 1
    assert "was cancelled" in job.not_passed()["job"]
    assert "never ran" in job.not_passed()["steps"]
    assert verify_job(job.folder).findings == []


@pytest.mark.slurm_ci
def test_a_job_without_nodes_is_cancelled_and_says_why(launch: Launch, cluster: Any) -> None:
    cluster.await_idle()
    cluster.slurm("scontrol", "update", "nodename=n2", "state=drain", "reason=test")
    try:
        job = launch(RECIPE, "--start-timeout", "3", name="no-nodes", nodes_idle=False)
        assert job.ended(120) == 1
    finally:
        cluster.slurm("scontrol", "update", "nodename=n2", "state=resume")
    assert "never started: Slurm says" in job.not_passed()["job"]
    assert cluster.slurm("squeue", "-h") == ""


def test_a_run_that_ends_well_fails_by_its_gates(launch: Launch) -> None:
    """It stops at a validation, writes no events, and has no such metric."""
    job = launch(
        RECIPE.replace("-ray_store", ""), "grpo.val_period=2",
        "grpo.stop_at_validation_metric=accuracy", "grpo.stop_at_validation_threshold=0.0",
        "logger.events_dir=null", 'gates.metrics=["min(train/no_such) > 0"]', name="bad-gates",
    )  # fmt: skip
    assert job.ended() == 1
    failures = job.not_passed()
    assert failures.keys() == {"steps", "min(train/no_such) > 0", "check-run"}
    assert "step not reached: expected step 6" in failures["steps"]
    assert "there is no metric 'train/no_such'" in failures["min(train/no_such) > 0"]
    assert "the gate never ran: expected events" in failures["check-run"]
    assert verify_job(job.folder).findings == []


def test_a_job_that_slurm_refuses_fails_in_slurms_words(launch: Launch) -> None:
    job = launch(RECIPE, name="refused", site="partition: nowhere\n")
    assert job.ended(120) == 2
    assert "invalid partition specified: nowhere" in job.output


def test_a_node_that_does_not_join_is_named(launch: Launch) -> None:
    job = launch(
        RECIPE, "job.bring_up_s=20", name="no-bring-up",
        site='setup:\n  - "[[ $node != n2 ]] || sleep 1000"\n',
    )  # fmt: skip
    assert job.ended(240) == 1
    assert "missing: n2" in job.not_passed()["job"]


def test_an_address_that_other_nodes_cannot_reach_is_refused(launch: Launch) -> None:
    job = launch(RECIPE, name="loopback", site="host_suffix: -lo\n")
    assert job.ended(120) == 1
    assert "node n1" in job.not_passed()["job"]
    assert "no address to announce" in job.not_passed()["job"]
    log = next((job.folder / "logs").glob("*/job.log")).read_text()
    assert "other nodes can't reach 127.0.0.1" in log
