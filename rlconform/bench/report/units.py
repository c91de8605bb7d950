"""Formats figures with three significant digits and a unit, never with an exponent."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal

#: Formats a number as text.
Spell = Callable[[float], str]

_SECONDS = {"\N{MICRO SIGN}s": 1e-6, "ms": 1e-3, "s": 1.0}
_BYTES = {"B": 1.0, "kB": 1e3, "MB": 1e6, "GB": 1e9}


def plain(value: float) -> str:
    """Format with three digits and thousands separators: ``0.0123``, ``12.3``, ``1,230``."""
    return f"{_rounded(value):,f}" if value else "0"


def times(ratio: float) -> str:
    """Return a ratio with a multiplication sign."""
    return f"{plain(ratio)}\N{MULTIPLICATION SIGN}"


def duration(seconds: float) -> str:
    """Return a duration in the unit that fits, from microseconds to seconds."""
    return _scaled(seconds, _SECONDS)


def size(count: float) -> str:
    """Return bytes in decimal units: 1 MB is 10^6 bytes."""
    return _scaled(count, _BYTES)


def throughput(bytes_per_second: float) -> str:
    """Return bytes per second in decimal units."""
    return f"{size(bytes_per_second)}/s"


def _scaled(value: float, units: dict[str, float]) -> str:
    fitting = (unit for unit, scale in units.items() if abs(_rounded(value / scale)) < 1000)
    unit = next(fitting, [*units][-1])
    return f"{plain(value / units[unit])} {unit}"


def _rounded(value: float) -> Decimal:
    return Decimal(f"{value:.2e}")
