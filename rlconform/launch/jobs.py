"""The sections ``job:`` and ``gates:`` of a recipe: its nodes and time, and what it must reach."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import (
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    model_validator,
)

from rlconform.contract import ConfigError
from rlconform.grpo.config.base import ConfigModel
from rlconform.grpo.metrics.expressions import parse


class JobConfig(ConfigModel):
    """Nodes and time of a recipe's job."""

    nodes: PositiveInt
    gpus_per_node: NonNegativeInt  # 0 for a tiny twin, which runs on CPUs
    #: CPUs that Ray gives out on each node; null for those of the node.
    cpus_per_node: PositiveInt | None = None
    #: Bytes of Ray's object store on each node; null for Ray's default.
    object_store_bytes: PositiveInt | None = None
    #: Steps that a run makes within ``minutes_per_run``. A recipe of more steps takes several runs,
    #: each of which goes on from the checkpoint of the one before.
    steps_per_run: PositiveInt
    minutes_per_run: PositiveInt
    #: Seconds before the time limit at which the run is told to write a checkpoint and end.
    stop_ahead_s: PositiveInt = 300
    #: Seconds in which all nodes have joined Ray, after which the job fails and names the others.
    bring_up_s: PositiveInt = 600

    def runs(self, steps: int) -> int:
        """Return the runs that ``steps`` steps take."""
        return -(-steps // self.steps_per_run)

    def gpu_hours(self, steps: int) -> float:
        """Return the GPU hours that all runs take at most."""
        hours = self.runs(steps) * self.minutes_per_run / 60
        return hours * self.nodes * self.gpus_per_node


class ParityGate(ConfigModel):
    """The first steps have the legacy twin's metrics."""

    steps: PositiveInt = 3
    metrics: Annotated[list[str], Field(min_length=1)]
    rel_tol: NonNegativeFloat = 0.0


class ThroughputGate(ConfigModel):
    """A step takes at most ``max_ratio`` times as long as the legacy twin's, by the median."""

    metric: str = "time/step"
    max_ratio: PositiveFloat
    #: Steps at the start that are left out: they load kernels and caches.
    skip_steps: NonNegativeInt = 2


class GatesConfig(ConfigModel):
    """What a run must reach, beside its planned last step; see ``launch.judge``."""

    #: Expressions over the metrics, see ``rlconform check-metrics``.
    metrics: Annotated[list[str], Field(min_length=1)]
    #: Whether ``rlconform check-run`` judges the events of the run.
    check_run: bool = True
    parity: ParityGate | None = None
    throughput: ThroughputGate | None = None
    #: Whether ``rlconform check-r3`` judges the trace of router replay.
    r3_trace: bool = False

    @property
    def needs_baseline(self) -> bool:
        """Whether a gate compares with the legacy twin's run."""
        return self.parity is not None or self.throughput is not None

    @model_validator(mode="after")
    def _check_expressions(self) -> Self:
        for expression in self.metrics:
            try:
                parse(expression)
            except ConfigError as error:
                raise ValueError(str(error)) from error
        return self
