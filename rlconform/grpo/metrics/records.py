"""The records of a metrics file, one JSON object per line."""

from __future__ import annotations

import time
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

#: Name of the file within a run's folder.
METRICS_FILE = "metrics.jsonl"


class _Record(BaseModel):
    # JSON has no NaN and infinity: they are written as strings and read as floats.
    model_config = ConfigDict(extra="forbid", frozen=True, ser_json_inf_nan="strings")

    #: Seconds since 1970, when the record was written.
    time: float = Field(default_factory=time.time)


class RunStart(_Record):
    """A run starts or resumes; earlier records from step ``first_step`` on no longer count."""

    record: Literal["start"] = "start"
    format: Literal[1] = 1
    first_step: int
    num_steps: int


class StepMetrics(_Record):
    """Some of a step's metrics, by name."""

    record: Literal["step"] = "step"
    step: int
    metrics: dict[str, float]


class RunEnd(_Record):
    """The run has ended; a run that was killed has no such record."""

    record: Literal["end"] = "end"
    #: ``stopped``: a checkpoint has the run's last step, and the run goes on when it is started
    #: again.
    status: Literal["finished", "failed", "stopped"]
    last_step: int | None = None  # if the run finished before ``num_steps``


Record = Annotated[RunStart | StepMetrics | RunEnd, Field(discriminator="record")]

#: Reads a line: ``RECORD.validate_json(line)``.
RECORD: TypeAdapter[RunStart | StepMetrics | RunEnd] = TypeAdapter(Record)
