"""Tiny twins of recipes run on a real Slurm with two nodes, and are judged."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from rlconform.check_run.judge import judge_run
from rlconform.grpo.metrics.reader import read_metrics
from rlconform.launch.verify_job import verify_job

if TYPE_CHECKING:
    Launch = Callable[..., Any]

pytestmark = pytest.mark.timeout(900)

FSDP2 = "grpo-llama3.1-8b-instruct-2n8g-fsdp2"
SEQPACK = "grpo-qwen3-30ba3b-2n8g-megatron-tp2-seqpack"
#: A rollout worker on each node, and a rank beside it: Ray may put all processes of a twin on one.
SPREAD = "cluster.rollout_nnodes=2"
#: Lets the ranks run Megatron-core on CPUs.
CPU_SITE = {"PYTHONPATH": str(Path(__file__).with_name("cpu_site"))}


@pytest.fixture(scope="session")
def legacy(launch: Launch) -> Any:
    """A run of the legacy recipe, with which those of planes are compared: a chain of two jobs."""
    job = launch(f"{FSDP2}-tiny", "job.steps_per_run=3", name="legacy", site="requeue: false\n")
    assert job.ended() == 0, job.output
    return job


@pytest.fixture(scope="session")
def ray_store(launch: Launch, legacy: Any) -> Any:
    """A run of the same recipe through ray_store."""
    job = launch(
        f"{FSDP2}-ray_store-tiny", "--baseline", str(legacy.folder), SPREAD, name="ray_store"
    )
    assert job.ended() == 0, job.output
    return job


def hosts_of(folder: Path) -> set[str]:
    """The hosts whose processes wrote events."""
    return {file.source.host for file in judge_run([folder / "run" / "events"]).files}


@pytest.mark.slurm_ci
def test_a_plane_trains_as_the_legacy_recipe_does(ray_store: Any) -> None:
    assert ray_store.verdict["passed"]
    assert ray_store.verdict["plane"] == "ray_store"
    gates = {gate["gate"] for gate in ray_store.verdict["gates"]}
    assert {"job", "steps", "parity: train/loss", "check-run: versions"} <= gates
    assert hosts_of(ray_store.folder) == {"n1", "n2"}
    record = json.loads((ray_store.folder / "job.json").read_text())
    assert len(record["commit"]) == 40
    assert (ray_store.folder / "code" / "rlconform" / "__init__.py").is_file()
    assert "ray" in record["versions"]
    assert verify_job(ray_store.folder).findings == []


@pytest.mark.slurm_ci
def test_the_rest_of_a_chain_runs_nothing_once_the_run_is_complete(legacy: Any) -> None:
    logs = [path for path in (legacy.folder / "logs").iterdir() if path.is_dir()]
    first, second = sorted(logs, key=lambda path: int(path.name))
    assert (first / "end").read_text().split() == ["driver", "0"]
    assert (second / "end").read_text().split() == ["complete", "0"]
    assert "nothing to do" in (second / "job.log").read_text()
    assert legacy.verdict["slurm"]["job"] == second.name


@pytest.mark.slurm_ci
def test_a_complete_run_says_so_and_runs_nothing(
    launch: Launch, ray_store: Any, legacy: Any
) -> None:
    before = (ray_store.folder / "run" / "metrics.jsonl").read_bytes()
    again = launch(
        f"{FSDP2}-ray_store-tiny", "--baseline", str(legacy.folder), SPREAD, name="ray_store"
    )
    assert again.ended() == 0
    assert "the run is complete: nothing was submitted" in again.output
    assert (ray_store.folder / "run" / "metrics.jsonl").read_bytes() == before


@pytest.mark.usefixtures("ray_store")
def test_a_folder_keeps_its_recipe(launch: Launch) -> None:
    other = launch(f"{FSDP2}-ray_store-tiny", "grpo.seed=7", name="ray_store")
    assert other.ended() == 2
    assert "with other options: name another --out" in other.output


@pytest.mark.parametrize(
    ("plane", "steps_off"), [("tq_simple", 1), ("tq_mooncake", 8), ("ray_store", 1)]
)
def test_an_asynchronous_recipe_passes(launch: Launch, plane: str, steps_off: int) -> None:
    recipe = f"{FSDP2}-async-{steps_off}off-{plane}-tiny"
    job = launch(recipe, SPREAD, name=f"async-{plane}")
    assert job.ended() == 0, job.output
    assert job.verdict["passed"]
    assert hosts_of(job.folder) == {"n1", "n2"}


def test_a_recipe_on_megatron_trains_through_a_plane_as_in_memory(launch: Launch) -> None:
    """Each node has a rank of its model and a rollout worker."""
    legacy = launch(f"{SEQPACK}-tiny", SPREAD, name="megatron", environment=CPU_SITE)
    assert legacy.ended() == 0, legacy.output
    baseline = ("--baseline", str(legacy.folder))
    job = launch(
        f"{SEQPACK}-ray_store-tiny",
        SPREAD,
        *baseline,
        name="megatron-ray_store",
        environment=CPU_SITE,
    )
    assert job.ended() == 0, job.output
    gates = {gate["gate"] for gate in job.verdict["gates"]}
    assert {"parity: train/loss", "parity: train/grad_norm", "check-run: versions"} <= gates
    assert hosts_of(job.folder) == {"n1", "n2"}


def test_a_run_that_sigusr1_stops_is_queued_again_and_resumes(
    launch: Launch, cluster: Any, until: Callable[..., None]
) -> None:
    job = launch(
        f"{FSDP2}-ray_store-tiny", "--steps", "12", "checkpointing.save_period=100",
        "gates.parity=null", name="requeued",
    )  # fmt: skip
    until("a step", lambda: job.steps() >= 1, 400)
    cluster.slurm("scancel", "--batch", "--signal=USR1", job.job())
    assert job.ended() == 0, job.output
    assert job.verdict["passed"]
    assert job.verdict["slurm"]["restarts"] == 1
    logs = job.folder / "logs"
    assert (logs / job.job() / "end").read_text().split() == ["stopped", "75"]
    assert (logs / f"{job.job()}-1" / "end").read_text().split() == ["driver", "0"]
    starts = [
        record["first_step"]
        for line in (job.folder / "run" / "metrics.jsonl").read_text().splitlines()
        if (record := json.loads(line))["record"] == "start"
    ]
    assert starts[0] == 1
    assert starts[1] > 1
    assert sorted(read_metrics(job.folder / "run" / "metrics.jsonl").steps) == list(range(1, 13))
