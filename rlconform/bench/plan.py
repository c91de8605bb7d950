"""Loads shapes (which batches) and plans (how many turns) from ``reference_configs/bench``."""

from __future__ import annotations

import re
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from omegaconf import OmegaConf
from pydantic import BaseModel, ConfigDict, Field, PositiveInt, ValidationError, model_validator

from rlconform._resources import resource_dir
from rlconform._yaml import read_mapping
from rlconform.contract import ConfigError

#: The order in which shapes are measured; others follow by name.
ORDER = ("tiny", "llama8b", "qwen30b-r3", "vlm", "many-small")

#: ``int64 (N,)`` and ``uint8 (N, tokens, 48, 8)``.
_COLUMN = re.compile(r"(?P<dtype>\w+) \(N,(?: (?P<ragged>[a-z]+)(?:,|(?=\))))?(?P<sizes>[ \d,]*)\)")

Loaded = TypeVar("Loaded", bound=BaseModel)


class _PlanPart(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class ColumnShape(NamedTuple):
    """The shape of one field: ``(N, *sizes)``, or ``(N, j, *sizes)`` with a ragged dimension."""

    dtype: str
    ragged: str
    sizes: tuple[int, ...]

    def __str__(self) -> str:
        """Return the column as documents show it: ``int64 (N,)``, ``uint8 (N, j, 48, 8)``."""
        sizes = ["N", *("j" for _ in self.ragged[:1]), *map(str, self.sizes)]
        return f"{self.dtype} ({', '.join(sizes)}{',' if len(sizes) == 1 else ''})"


class Quick(_PlanPart):
    """The values that replace a shape's values under ``--quick``."""

    repetitions: PositiveInt
    rows: PositiveInt | None = None


class BatchShape(_PlanPart):
    """A batch to put, get, claim and clear, and how many turns of each target count.

    ``ragged`` maps a ragged dimension to the fewest and most elements of a row; ``fields`` maps a
    field to its dtype and shape.
    """

    name: str
    title: str
    rows: PositiveInt
    ragged: dict[str, tuple[PositiveInt, PositiveInt]] = Field(default_factory=dict)
    fields: dict[str, str] = Field(min_length=1)
    repetitions: PositiveInt
    quick: Quick

    @model_validator(mode="after")
    def _check_fields(self) -> BatchShape:
        for name, column in self.columns.items():
            if column.ragged and column.ragged not in self.ragged:
                raise ValueError(f"fields.{name}: ragged has no {column.ragged!r}")
        for name, (fewest, most) in self.ragged.items():
            if fewest > most:
                raise ValueError(f"ragged.{name}: expected fewest first; got {fewest} and {most}")
        return self

    @cached_property
    def columns(self) -> dict[str, ColumnShape]:
        """The columns, parsed from ``fields``."""
        return {name: _column(name, text) for name, text in self.fields.items()}


def _column(name: str, text: str) -> ColumnShape:
    found = _COLUMN.fullmatch(text)
    if found is None:
        raise ValueError(f"fields.{name}: expected a text like 'int64 (N, tokens)'; got {text!r}")
    sizes = tuple(int(size) for size in found["sizes"].replace(",", " ").split())
    return ColumnShape(found["dtype"], found["ragged"] or "", sizes)


class ClaimRatePlan(_PlanPart):
    """How ``consumers`` drain ``rows`` ready rows, in claims of ``batch`` rows."""

    rows: PositiveInt
    batch: PositiveInt
    consumers: list[PositiveInt]
    repetitions: PositiveInt


class GrowthPlan(_PlanPart):
    """How many rows (``batch``) to operate on, in partitions of ``rows`` ready rows."""

    rows: list[PositiveInt]
    batch: PositiveInt
    repetitions: PositiveInt


class WakePlan(_PlanPart):
    """How often to claim, blocking, one row that is put later."""

    repetitions: PositiveInt


class Plan(_PlanPart):
    """How much a run measures; ``reference_configs/bench/plans`` explains each value."""

    warmups: int = Field(ge=2)
    call_seconds: float = Field(gt=0)
    seconds: float = Field(gt=0)
    enough: PositiveInt
    claim_rate: ClaimRatePlan
    growth: GrowthPlan
    wake: WakePlan


def shape_names() -> list[str]:
    """Return the names of all shapes, in the order in which they are measured."""
    found = {path.stem for path in _folder().glob("*.yaml")}
    return [name for name in ORDER if name in found] + sorted(found - set(ORDER))


def load_shape(name: str, quick: bool = False) -> BatchShape:
    """Load the shape ``name``; raise ``ConfigError`` if there is none or its file is invalid."""
    if name not in shape_names():
        raise ConfigError(f"no shape {name!r}; there are {', '.join(shape_names())}")
    shape = _load(_folder() / f"{name}.yaml", BatchShape, name=name)
    if not quick:
        return shape
    changes = {"repetitions": shape.quick.repetitions, "rows": shape.quick.rows or shape.rows}
    return shape.model_copy(update=changes)


def load_plan(quick: bool) -> Plan:
    """Load the plan of a quick or of a full run."""
    return _load(_folder() / "plans" / ("quick.yaml" if quick else "full.yaml"), Plan)


def _folder() -> Path:
    return resource_dir("reference_configs") / "bench"


def _load(path: Path, model: type[Loaded], **more: str) -> Loaded:
    loaded: Any = OmegaConf.to_container(read_mapping(path), resolve=True)
    try:
        return model.model_validate(loaded | more)
    except ValidationError as error:
        raise ConfigError(f"{path}: {error}") from error
