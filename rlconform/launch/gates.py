"""The gates over what a run wrote: its steps, its metrics and events, and a legacy run's metrics.

A gate whose input does not exist never ran, which is no pass: the run may have ended before it, or
the option that writes the input is off.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from statistics import median

from rlconform._exit_codes import ExitCode
from rlconform.check_run.judge import judge_run
from rlconform.check_run.verdict import RuleOutcome, exit_code
from rlconform.contract import ConfigError
from rlconform.grpo.metrics.expressions import parse
from rlconform.grpo.metrics.gates import evaluate
from rlconform.grpo.metrics.reader import MetricLog, read_metrics
from rlconform.grpo.router_replay.check import check_trace
from rlconform.grpo.router_replay.trace_records import read_trace
from rlconform.launch.gate_verdict import GateVerdict, failed, not_run, passed
from rlconform.launch.jobs import ParityGate, ThroughputGate


def read_log(path: Path) -> MetricLog | str:
    """Read a run's metrics; a text says why there are none."""
    if not path.is_file():
        return f"expected {path}; the run wrote no metrics"
    try:
        return read_metrics(path)
    except ConfigError as error:
        return str(error)


def steps_gate(log: MetricLog | str, planned: int) -> GateVerdict:
    """Judge whether the run is whole and reached its planned last step."""
    gate = "steps"
    if isinstance(log, str):
        return not_run(gate, log)
    last = max(log.steps, default=0)
    match log.ending:
        case None:
            return failed(gate, f"truncated run: it was cut off after step {last} of {planned}")
        case "failed":
            return failed(gate, f"failed run: it ended with an error after step {last}")
        case "stopped":
            return failed(gate, f"stopped run: no run went on from its checkpoint of step {last}")
        case "finished" if last < planned:
            return failed(
                gate,
                f"step not reached: expected step {planned}; the run ended as configured after "
                f"step {last}: see grpo.max_num_epochs and grpo.stop_at_validation_threshold",
            )
    if hole := log.ended_early():
        return failed(gate, f"truncated run: {hole}")
    return passed(gate, f"step {last} of {planned}")


def metric_gates(log: MetricLog | str, expressions: Sequence[str]) -> list[GateVerdict]:
    """Judge the expressions, also of a run that ended early: its values may say why."""
    if isinstance(log, str):
        return [not_run(expression, log) for expression in expressions]
    verdicts = []
    for expression in expressions:
        result = evaluate(log, parse(expression))
        values = ", ".join(f"{text} = {value:g}" for text, value in result.values.items())
        if result.passed:
            verdicts.append(passed(expression, values))
        else:
            reason = result.reason or f"expected {expression}; got {values}"
            verdicts.append(failed(expression, reason))
    return verdicts


def events_gate(folder: Path) -> list[GateVerdict]:
    """Judge the events with every rule of check-run, a verdict per rule that applies."""
    gate = "check-run"
    if not any(folder.glob("*")):
        return [not_run(gate, f"expected events in {folder}; there are none")]
    try:
        report = judge_run([folder])
    except (OSError, ValueError) as error:
        return [not_run(gate, str(error))]
    if exit_code(report.verdicts, allow_indeterminate=False) is ExitCode.NOTHING_RAN:
        return [not_run(gate, f"no rule applies to the events in {folder}")]
    verdicts = []
    for rule in report.verdicts:
        name = f"{gate}: {rule.rule}"
        match rule.outcome:
            case RuleOutcome.PASS:
                verdicts.append(passed(name, rule.title))
            case RuleOutcome.FAIL:
                verdicts.append(failed(name, rule.anomalies[0].sentence))
            case RuleOutcome.INDETERMINATE:
                why = "; ".join(rule.missing)
                verdicts.append(failed(name, f"undecided, the log lacks: {why}"))
    return verdicts


def r3_gate(trace: Path) -> GateVerdict:
    """Judge the trace of router replay, as ``rlconform check-r3`` does."""
    gate = "check-r3"
    if not trace.exists():
        return not_run(gate, f"expected a trace of router replay in {trace}; there is none")
    try:
        verdict = check_trace(read_trace(trace))
    except (ConfigError, OSError) as error:
        return not_run(gate, str(error))
    if verdict.failures:
        more = f" ({len(verdict.failures)} failures in all)" if len(verdict.failures) > 1 else ""
        return failed(gate, verdict.failures[0] + more)
    return passed(gate, f"{verdict.tokens} tokens of {verdict.rows} rows were replayed")


def parity_gates(
    log: MetricLog | str, legacy: MetricLog | str, gate: ParityGate
) -> list[GateVerdict]:
    """Compare the first steps with those of the legacy twin, a verdict per metric."""
    names = [f"parity: {metric}" for metric in gate.metrics]
    if isinstance(log, str) or isinstance(legacy, str):
        why = log if isinstance(log, str) else legacy
        return [not_run(name, str(why)) for name in names]
    return [
        _parity(name, metric, log, legacy, gate)
        for name, metric in zip(names, gate.metrics, strict=True)
    ]


def _parity(
    name: str, metric: str, log: MetricLog, legacy: MetricLog, gate: ParityGate
) -> GateVerdict:
    for step in range(1, gate.steps + 1):
        own, other = (each.steps.get(step, {}).get(metric) for each in (log, legacy))
        if own is None or other is None:
            whose = "this run" if own is None else "the legacy run"
            return not_run(name, f"{whose} has no {metric} of step {step}")
        if not math.isclose(own, other, rel_tol=gate.rel_tol, abs_tol=1e-9):
            return failed(
                name, f"step {step}: expected the legacy run's {other:.7g}; got {own:.7g}"
            )
    return passed(name, f"as the legacy run in steps 1 to {gate.steps}")


def throughput_gate(
    log: MetricLog | str, legacy: MetricLog | str, gate: ThroughputGate
) -> GateVerdict:
    """Compare the median time per step with the legacy twin's."""
    name = f"throughput: {gate.metric}"
    if isinstance(log, str) or isinstance(legacy, str):
        return not_run(name, str(log if isinstance(log, str) else legacy))
    own, other = (each.series(gate.metric)[gate.skip_steps :] for each in (log, legacy))
    if not own or not other:
        whose = "this run" if not own else "the legacy run"
        return not_run(name, f"{whose} has no {gate.metric} after step {gate.skip_steps}")
    ratio = median(own) / median(other)
    if not ratio <= gate.max_ratio:  # NaN fails too
        return failed(
            name, f"expected at most {gate.max_ratio:g} times the legacy run's; got {ratio:.3g}"
        )
    return passed(name, f"{ratio:.3g} times the legacy run's")
