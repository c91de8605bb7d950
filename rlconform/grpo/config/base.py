"""``ConfigModel``: the base class of all sections of the configuration."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class ConfigModel(BaseModel):
    """A frozen section; unknown keys, quoted numbers, NaN and infinity raise an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)
