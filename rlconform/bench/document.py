"""``BenchDocument``: the result of a bench run, ``bench.json``.

Figures are absolute (seconds, or rows per second); ``bench.report.ratios`` compares them. A
measurement without figures says in ``refused`` why.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from rlconform._files import excerpt

#: Version of this layout; a document of another version does not validate.
SCHEMA: Literal[1] = 1

#: Operations timed on each shape, in the order of a turn.
OPERATIONS = ("put", "get", "get_in_order", "claim", "clear")

#: Operations timed on a few rows of a partition that holds many others.
GROWTH_OPERATIONS = ("claim", "put", "get", "clear")

#: Follows the name of a target that was measured within one process.
MARK = "\N{DAGGER}"


class _DocumentPart(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


#: A time or a rate; of smaller and larger ones no ratio can be computed.
Figure = Annotated[float, Field(ge=-1e15, le=1e15), AfterValidator(lambda x: round(x, 15))]


class Summary(_DocumentPart):
    """A summary of ``n`` timings. The p99 of few timings is close to their maximum."""

    n: int = Field(ge=1)
    median: Figure
    p25: Figure
    p75: Figure
    p99: Figure
    min: Figure
    max: Figure

    @model_validator(mode="after")
    def _is_ordered(self) -> Summary:
        if not self.min <= self.p25 <= self.median <= self.p75 <= self.max:
            raise ValueError("expected min <= p25 <= median <= p75 <= max")
        return self


class Host(_DocumentPart):
    """The machine and its packages. ``load_at_start`` is the one-minute load average."""

    cpu: str
    cores: int
    memory_gib: float
    system: str
    versions: dict[str, str]
    load_at_start: float


class TargetResult(_DocumentPart):
    """A plane that the user asked to measure; its name is empty if it did not open.

    ``processes``: producer and consumers were separate processes. ``status`` is ``failed`` if the
    target did not open or was lost during the run.
    """

    spec: str
    name: str = ""
    vendor: str = ""
    version: str = ""
    processes: bool = False
    status: Literal["measured", "failed"]
    reason: str = ""

    @property
    def in_one_process(self) -> bool:
        """Whether all clients were in one process; False for a target that never opened."""
        return bool(self.name) and not self.processes

    @property
    def label(self) -> str:
        """The target's name in tables and plots, marked if measured in one process."""
        return f"{self.spec} {MARK}" if self.in_one_process else self.spec


class ShapeResult(_DocumentPart):
    """A batch that was put and read, with each field's dtype and shape, as in ``int64 (N, j)``."""

    name: str
    title: str
    rows: int
    tokens: int
    bytes: int
    fields: dict[str, str]


class Memcpy(_DocumentPart):
    """Seconds to copy the shape's bytes into memory touched before, or just allocated."""

    shape: str
    warm: Summary
    fresh: Summary


class TargetRow(_DocumentPart):
    """A measurement of one target; without figures, ``refused`` says why."""

    target: str
    refused: str = ""


class OperationTimes(TargetRow):
    """Seconds of one client call on a whole batch of a shape."""

    shape: str
    operation: str
    rows: int
    bytes: int
    seconds: Summary | None


class ClaimRate(TargetRow):
    """How fast ``consumers`` together drain ``rows`` ready rows."""

    consumers: int
    rows: int
    rows_per_second: Summary | None


class Growth(TargetRow):
    """Seconds of one client call on ``batch`` rows of a partition of ``rows_in_partition``."""

    operation: str
    rows_in_partition: int
    batch: int
    seconds: Summary | None


class Wake(TargetRow):
    """Seconds until a blocked claim of one row returns; negative if the put returns later."""

    from_start: Summary | None = None
    from_return: Summary | None = None


class BenchDocument(_DocumentPart):
    """A whole run; if it was interrupted, ``complete`` is False and ``notes`` say so."""

    schema_: Literal[1] = Field(default=SCHEMA, alias="schema")
    kit: str
    created: str
    seconds: float
    quick: bool
    complete: bool
    notes: list[str]
    host: Host
    targets: list[TargetResult]
    shapes: list[ShapeResult]
    memcpy: list[Memcpy]
    operations: list[OperationTimes]
    claim_rate: list[ClaimRate]
    growth: list[Growth]
    wake: list[Wake]

    @model_validator(mode="after")
    def _names_are_known(self) -> BenchDocument:
        shapes = {shape.name for shape in self.shapes}
        targets = {target.spec for target in self.targets}
        rows: list[TargetRow] = [*self.operations, *self.claim_rate, *self.growth, *self.wake]
        measured = {copy.shape for copy in self.memcpy} | {one.shape for one in self.operations}
        for what, unknown in {
            "shape": measured - shapes,
            "target": {row.target for row in rows} - targets,
        }.items():
            if unknown:
                raise ValueError(f"there is no {what} {excerpt(min(unknown))!r} in its list")
        return self

    def to_json(self) -> str:
        """Return the text of ``bench.json``, which ``BenchDocument.model_validate_json`` reads."""
        return self.model_dump_json(indent=2, by_alias=True) + "\n"
