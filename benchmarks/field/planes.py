"""The planes of the field, read from ``planes.toml``."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from rlconform.contract import Level

PLANES = Path(__file__).with_name("planes.toml")


class FieldPlane(BaseModel):
    """A plane: what is certified, how, and what it needs; the file explains the keys."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = Field(pattern=r"^[\w.]+$")
    about: str
    target: str = ""
    level: Level = "unit"
    jobs: int | None = Field(None, ge=1)
    packages: tuple[str, ...] = ()
    checkout: Literal["", "nemo-rl"] = ""
    not_run: str = ""

    @model_validator(mode="after")
    def _has_a_target_or_a_reason(self) -> FieldPlane:
        if bool(self.target) == bool(self.not_run):
            raise ValueError(f"{self.name}: expected either target or not_run")
        return self


def load_planes(path: Path = PLANES) -> list[FieldPlane]:
    """Return all planes, in the order of the matrix's columns."""
    tables = tomllib.loads(path.read_text("utf-8"))["plane"]
    return [FieldPlane.model_validate(table) for table in tables]


def chosen(planes: Sequence[FieldPlane], names: Sequence[str]) -> list[FieldPlane]:
    """Return the named planes, all if none is named; ``ValueError`` for an unknown name."""
    known = [plane.name for plane in planes]
    if unknown := sorted(set(names) - set(known)):
        raise ValueError(f"expected one of {', '.join(known)}; got {', '.join(unknown)}")
    return [plane for plane in planes if not names or plane.name in names]
