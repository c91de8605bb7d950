"""A Slurm cluster on this machine: a controller and two nodes, each in namespaces of its own.

    pytest ── setpriv, unshare ──▶ ctl: bridge 10.77.0.1, munged, slurmctld, rlconform launch
           ── setpriv, unshare ──▶ n1:  eth0 10.77.0.11, slurmd and the steps that it starts
           ── setpriv, unshare ──▶ n2:  eth0 10.77.0.12, slurmd

Each host has a network, a host name, mounts and processes of its own. The first process of a host
holds its process namespace: when that process is killed, so are all others of the host, and its
network is gone. It is killed when pytest ends, in whatever way. Needs root, slurm-wlm, munge and
iproute2, and touches nothing outside of the namespaces but a temporary folder.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest

from rlconform.grpo.metrics.reader import read_metrics

NEEDED = ("slurmctld", "slurmd", "sbatch", "munged", "mungekey", "ip", "unshare", "setpriv")
ADDRESSES = {"ctl": "10.77.0.1", "n1": "10.77.0.11", "n2": "10.77.0.12"}
NODES = ("n1", "n2")

#: Adopts and reaps the orphans of a host.
_INIT = "while :; do sleep 1000 & wait; done"
_UNSHARE = ("unshare", "--net", "--uts", "--mount", "--pid", "--fork", "--kill-child")

#: Of the processes of a job: Ray starts workers when they are asked for.
_ENVIRONMENT = {"RAY_prestart_worker_first_driver": "0"}

_SLURM_CONF = """\
ClusterName=test
SlurmctldHost=ctl({ctl})
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge/socket,cred_expire=5
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool.%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
MpiDefault=none
ReturnToService=2
SlurmdParameters=config_overrides
# Nodes are up, or down, within seconds.
SlurmdTimeout=15
KillWait=5
SchedulerParameters=sched_interval=2,sched_min_interval=0
NodeName=n1 NodeAddr={n1} CPUs=8
NodeName=n2 NodeAddr={n2} CPUs=8
PartitionName=test Nodes=ALL Default=YES MaxTime=60 State=UP
"""


def wait_until(what: str, holds: Callable[[], object], timeout_s: float = 60) -> None:
    """Poll until something holds; fail with its description if it does not in time."""
    end = time.monotonic() + timeout_s
    while not holds():
        if time.monotonic() > end:
            pytest.fail(f"expected {what} within {timeout_s:g} s")
        time.sleep(0.2)


class EmulatedHost:
    """A host in namespaces of its own."""

    def __init__(self, name: str, hosts: Path, environment: Mapping[str, str]) -> None:
        self.name = name
        self._environment = environment
        command = ("setpriv", "--pdeathsig", "KILL", *_UNSHARE, "--mount-proc", "bash", "-c", _INIT)
        # ``unshare`` prints an error of no consequence when its child is killed.
        self._holder = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        wait_until(f"the namespaces of {name}", self._children)
        self._run(f"hostname {name}; ip link set lo up; mount --make-rprivate /")
        self._run("mount -t tmpfs tmpfs /dev/shm; mount --bind /dev/null /etc/resolv.conf")
        self._run(f"mount --bind {hosts} /etc/hosts")

    @property
    def pid(self) -> int:
        """The process, seen from outside, that holds the namespaces."""
        return self._children()[0].pid

    def command(self, *words: str) -> list[str]:
        """Return a command that runs in the host's namespaces."""
        kinds = ("--net", "--uts", "--mount", "--pid")
        return ["nsenter", "--target", str(self.pid), *kinds, "--", *words]

    def start(self, *words: str, **options: object) -> subprocess.Popen[str]:
        """Start a command in the host."""
        return subprocess.Popen(  # type: ignore[call-overload, no-any-return]
            self.command(*words), env={**os.environ, **self._environment}, text=True, **options
        )

    @staticmethod
    def end(command: subprocess.Popen[str]) -> None:
        """Kill a command that was started in the host, and all that it has started.

        The command's own process is ``nsenter``, which passes no signals on, and ends with what
        runs in the host.
        """
        for process in psutil.Process(command.pid).children(recursive=True):
            process.kill()
        command.wait()

    def kill(self) -> None:
        """Kill every process of the host, as if it had lost its power."""
        for process in self._children():
            process.kill()
        self._holder.wait()

    def _run(self, script: str) -> None:
        subprocess.run(self.command("bash", "-ec", script), check=True)

    def _children(self) -> list[psutil.Process]:
        return psutil.Process(self._holder.pid).children()


class EmulatedCluster:
    """The controller, the nodes, and Slurm on them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._conf = folder / "slurm.conf"
        self.environment = {"SLURM_CONF": str(self._conf)}
        self.hosts: dict[str, EmulatedHost] = {}
        (folder / "munge").mkdir()
        (folder / "state").mkdir()
        self._conf.write_text(_SLURM_CONF.format(folder=folder, **ADDRESSES))
        lines = [f"{address} {name}\n127.0.0.1 {name}-lo" for name, address in ADDRESSES.items()]
        self._hosts_file = folder / "hosts"
        self._hosts_file.write_text("\n".join(["127.0.0.1 localhost", *lines, ""]))

    def start(self) -> None:
        """Start the controller and the nodes, and wait until Slurm could give the nodes out."""
        ctl = self.hosts["ctl"] = EmulatedHost("ctl", self._hosts_file, self.environment)
        ctl._run("ip link add br0 type bridge; ip link set br0 up")
        ctl._run(f"ip address add {ADDRESSES['ctl']}/24 dev br0")
        munge = self.folder / "munge"
        subprocess.run(["mungekey", "-c", "-k", munge / "key"], check=True)
        files = ("key", "socket", "pid", "log", "seed")
        options = [
            f"--{name}-file={munge / name}" if name != "socket" else f"--socket={munge / name}"
            for name in files
        ]
        ctl.start("munged", "--foreground", "--force", *options, stderr=subprocess.DEVNULL)
        wait_until("munged's socket", (munge / "socket").exists)
        ctl.start("slurmctld", "-D", stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for node in NODES:
            self.start_node(node)
        self.await_idle()

    def start_node(self, name: str) -> None:
        """Start a node, or one that was killed again."""
        host = self.hosts[name] = EmulatedHost(name, self._hosts_file, self.environment)
        ctl = ("nsenter", "--target", str(self.hosts["ctl"].pid), "--net", "--", "ip", "link")
        cable = f"to-{name}"
        ends = ("type", "veth", "peer", "name", "eth0", "netns", str(host.pid))
        subprocess.run([*ctl, "add", cable, *ends], check=True)
        subprocess.run([*ctl, "set", cable, "master", "br0", "up"], check=True)
        host._run(f"ip address add {ADDRESSES[name]}/24 dev eth0; ip link set eth0 up")
        host._run(f"ip route add default via {ADDRESSES['ctl']}")
        host.start("slurmd", "-D", "-N", name, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def await_idle(self) -> None:
        """Wait until both nodes are idle."""
        wait_until("two idle nodes", lambda: self.slurm("sinfo", "-hNo", "%T") == "idle\nidle")

    def slurm(self, *words: str) -> str:
        """Run one of Slurm's commands; return what it prints."""
        process = self.hosts["ctl"].start(*words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        return process.communicate(timeout=60)[0].strip()

    def kill_process(self, host: str, name: str) -> bool:
        """Kill the processes of this name on a host; return whether there was one."""
        there = psutil.Process(self.hosts[host].pid).children(recursive=True)
        found = [process for process in there if process.name() == name]
        for process in found:
            process.kill()
        return bool(found)

    def launch(self, *arguments: str) -> subprocess.Popen[str]:
        """Start ``rlconform launch`` on the controller, which is the login node too."""
        return self.hosts["ctl"].start(
            sys.executable,
            "-m",
            "rlconform",
            "launch",
            *arguments,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )

    def close(self) -> None:
        """Kill all hosts."""
        for host in self.hosts.values():
            host.kill()


def _lacking() -> str:
    missing = [name for name in NEEDED if shutil.which(name) is None]
    if missing:
        return f"not run: {', '.join(missing)} not installed; see ci/slurm_packages.sh"
    if os.geteuid() != 0:
        return "not run: namespaces and slurmd need root"
    tried = subprocess.run([*_UNSHARE, "true"], capture_output=True, text=True, check=False)
    return f"not run: {tried.stderr.strip()}" if tried.returncode else ""


@pytest.fixture(scope="session")
def cluster() -> Iterator[EmulatedCluster]:
    """A Slurm cluster with two nodes."""
    if reason := _lacking():
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(reason)
    folder = Path(tempfile.mkdtemp(prefix="slurm-", dir="/tmp"))
    folder.chmod(0o755)
    cluster = EmulatedCluster(folder)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.close()
        shutil.rmtree(folder)


@pytest.fixture(scope="session")
def until() -> Callable[..., None]:
    """``until(what, holds, timeout_s)`` waits for an event."""
    return wait_until


@dataclass
class LaunchedJob:
    """A launched recipe: its folder, and the command that follows it."""

    folder: Path
    process: subprocess.Popen[str]
    output: str = ""

    def ended(self, timeout_s: float = 480) -> int:
        """Wait for the command; return its exit code. ``output`` has what it printed."""
        self.output = self.process.communicate(timeout=timeout_s)[0]
        return self.process.returncode

    @property
    def verdict(self) -> dict[str, Any]:
        """The certificate, which the command writes at its end."""
        written: dict[str, Any] = json.loads((self.folder / "verdict.json").read_text("utf-8"))
        return written

    def not_passed(self) -> dict[str, str]:
        """Return the messages of the gates that do not pass, by gate."""
        gates = self.verdict["gates"]
        return {gate["gate"]: gate["message"] for gate in gates if gate["outcome"] != "pass"}

    def steps(self) -> int:
        """Return the last step whose metrics are written."""
        file = self.folder / "run" / "metrics.jsonl"
        return max(read_metrics(file).steps, default=0) if file.exists() else 0

    def job(self) -> str:
        """Return the number of the job, once it runs."""
        logs = [path.name for path in (self.folder / "logs").glob("*") if path.is_dir()]
        return logs[0].partition("-")[0] if logs else ""


@pytest.fixture(scope="session")
def launch(cluster: EmulatedCluster) -> Callable[..., LaunchedJob]:
    """``launch(recipe, *arguments, name=, site=)``: start the command on the login node.

    ``site`` has lines for the site's file, beside those of a cluster without GPUs and this Python;
    ``environment`` has variables of the job's processes.
    """

    def start(
        recipe: str,
        *arguments: str,
        name: str,
        site: str = "",
        environment: Mapping[str, str] | None = None,
        nodes_idle: bool = True,
    ) -> LaunchedJob:
        if nodes_idle:
            cluster.await_idle()
        file = cluster.folder / f"{name}.yaml"
        variables = json.dumps({**_ENVIRONMENT, **(environment or {})})  # JSON is YAML
        lines = (f"python: {sys.executable}", "gres: false", f"environment: {variables}", site)
        file.write_text("\n".join(lines))
        folder = cluster.folder / "jobs" / name
        options = ("--site", str(file), "--out", str(folder))
        return LaunchedJob(folder, cluster.launch(recipe, *options, *arguments))

    return start
