"""``JobVerdict``: the verdicts of all gates of a job; and as ``junit.xml`` for CI."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING
from xml.etree import ElementTree

from rlconform.launch.gate_verdict import GateOutcome, GateVerdict
from rlconform.launch.slurm import JobStatus

if TYPE_CHECKING:  # recipes import torch, which takes seconds
    from rlconform.launch.job_folder import JobRecord

JUNIT = "junit.xml"


@dataclass(frozen=True)
class JobVerdict:
    """The verdicts of all gates of a job."""

    record: JobRecord
    status: JobStatus | None
    gates: tuple[GateVerdict, ...]

    @property
    def passed(self) -> bool:
        """Whether every gate passes; a job without any does not."""
        return bool(self.gates) and all(gate.passed for gate in self.gates)


def junit_bytes(verdict: JobVerdict) -> bytes:
    """Return ``junit.xml``."""
    return bytes(ElementTree.tostring(junit(verdict), encoding="utf-8", xml_declaration=True))


def junit(verdict: JobVerdict) -> ElementTree.Element:
    """Return a ``testsuite`` with a case per gate; one that never ran is an error."""
    counts: Sequence[tuple[str, GateOutcome, str]] = (
        ("failures", GateOutcome.FAIL, "failure"),
        ("errors", GateOutcome.NOT_RUN, "error"),
    )
    suite = ElementTree.Element("testsuite", name=f"rlconform launch {verdict.record.recipe}")
    suite.set("tests", str(len(verdict.gates)))
    for word, outcome, _ in counts:
        suite.set(word, str(sum(gate.outcome is outcome for gate in verdict.gates)))
    for gate in verdict.gates:
        case = ElementTree.SubElement(
            suite, "testcase", classname=verdict.record.recipe, name=gate.gate
        )
        for _, outcome, tag in counts:
            if gate.outcome is outcome:
                ElementTree.SubElement(case, tag, message=gate.message)
    return suite
