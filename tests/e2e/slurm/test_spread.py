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

pytestmark = [pytest.mark.timeout(600), pytest.mark.slurm_ci]

PORT = 6400
TOKEN = "f" * 64
#: Checks of reads between processes, and races whose histories are ordered by one clock.
READS = "finished_put or claimed_rows_are_read"
Certify = Callable[..., tuple[int, str, dict[str, Any]]]


@pytest.fixture(scope="module")
def ray_address(cluster: Any, until: Callable[..., None]) -> Iterator[str]:
    """A Ray of two hosts, with a token."""
    planes = resource_dir("fixtures") / "planes"
    environment = [
        "env", f"PYTHONPATH={Path.cwd()}:{planes}", "RAY_AUTH_MODE=token",
        f"RAY_AUTH_TOKEN={TOKEN}", "OMP_NUM_THREADS=1",
    ]  # fmt: skip
    head, address = cluster.hosts["n1"], f"10.77.0.11:{PORT}"
    processes = []
    for name, place in (("n1", ["--head", f"--port={PORT}"]), ("n2", [f"--address={address}"])):
        options = [
            "--block", "--disable-usage-stats", "--include-dashboard=false", "--num-cpus=8",
            f"--node-ip-address=10.77.0.{11 if name == 'n1' else 12}",
            "--object-store-memory=200000000",
        ]  # fmt: skip
        if name == "n1":
            options.append(f"--temp-dir={cluster.folder}/ray")
        processes.append(
            cluster.hosts[name].start(
                *environment, sys.executable, "-m", "ray.scripts.scripts", "start", *place,
                *[one for one in options if name == "n1" or "dashboard" not in one],
                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            )
        )  # fmt: skip
    joined = (
        "import ray, sys; ray.init(sys.argv[1], log_to_driver=False);"
        "sys.exit(sum(node['Alive'] for node in ray.nodes()) != 2)"
    )

    def both_joined() -> bool:
        asked = head.start(
            *environment, sys.executable, "-c", joined, address, stderr=subprocess.DEVNULL
        )
        return bool(asked.wait() == 0)

    until("two hosts in Ray", both_joined, 180)
    yield address
    for process in processes:
        process.terminate()
        process.wait()


@pytest.fixture
def certify(cluster: Any, ray_address: str, tmp_path: Path) -> Certify:
    """``certify(target, select)``: on n1; return exit code, output and ``report.json``."""
    planes = resource_dir("fixtures") / "planes"

    def run(target: str, select: str, *options: str) -> tuple[int, str, dict[str, Any]]:
        process = cluster.hosts["n1"].start(
            "env", f"PYTHONPATH={Path.cwd()}:{planes}", f"RAY_AUTH_TOKEN={TOKEN}",
            sys.executable, "-m", "rlconform", "certify", target, "--level", "functional",
            "--spread", "--ray-address", ray_address, "-k", select, "--out", str(tmp_path),
            *options, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
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


def test_a_plane_of_several_hosts_passes_and_the_certificate_says_so(certify: Certify) -> None:
    _, output, report = certify("ray_store", f"{READS} or workload")
    ran = outcomes(report)
    assert {"test_a_finished_put_is_seen_in_every_process"} <= ran.keys()
    assert len(ran) > 10
    assert {name: one for name, one in ran.items() if one != "PASS"} == {}
    assert report["header"]["target"]["hosts"] == ["n1", "n2"]
    assert "with processes on n1, n2" in output


def test_an_address_that_other_hosts_reach_passes(certify: Certify) -> None:
    assert set(outcomes(certify("announcing:ROUTE", READS)[2]).values()) == {"PASS"}


@pytest.mark.parametrize("target", ["LOOPBACK", "LINK_LOCAL"])
def test_an_address_that_only_its_own_host_reaches_is_caught(
    certify: Certify, cluster: Any, target: str
) -> None:
    for number, name in enumerate(("n1", "n2"), 1):
        cluster.hosts[name]._run(
            f"ip link show usb0 >/dev/null 2>&1 || {{ ip link add usb0 type dummy;"
            f" ip address add 169.254.3.{number}/16 dev usb0; ip link set usb0 up; }}"
        )
    code, _, report = certify(f"announcing:{target}", READS)
    assert code == 1
    broken = [check for check in report["checks"] if check["outcome"] == "FAIL"]
    assert {check["requirement"] for check in broken} == {"GET-10", "GET-11"}
    assert all("on n2" in check["evidence"] for check in broken)
