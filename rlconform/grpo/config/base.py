"""What every section of the configuration is: frozen, strict, and without unknown keys."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class ConfigModel(BaseModel):
    """A section: an unknown key, a number in quotes, NaN and infinity are errors."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)
