"""``judge_job``: the verdict of a launched recipe, from its folder and Slurm's last word.

    job.json: gates ─────────────┐
    Slurm's status, logs/*/end ──┤
    run/metrics.jsonl ───────────┼─▶ a GateVerdict per gate ──▶ verdict.json, junit.xml, exit code
    run/events, run/r3 ──────────┤
    baseline/run/metrics.jsonl ──┘  of the legacy twin

It passes if every gate does. A gate that the recipe names and that could not run fails it.
"""

from __future__ import annotations

import json
import re
from dataclasses import replace

from rlconform.grpo.metrics.reader import MetricLog
from rlconform.launch.certificate import certificate_of, status_before
from rlconform.launch.endings import judge_ending, read_end
from rlconform.launch.gate_verdict import GateVerdict
from rlconform.launch.gates import (
    events_gate,
    metric_gates,
    parity_gates,
    r3_gate,
    read_log,
    steps_gate,
    throughput_gate,
)
from rlconform.launch.job_folder import JobFolder, JobRecord
from rlconform.launch.job_verdict import JUNIT, JobVerdict, junit_bytes
from rlconform.launch.names import parse_name
from rlconform.launch.slurm import JobStatus


def judge_job(folder: JobFolder, status: JobStatus | None) -> JobVerdict:
    """Judge a job by its gates; without ``status`` the folder alone is judged.

    The gates that compare with the legacy twin read the copy of its metrics in the folder.
    """
    record = folder.record()
    gates = record.gates
    log = read_log(folder.metrics)
    verdicts = []
    if status is not None:
        runs = folder.runs
        logs = runs[-1] if runs else None
        verdicts.append(judge_ending(status, read_end(logs) if logs else None, logs))
    verdicts.append(steps_gate(log, record.steps))
    verdicts += metric_gates(log, gates.metrics)
    if gates.check_run:
        verdicts += events_gate(folder.events)
    if gates.needs_baseline:
        legacy = _legacy_log(record, folder.baseline)
        if gates.parity is not None:
            verdicts += parity_gates(log, legacy, gates.parity)
        if gates.throughput is not None:
            verdicts.append(throughput_gate(log, legacy, gates.throughput))
    if gates.r3_trace:
        verdicts.append(r3_gate(folder.r3_trace))
    return JobVerdict(record, status, tuple(_relative(verdict, folder) for verdict in verdicts))


def last_status(folder: JobFolder) -> JobStatus | None:
    """Return Slurm's last word on a job that was judged before; None once a later job has run."""
    status = status_before(folder.path)
    if status is None or not folder.runs:
        return status
    last = folder.runs[-1].name.partition("-")[0]
    is_number = re.fullmatch(r"[0-9]{1,18}", status.job) is not None
    return status if is_number and int(last) <= int(status.job) else None


def _legacy_log(record: JobRecord, baseline: JobFolder) -> MetricLog | str:
    legacy = str(parse_name(record.recipe).legacy)
    if not baseline.path.exists():
        return f"no run of {legacy} was named: launch it, and give its folder as --baseline"
    own = baseline.record().recipe
    if own != legacy:
        return f"expected --baseline to hold a run of {legacy}; got one of {own}"
    return read_log(baseline.metrics)


def _relative(verdict: GateVerdict, folder: JobFolder) -> GateVerdict:
    """Name files relative to the job's folder: a copy of it has the same verdict."""
    return replace(verdict, message=verdict.message.replace(f"{folder.path}/", ""))


def write_verdict(verdict: JobVerdict, folder: JobFolder) -> None:
    """Write ``verdict.json``, the certificate of the run, and ``junit.xml``."""
    text = json.dumps(certificate_of(verdict, folder.path), indent=2)
    (folder.path / "verdict.json").write_text(text + "\n", "utf-8")
    (folder.path / JUNIT).write_bytes(junit_bytes(verdict))
