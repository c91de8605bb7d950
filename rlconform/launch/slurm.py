"""Slurm's commands as functions: submit a script, look at a job, cancel it, follow it to its end.

    follow ── every second ──▶ scontrol show job (sacct, once the controller has forgotten it)
           ◀── JobStatus, whenever it has changed

Slurm has no event for the end of a job that a client could wait for, hence the polling.
"""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from rlconform.contract import ConfigError

#: States in which a job waits, or runs, or will soon do one of these.
_OPEN = {
    "PENDING", "CONFIGURING", "RUNNING", "COMPLETING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED",
    "SUSPENDED", "STOPPED", "SIGNALING", "STAGE_OUT", "RESIZING", "SPECIAL_EXIT",
}  # fmt: skip
_POLL_S = 1.0


@dataclass(frozen=True)
class JobStatus:
    """What Slurm says about a job."""

    job: str
    state: str  # such as PENDING, RUNNING, COMPLETED, FAILED, CANCELLED, TIMEOUT, NODE_FAIL
    reason: str = ""  # why it waits, or why it failed; "" if Slurm gives none
    exit_code: int = 0
    signal: int = 0
    restarts: int = 0
    nodes: str = ""

    @property
    def ended(self) -> bool:
        """Whether the job neither waits nor runs."""
        return self.state not in _OPEN


class JobsNotStarted(Exception):
    """A job got no nodes in time; it was cancelled."""

    def __init__(self, status: JobStatus, waited_s: float) -> None:
        super().__init__(
            f"expected job {status.job} to start within {waited_s:g} s; Slurm says {status.state}, "
            f"{status.reason or 'no reason'}: see sinfo, or raise --start-timeout"
        )
        self.status = status


def submit(script: Path, after: str | None = None) -> str:
    """Submit a script, to begin after the end of the job ``after``; return the job's number.

    ``ConfigError`` with Slurm's own words if it refuses the job.
    """
    options = ["--parsable", *([f"--dependency=afterany:{after}"] if after else [])]
    return _run("sbatch", *options, str(script)).strip().partition(";")[0]


def cancel(job: str) -> None:
    """Cancel a job; one that has ended stays as it is."""
    _run("scancel", job)


def status_of(job: str) -> JobStatus:
    """Return what Slurm knows of a job; ``ConfigError`` if it knows nothing any more."""
    try:
        return parse_status(_run("scontrol", "show", "job", "-o", job))
    except ConfigError as error:
        if "Invalid job id" not in str(error):
            raise
    line = _run("sacct", "-nXP", "-j", job, "-o", "JobID,State,Reason,ExitCode,Restarts,NodeList")
    number, state, reason, code, restarts, nodes = line.splitlines()[0].split("|")
    exit_code, _, signal = code.partition(":")
    word = state.partition(" ")[0]  # CANCELLED by 1000
    return JobStatus(number, word, reason, int(exit_code), int(signal), int(restarts or 0), nodes)


def parse_status(line: str) -> JobStatus:
    """Read the line that ``scontrol show job -o`` prints."""
    found = dict(re.findall(r"(\w+)=(\S*)", line))
    exit_code, _, signal = found.get("ExitCode", "0:0").partition(":")
    reason, nodes = found.get("Reason", ""), found.get("NodeList", "")
    return JobStatus(
        found["JobId"],
        found["JobState"],
        "" if reason in {"None", "(null)"} else reason,
        int(exit_code),
        int(signal or 0),
        int(found.get("Restarts", 0)),
        "" if nodes == "(null)" else nodes,
    )


def follow(jobs: Sequence[str], start_timeout_s: float) -> Iterator[JobStatus]:
    """Yield the status of each job of a chain whenever it changes, until the last has ended.

    Raises:
        JobsNotStarted: A job waited for longer than ``start_timeout_s`` for its first start; it
            and its successors were cancelled.
    """
    for number, job in enumerate(jobs):
        last: JobStatus | None = None
        waited_from = time.monotonic()
        while last is None or not last.ended:
            status = status_of(job)
            if status != last:
                yield status
            last = status
            if status.ended:
                break
            waiting = status.state == "PENDING" and status.restarts == 0
            if waiting and time.monotonic() - waited_from > start_timeout_s:
                for waiter in reversed(jobs[number:]):
                    cancel(waiter)
                raise JobsNotStarted(status, start_timeout_s)
            time.sleep(_POLL_S)


def _run(command: str, *arguments: str) -> str:
    try:
        done = subprocess.run([command, *arguments], capture_output=True, text=True, check=True)
    except FileNotFoundError:
        raise ConfigError(
            f"{command} is not installed here: launch from a login node of the cluster"
        ) from None
    except subprocess.CalledProcessError as error:
        raise ConfigError(
            f"{command}: {'; '.join(error.stderr.split(chr(10))).strip('; ')}"
        ) from error
    return done.stdout
