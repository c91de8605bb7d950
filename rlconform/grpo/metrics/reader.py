"""A metrics file read back: what a run measured, and whether it came to its end."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from pydantic import ValidationError

from rlconform.contract import ConfigError
from rlconform.grpo.metrics.records import RECORD, RunEnd, RunStart, StepMetrics


@dataclass
class MetricLog:
    """What a metrics file tells of a run, resumed or not.

    Attributes:
        num_steps: The last step that the run means to take.
        steps: Metrics by step and name. What a resumed run did again is there once, as it came
            last.
        ending: How the run closed its file; None if it was killed, or still goes on.
    """

    num_steps: int = 0
    steps: dict[int, dict[str, float]] = field(default_factory=dict)
    ending: Literal["finished", "failed"] | None = None

    @property
    def names(self) -> set[str]:
        """All metrics that were recorded at some step."""
        return {name for metrics in self.steps.values() for name in metrics}

    def series(self, name: str) -> list[float]:
        """The values of a metric in the order of their steps; empty if there is none."""
        return [self.steps[step][name] for step in sorted(self.steps) if name in self.steps[step]]

    def ended_early(self) -> str:
        """Why this is no whole run, in a sentence; empty if it is one."""
        missing = [step for step in range(1, self.num_steps + 1) if step not in self.steps]
        last = max(self.steps, default=0)
        if self.ending == "failed":
            return f"the run failed after step {last} of {self.num_steps}"
        if self.ending is None:
            return f"the run was cut off after step {last} of {self.num_steps}"
        if missing:
            return f"the run has no metrics of step {missing[0]} of {self.num_steps}"
        return ""

    def add(self, record: RunStart | StepMetrics | RunEnd) -> None:
        """Take the next record of the file."""
        match record:
            case RunStart():
                # A run that starts over keeps nothing, not even what was measured before step 1.
                kept = range(record.first_step) if record.first_step > 1 else ()
                self.steps = {step: self.steps[step] for step in kept if step in self.steps}
                self.num_steps, self.ending = record.num_steps, None
            case StepMetrics():
                self.steps.setdefault(record.step, {}).update(record.metrics)
            case RunEnd():
                self.ending = record.status


def read_metrics(path: Path) -> MetricLog:
    """Read a metrics file.

    A record that is half written is taken for the end of a run that was killed: the last of the
    file, or one before a resumed run's start.

    Raises:
        ConfigError: The file can't be read, or is no metrics file.
    """
    try:
        lines = path.read_text("utf-8").splitlines()
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: no metrics file: {error}") from error

    log, torn = MetricLog(), 0
    for number, line in enumerate(lines, start=1):
        try:
            record = RECORD.validate_json(line)
        except ValidationError as error:
            if torn or number == 1:
                raise _no_record(path, torn or number) from error
            torn = number
            continue
        if (torn or number == 1) and not isinstance(record, RunStart):
            raise _no_record(path, torn or number)
        log.add(record)
        torn = 0
    if not lines:
        raise ConfigError(f"{path}: an empty file, no metrics")
    return log


def _no_record(path: Path, line: int) -> ConfigError:
    return ConfigError(f"{path}: line {line} is no record of a metrics file")
