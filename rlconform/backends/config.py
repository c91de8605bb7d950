"""Validates a configuration's ``data_plane:`` block; every error names the source and the key.

    data_plane:
      enabled: true
      impl: transfer_queue
      backend: simple
      ...

The eight keys are NeMo-RL's; ``ray_store`` takes a ``name`` too. The YAML is the only source of
values: a block without a required key is refused, and no default replaces the key. NeMo-RL's
optional keys and its newer, nested blocks are accepted too, see ``nemo_rl_config``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    ValidationError,
    field_serializer,
)

from rlconform._yaml import read_mapping
from rlconform.backends.nemo_rl_config import BLOCKS, flattened, refuse_controller_address
from rlconform.contract import ConfigError, did_you_mean


class ObservabilityConfig(BaseModel):
    """The ``observability`` block: whether and where a client reports its operations."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    enabled: bool
    #: Called with each operation as a dict; None logs it. Only a program can set it.
    callback: Callable[[dict[str, Any]], object] | None = None
    verify_tensor_hash: Literal[False] = False  # NeMo-RL's check of transferred bytes

    @field_serializer("callback", when_used="json-unless-none")
    def _name_of_callback(self, callback: Callable[[dict[str, Any]], object]) -> str:
        return getattr(callback, "__qualname__", repr(callback))


class DataPlaneConfig(BaseModel):
    """Keys of a ``data_plane`` block; ``parse_data_plane`` returns the subclass of its ``impl``."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    enabled: bool  # whether batches travel through a data plane at all
    impl: str
    backend: str | None = None  # the implementation's storage engine
    storage_capacity: PositiveInt | None = None  # maximum number of rows
    num_storage_units: PositiveInt | None = None  # storage processes
    claim_meta_poll_interval_s: PositiveFloat | None = None  # of a blocking claim that polls
    global_segment_size: NonNegativeInt | None = None  # bytes that a process gives to the store
    local_buffer_size: PositiveInt | None = None  # bytes of a process's transfer buffer
    observability: ObservabilityConfig | None = None


class MemoryConfig(DataPlaneConfig):
    """Keys of the one-process plane, which uses ``storage_capacity`` but no other size."""

    impl: Literal["memory"]
    backend: Literal["memory"] | None = None


class RayStoreConfig(DataPlaneConfig):
    """Keys of the plane with an index in one Ray actor and bytes in Ray's object store.

    ``global_segment_size`` is the size of the object store, if the plane starts Ray.
    """

    impl: Literal["ray_store"]
    backend: Literal["ray"] | None = None
    name: Annotated[str, Field(min_length=1)]  # of the plane, by which clients attach to it
    ack_timeout_ms: PositiveInt | None = None  # of the controller's answer; 30 s by default


class TransferQueueConfig(DataPlaneConfig):
    """Keys of TransferQueue with its own storage (``simple``) or Mooncake's (``mooncake_cpu``)."""

    impl: Literal["transfer_queue"]
    backend: Literal["simple", "mooncake_cpu"]
    storage_capacity: PositiveInt
    num_storage_units: PositiveInt
    claim_meta_poll_interval_s: PositiveFloat
    global_segment_size: NonNegativeInt
    local_buffer_size: PositiveInt
    ack_timeout_ms: PositiveInt | None = None  # of the controller's answer; 20 s by default


Config = TypeVar("Config", bound=DataPlaneConfig)

_MODELS: dict[str, type[DataPlaneConfig]] = {
    "memory": MemoryConfig,
    "ray_store": RayStoreConfig,
    "transfer_queue": TransferQueueConfig,
}
_KEYS = tuple(DataPlaneConfig.model_fields)
#: Keys of NeMo-RL that not every implementation supports.
_NEMO_RL_KEYS = (*BLOCKS, "ack_timeout_ms")


def load_data_plane(path: str | Path) -> DataPlaneConfig:
    """Read a YAML file with a ``data_plane`` block, or its keys alone; resolve interpolations.

    ``ConfigError`` if the file can't be read, isn't YAML, or holds a block that can't be used.
    """
    return parse_data_plane(read_mapping(Path(path)), str(path))


def parse_data_plane(
    cfg: Mapping[str, Any], source: str = "the data_plane block"
) -> DataPlaneConfig:
    """Validate a ``data_plane`` block, or the block in a whole configuration, OmegaConf or not.

    ``source`` names it in errors. ``ConfigError`` if a key is missing, unknown or has a bad value.
    """
    block = _block(cfg, source)
    impl = block.get("impl")
    model = _MODELS.get(impl) if isinstance(impl, str) else None
    if model is TransferQueueConfig:
        block = flattened(block, source)
    refuse_controller_address(block.pop("controller_address", None), source)
    keys = (*_KEYS, *_NEMO_RL_KEYS) if model is None else tuple(model.model_fields)
    for key in block:
        if key not in keys and key in _NEMO_RL_KEYS:
            raise ConfigError(f"{source}: {key} is not supported by impl {impl!r}: leave it out")
        if key not in keys:
            raise ConfigError(f"{source}: {key!r} is no key of data_plane{did_you_mean(key, keys)}")
    _require(block, ["enabled", "impl"], source)
    if model is None:
        known = " or ".join(_MODELS)
        raise ConfigError(f"{source}: impl is {impl!r}, not {known}{did_you_mean(impl, _MODELS)}")
    _require(block, (k for k, field in model.model_fields.items() if field.is_required()), source)
    try:
        return model.model_validate(block)
    except ValidationError as invalid:
        wrong = invalid.errors()[0]
        reason = wrong["msg"][:1].lower() + wrong["msg"][1:]
        key = ".".join(map(str, wrong["loc"]))
        raise ConfigError(f"{source}: {key} is {wrong['input']!r}: {reason}") from None


def config_of(model: type[Config], cfg: DataPlaneConfig | Mapping[str, Any]) -> Config:
    """Return the block as the ``model`` of one ``impl``; ``ConfigError`` for another ``impl``."""
    config = cfg if isinstance(cfg, DataPlaneConfig) else parse_data_plane(cfg)
    if not isinstance(config, model):
        expected = next(impl for impl, each in _MODELS.items() if each is model)
        raise ConfigError(f"data_plane.impl is {config.impl!r}: expected {expected!r}")
    return config


def _block(cfg: Any, source: str) -> dict[str, Any]:
    """Return the block as a plain dict; the rest of a whole configuration is not resolved."""
    if not isinstance(cfg, Mapping):
        raise ConfigError(f"{source}: not a mapping of keys to values")
    try:
        block = cfg.get("data_plane", cfg)
        if OmegaConf.is_config(block):
            block = OmegaConf.to_container(block, resolve=True, throw_on_missing=True)
    except OmegaConfBaseException as error:
        first_line = str(error).partition("\n")[0]
        raise ConfigError(f"{source}: {error.full_key}: {first_line}") from error
    if not isinstance(block, Mapping):
        raise ConfigError(f"{source}: data_plane is {block!r}, not a mapping of keys to values")
    if block.keys().isdisjoint(_KEYS):
        raise ConfigError(
            f"{source}: expected a data_plane block; got {', '.join(map(str, block)) or 'no key'}"
        )
    return dict(block)


def _require(block: Mapping[str, Any], keys: Iterable[str], source: str) -> None:
    if missing := [key for key in keys if key not in block]:
        raise ConfigError(f"{source}: data_plane lacks {', '.join(missing)}")
