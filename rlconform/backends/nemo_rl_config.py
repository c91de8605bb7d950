"""Converts NeMo-RL's newer, nested ``data_plane`` block to a flat one.

    backend: simple                       backend: simple
    simple:                       ──▶     storage_capacity: 1000000
      num_storage_units: 2                num_storage_units: 2
    mooncake_cpu: {...}                   ...

Newer blocks have a nested block for each engine; only the one that ``backend`` names is read. Sizes
that it lacks get NeMo-RL's published defaults; a flat block has no defaults. A key of a feature
that these planes lack is refused: a run that ignores it would not match its configuration.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlconform.contract import ConfigError, did_you_mean

#: Engines that have a nested block.
BLOCKS = ("simple", "mooncake_cpu")

#: NeMo-RL's published defaults, as flat keys. The simple engine ignores the last two, and Mooncake
#: ignores ``num_storage_units``.
_DEFAULTS: dict[str, dict[str, int]] = {
    "simple": {
        "storage_capacity": 1_000_000,
        "global_segment_size": 0,
        "local_buffer_size": 4 * 2**30,
    },
    "mooncake_cpu": {
        "storage_capacity": 1_000_000,
        "num_storage_units": 1,
        "global_segment_size": 64 * 2**30,
        "local_buffer_size": 4 * 2**30,
    },
}
_SIZES: dict[str, tuple[str, ...]] = {
    "simple": ("storage_capacity", "num_storage_units"),
    "mooncake_cpu": ("global_segment_size", "local_buffer_size"),
}


#: Other keys of the nested blocks, and why they must be off; None for those without an effect.
_UNSUPPORTED: dict[str, dict[str, str | None]] = {
    "simple": {
        "storage_unit_placement": "Ray places the storage units",
    },
    "mooncake_cpu": {
        "reuse_registered_buffers": "rows travel over TCP, which registers no buffers",
        "staging_buffer_size": None,  # of the buffers that are not reused
        "use_gdr": "rows are kept in CPU memory",
        "gdr_staging_buffer_mb": None,  # of use_gdr
        "checkpoint": (
            "save_checkpoint writes the rows of every engine, and Mooncake itself none to a disk"
        ),
        "storage_unit_segment_size": "the processes that open the plane as owner provide it",
        "num_storage_units": None,  # of storage_unit_segment_size
        "storage_unit_placement": None,  # of storage_unit_segment_size
    },
}


def flattened(block: Mapping[str, Any], source: str) -> dict[str, Any]:
    """Replace the nested blocks by the flat keys of the engine that ``backend`` names.

    A block without nested blocks keeps its keys. ``ConfigError`` if the engine's block is no
    mapping, lacks a key, has an unknown or unsupported key, or contradicts a flat key.
    """
    flat = {key: value for key, value in block.items() if key not in BLOCKS}
    engine = block.get("backend")
    if engine not in BLOCKS or all(block.get(name) is None for name in BLOCKS):
        return flat
    nested = {} if block.get(engine) is None else block[engine]
    if not isinstance(nested, Mapping):
        raise ConfigError(f"{source}: {engine} is {nested!r}, not a mapping of keys to values")
    _check_keys(nested, engine, source)
    sizes = {key: nested[key] for key in _SIZES[engine] if key in nested}
    for key, value in sizes.items():
        if flat.get(key, value) != value:
            raise ConfigError(
                f"{source}: {key} is {flat[key]!r}, but {engine}.{key} is {value!r}: leave one out"
            )
    whole = {**_DEFAULTS[engine], **flat, **sizes}
    if "num_storage_units" not in whole:
        raise ConfigError(f"{source}: data_plane lacks simple.num_storage_units")
    return whole


def refuse_controller_address(address: object, source: str) -> None:
    """Raise ``ConfigError`` if NeMo-RL's ``controller_address`` is set: it is not supported."""
    if address is not None:
        raise ConfigError(
            f"{source}: controller_address is {address!r}, which is not supported: a client finds "
            f"the plane by its name in the Ray cluster that its process is connected to"
        )


def _check_keys(nested: Mapping[str, Any], engine: str, source: str) -> None:
    reasons = _UNSUPPORTED[engine]
    known = (*_SIZES[engine], *reasons)
    for key, value in nested.items():
        if key not in known:
            hint = did_you_mean(str(key), known)
            raise ConfigError(f"{source}: {key!r} is no key of data_plane.{engine}{hint}")
        has_switch = key == "checkpoint" and isinstance(value, Mapping)
        on = value.get("enabled") if has_switch else value
        if reasons.get(key) and on not in (None, False, 0):
            raise ConfigError(
                f"{source}: {engine}.{key} is {value!r}, which is not supported: {reasons[key]}"
            )
