"""``CheckInFlight``: the check that a test process runs now, and its result if it is lost."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from rlconform.certify.isolation import events
from rlconform.certify.options import CertifyOptions
from rlconform.certify.reproduce.plain_script import plain_script
from rlconform.certify.reproduce.render import Call, Origin, render_script
from rlconform.certify.results import CheckResult, Outcome, PlannedCheck


@dataclass
class CheckInFlight:
    """A check that has begun and not ended. Starting processes moves its ``deadline`` back."""

    check: PlannedCheck
    allowed_s: float  # seconds that it may take
    began: float = field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        self.deadline = self.began + self.allowed_s

    def on_event(self, event: events.Event, start_s: float) -> None:
        """Allow up to ``start_s`` seconds more while processes start."""
        match event:
            case events.ProcessesChanging(0.0):
                self.deadline += start_s
            case events.ProcessesChanging(seconds):
                self.deadline += min(seconds, start_s) - start_s

    def lost(
        self,
        outcome: Outcome,
        evidence: str,
        stacks: str,
        made: Sequence[Call],
        options: CertifyOptions,
    ) -> CheckResult:
        """Return the result of the check, whose process died or hung; ``made`` are its calls."""
        check, calls = self.check, [call for call in made if call.source]
        origin = Origin(check.requirement, check.id, options.spec, options.config, options.seed)
        seconds = time.monotonic() - self.began
        # not a check that took too long, whose calls all returned
        by_call = outcome is Outcome.CRASH or "did not return" in evidence
        script = plain = ""
        if options.scripts:
            script = render_script(origin, evidence, calls)
            plain = plain_script(origin, evidence, calls, None, lost=by_call)
        return CheckResult(
            check.id,
            check.requirement,
            outcome,
            capability=check.capability,
            evidence=evidence,
            steps=[call.text for call in calls],
            stacks=stacks,
            seconds=seconds,
            plane_seconds=seconds,
            reproducer=script,
            plain_script=plain,
            at_once=any(call.concurrent for call in calls),
        )
