"""Reads metrics files: a run's metrics, and whether the run is complete."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from pydantic import ValidationError

from rlconform._files import read_text
from rlconform.contract import ConfigError
from rlconform.grpo.metrics.records import RECORD, RunEnd, RunStart, StepMetrics


@dataclass
class MetricLog:
    """The metrics of a whole run, including its steps before a resumption."""

    num_steps: int = 0  # the planned last step, or that of a run that ended by its configuration
    #: Metrics by step and name; steps that a resumed run repeated replace the earlier ones.
    steps: dict[int, dict[str, float]] = field(default_factory=dict)
    #: None if the run was killed or is still running.
    ending: Literal["finished", "failed", "stopped"] | None = None

    @property
    def names(self) -> set[str]:
        """Names of all recorded metrics."""
        return {name for metrics in self.steps.values() for name in metrics}

    def series(self, name: str) -> list[float]:
        """Return a metric's values in the order of steps; empty if it was never recorded."""
        return [self.steps[step][name] for step in sorted(self.steps) if name in self.steps[step]]

    def ended_early(self) -> str:
        """Return the reason why the run is incomplete, or "" if it is complete."""
        steps = range(1, self.num_steps + 1)  # which may be any number: stop at the first
        missing = next((step for step in steps if step not in self.steps), None)
        last = max(self.steps, default=0)
        if self.ending == "failed":
            return f"the run failed after step {last} of {self.num_steps}"
        if self.ending == "stopped":
            return f"the run was stopped at a checkpoint after step {last} of {self.num_steps}"
        if self.ending is None:
            return f"the run was cut off after step {last} of {self.num_steps}"
        if missing is not None:
            return f"the run has no metrics of step {missing} of {self.num_steps}"
        return ""

    def add(self, record: RunStart | StepMetrics | RunEnd) -> None:
        """Add the next record of the file."""
        match record:
            case RunStart():
                # A run that starts again drops everything, including step 0.
                last_kept = record.first_step - 1 if record.first_step > 1 else -1
                self.steps = {n: kept for n, kept in self.steps.items() if n <= last_kept}
                self.num_steps, self.ending = record.num_steps, None
            case StepMetrics():
                self.steps.setdefault(record.step, {}).update(record.metrics)
            case RunEnd():
                self.ending = record.status
                if record.last_step is not None:
                    self.num_steps = record.last_step


def read_metrics(path: Path) -> MetricLog:
    """Read a metrics file.

    A half-written record means that the run was killed. It is ignored if it is the last record of
    the file or the last one before a resumed run.

    Raises:
        ConfigError: The file can't be read, or is not a metrics file.
    """
    lines = read_text(path, "name the metrics.jsonl of a run").splitlines()
    log, torn = MetricLog(), 0
    for number, line in enumerate(lines, start=1):
        try:
            record = RECORD.validate_json(line)
        except ValidationError as error:
            if torn or number == 1:
                raise _not_a_record(path, torn or number) from error
            torn = number
            continue
        if (torn or number == 1) and not isinstance(record, RunStart):
            raise _not_a_record(path, torn or number)
        log.add(record)
        torn = 0
    if not lines:
        raise ConfigError(f"{path}: the file is empty")
    return log


def _not_a_record(path: Path, line: int) -> ConfigError:
    return ConfigError(
        f"{path}: line {line} is not a record of a metrics file; name the metrics.jsonl of a run"
    )
