"""The report as JSON, with the records of each proof as they are in the log."""

from __future__ import annotations

from typing import Any

import msgspec

import rlconform
from rlconform.check_run.anomaly import RunAnomaly
from rlconform.check_run.judge import RunReport
from rlconform.check_run.report.words import verdict_in_words
from rlconform.check_run.verdict import RuleVerdict

#: Version of the document.
FORMAT = 1


def report_document(report: RunReport) -> dict[str, Any]:
    """Return the report as plain data."""
    return {
        "format": FORMAT,
        "rlconform": rlconform.__version__,
        "run": report.run,
        "verdict": verdict_in_words(report),
        "ended": report.ended,
        "records": report.records,
        "rules": [_rule(verdict) for verdict in report.verdicts],
        "groups": dict(report.overview.fates),
        "open_groups": len(report.overview.ledger.groups),
        "staleness": {
            name: {str(lag): count for lag, count in sorted(counts.items())}
            for name, counts in report.lags.items()
        },
        "idle_s": {
            f"{who}/{cause}": round(seconds, 6) for (who, cause), seconds in report.idle_s.items()
        },
        "files": [
            {
                "path": str(info.path),
                "records": info.records,
                "source": msgspec.to_builtins(info.source),
                "closed": info.closed,
            }
            for info in report.files
        ],
        "log_defects": [
            {
                "kind": hole.kind.value,
                "path": str(hole.path),
                "line": hole.line,
                "what": hole.message,
            }
            for hole in report.holes
        ],
    }


def _rule(verdict: RuleVerdict) -> dict[str, Any]:
    proven = len(verdict.anomalies) - verdict.suspected
    return {
        "rule": verdict.rule,
        "title": verdict.title,
        "outcome": verdict.outcome.value,
        "missing": list(verdict.missing),
        "reason": verdict.reason,
        "count": verdict.count,
        "anomalies": [
            _anomaly(anomaly, number < proven) for number, anomaly in enumerate(verdict.anomalies)
        ],
    }


def _anomaly(anomaly: RunAnomaly, proven: bool) -> dict[str, Any]:
    return {
        "sentence": anomaly.sentence,
        "impact": anomaly.impact,
        "proven": proven,
        "groups": list(anomaly.group_ids),
        "proof": [
            msgspec.to_builtins(one)
            if isinstance(one, msgspec.Struct)
            else {"source": msgspec.to_builtins(one.source), "seq": one.seq}
            for one in anomaly.proof
        ],
    }
