"""``certify --spread``: processes on two hosts, in namespaces, joined by a Ray that was running.

n1: ray head, rlconform certify and its owner's client; n2: ray, the first actor of each check.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rlconform._resources import resource_dir
from rlconform.launch.sbatch import slurm_file

pytestmark = pytest.mark.timeout(600)

PORT = 6400
#: Of all processes; workers import the planes by name.
ENVIRONMENT = (
    f"PYTHONPATH={Path.cwd()}:{resource_dir('fixtures') / 'planes'}",
    "RAY_AUTH_MODE=token",
    f"RAY_AUTH_TOKEN={'f' * 64}",
)
#: Checks of reads between processes.
READS = "finished_put or claimed_rows_are_read_by"
Certify = Callable[..., tuple[int, str, dict[str, Any]]]


@pytest.fixture(scope="module")
def ray_address(cluster: Any) -> Iterator[str]:
    """A Ray of two hosts, started by the script of a job's nodes, with a token."""
    folder, address = cluster.folder / "spread", f"10.77.0.11:{PORT}"
    folder.mkdir()
    (folder / "setup.sh").write_text("")
    job = {
        "JOB_FOLDER": folder, "LOGS": folder, "JOB_PYTHON": sys.executable, "JOB_PORT": PORT,
        "JOB_CPUS": 8, "JOB_GPUS": 0, "JOB_OBJECT_STORE": 200_000_000, "JOB_BRING_UP_S": 240,
        "RAY_HEAD": address, "SLURM_JOB_ID": "spread", "SLURM_NODEID": 0,
        "RAY_prestart_worker_first_driver": 0,
    }  # fmt: skip
    environment = ["env", *ENVIRONMENT, *(f"{name}={value}" for name, value in job.items())]
    started = []
    for role, name, number in (("head", "n1", 11), ("worker", "n2", 12)):
        words = (str(slurm_file("ray_node.sh")), role, name, f"10.77.0.{number}")
        with (folder / f"{role}-{name}.log").open("w") as log:
            node = cluster.hosts[name].start(
                *environment, "bash", *words, stdout=log, stderr=subprocess.STDOUT
            )
        started.append(node)
    waiting = cluster.hosts["n1"].start(
        *environment, sys.executable, "-m", "rlconform.launch.await_nodes", address, "240",
        str(folder / "missing"), "n1", "n2",
    )  # fmt: skip
    assert waiting.wait() == 0, "\n".join(log.read_text() for log in folder.glob("*.log"))
    yield address
    for node in started:
        cluster.hosts["n1"].end(node)


@pytest.fixture
def certify(cluster: Any, ray_address: str, tmp_path: Path) -> Certify:
    """``certify(target, select)``: on n1; return exit code, output and ``report.json``."""

    def run(target: str, select: str, *options: str) -> tuple[int, str, dict[str, Any]]:
        process = cluster.hosts["n1"].start(
            "env", *ENVIRONMENT, sys.executable, "-m", "rlconform", "certify", target,
            "--level", "functional", "--spread", "--ray-address", ray_address, "-k", select,
            "--out", str(tmp_path), *options, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        output = process.communicate(timeout=400)[0]
        assert (tmp_path / "report.json").exists(), output
        report = json.loads((tmp_path / "report.json").read_text("utf-8"))
        return process.returncode, output, report

    return run


def outcomes(report: dict[str, Any]) -> dict[str, str]:
    """Outcomes of the checks that ran, by name."""
    ran = [check for check in report["checks"] if check["ran"]]
    return {check["id"].partition("::")[2]: check["outcome"] for check in ran}


@pytest.mark.slurm_ci
def test_a_plane_of_several_hosts_passes_and_the_certificate_says_so(certify: Certify) -> None:
    _, output, report = certify("ray_store", READS)
    assert outcomes(report) == {
        "test_a_finished_put_is_seen_in_every_process": "PASS",
        "test_claimed_rows_are_read_by_another_process": "PASS",
    }
    assert report["header"]["target"]["hosts"] == ["n1", "n2"]
    assert "with processes on n1, n2" in output


def test_histories_of_several_hosts_are_ordered_by_one_clock(certify: Certify) -> None:
    ran = outcomes(certify("ray_store", "workload")[2])
    assert len(ran) > 5
    assert {name: one for name, one in ran.items() if one != "PASS"} == {}


@pytest.mark.slurm_ci
def test_the_self_test_kills_the_mutant_that_announces_loopback(
    cluster: Any, ray_address: str, tmp_path: Path
) -> None:
    process = cluster.hosts["n1"].start(
        "env", *ENVIRONMENT, sys.executable, "-m", "rlconform", "self-test",
        "--ray-address", ray_address, "--out", str(tmp_path),
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    output = process.communicate(timeout=300)[0]
    assert process.returncode == 0, output
    (trial,) = json.loads((tmp_path / "self-test.json").read_text("utf-8"))["trials"]
    assert (trial["name"], trial["kind"]) == ("announces_loopback", "killed")
    assert "Connection refused" in trial["broken"]["GET-10"]


def test_an_address_that_other_hosts_reach_passes(certify: Certify) -> None:
    assert set(outcomes(certify("announcing:ROUTE", READS)[2]).values()) == {"PASS"}


@pytest.mark.parametrize("target", ["LOOPBACK", "LINK_LOCAL"])
def test_an_address_that_only_its_own_host_reaches_is_caught(
    certify: Certify, cluster: Any, target: str
) -> None:
    for number, name in enumerate(("n1", "n2"), 1):
        cluster.hosts[name]._run(
            f"ip link show usb0 >/dev/null 2>&1 || {{ ip link add usb0 type bridge;"
            f" ip address add 169.254.3.{number}/16 dev usb0; ip link set usb0 up; }}"
        )
    code, output, report = certify(f"announcing:{target}", "finished_put", "-x")
    assert code == 1, output
    (broken,) = [check for check in report["checks"] if check["outcome"] == "FAIL"]
    assert broken["requirement"] == "GET-10"
    assert "on n2" in broken["evidence"]
