"""Judges how a job ended, from Slurm's status and the job's script's last words; pure functions.

Each bad ending has a sentence of its own, which names the node or the file to look at.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rlconform._files import read_text
from rlconform.launch.gate_verdict import GateVerdict, failed, passed
from rlconform.launch.slurm import JobStatus

GATE = "job"
#: Bytes of the line; it names the nodes of a job.
LONGEST_END = 1 << 16


@dataclass(frozen=True)
class JobEnd:
    """The line that ``ray.sbatch`` writes at its end."""

    cause: str  # driver, node, bring_up, address, cancelled, stopped, complete
    code: int
    nodes: str = ""


def read_end(logs: Path) -> JobEnd | None:
    """Read how a run's script ended; None if it was killed."""
    try:
        text = read_text(logs / "end", "", LONGEST_END)
        cause, code, *nodes = text.split()
        return JobEnd(cause, int(code), " ".join(nodes))
    except ValueError:  # there is none, or it was cut off
        return None


def judge_ending(status: JobStatus, end: JobEnd | None, logs: Path | None) -> GateVerdict:
    """Decide whether the job ended well; ``logs`` is the folder of its last run's logs."""
    where = f"see {logs}" if logs else "it wrote no logs"
    job = f"job {status.job}"
    match status.state:
        case "CANCELLED":
            return failed(GATE, f"{job} was cancelled{_on(status)}; {where}")
        case "TIMEOUT":
            return failed(
                GATE,
                f"{job} reached its time limit before it had written a checkpoint: raise "
                f"job.stop_ahead_s; {where}",
            )
        case "NODE_FAIL":
            return failed(GATE, f"{job} lost a node of {status.nodes} (NODE_FAIL); {where}")
        case "OUT_OF_MEMORY":
            return failed(GATE, f"{job} used more memory than it had asked for; {where}")
        case "PENDING" | "CONFIGURING":
            reason = status.reason or "no reason"
            return failed(GATE, f"{job} never started: Slurm says {reason}")
        case "COMPLETED" | "FAILED":
            return _by_script(job, status, end, where)
        case other:
            return failed(GATE, f"{job} ended as {other} {status.reason}; {where}")


def _by_script(job: str, status: JobStatus, end: JobEnd | None, where: str) -> GateVerdict:
    """Judge a job that ended by itself, by what its script wrote."""
    if end is None:
        return failed(GATE, f"the script of {job} was killed{_on(status)}; {where}")
    match end.cause:
        case "node":
            return failed(GATE, f"node {end.nodes} left {job}: its step ended mid-run; {where}")
        case "bring_up":
            missing = end.nodes or "the head"
            return failed(GATE, f"{job} never had its nodes in Ray; missing: {missing}; {where}")
        case "address":
            return failed(GATE, f"node {end.nodes} of {job} has no address to announce; {where}")
        case "cancelled":
            return failed(GATE, f"{job} was cancelled; {where}")
        case "stopped":
            return failed(GATE, f"{job} stopped at a checkpoint, and no run followed it; {where}")
        case "complete":
            return passed(GATE, f"{job} ran nothing: the run was complete")
        case "driver" if end.code == 0 and status.state == "COMPLETED":
            return passed(GATE, f"{job} ended with 0 after {status.restarts} restarts")
    lost = f", and the step of node {end.nodes} with it" if end.nodes else ""
    return failed(GATE, f"the driver of {job} ended with {end.code}{lost}; {where}")


def _on(status: JobStatus) -> str:
    return f" on {status.nodes}" if status.nodes else " before it had nodes"
