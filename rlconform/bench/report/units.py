"""Figures as people read them: three digits, a unit, never an exponent."""

from __future__ import annotations

import math

_DIGITS = 3


def plain(value: float) -> str:
    """Three significant digits, thousands set apart: ``0.0123``, ``1.23``, ``12.3``, ``1,230``."""
    if value == 0 or not math.isfinite(value):
        return f"{value:.0f}"
    rounded = _rounded(value)
    after_point = max(0, _DIGITS - 1 - math.floor(math.log10(abs(rounded))))
    return f"{rounded:,.{after_point}f}"


def times(ratio: float) -> str:
    """A ratio, with the sign for times."""
    return f"{plain(ratio)}\N{MULTIPLICATION SIGN}"


def duration(seconds: float) -> str:
    """Seconds in the unit that suits them, microseconds to seconds."""
    for scale, unit in ((1e-6, "\N{MICRO SIGN}s"), (1e-3, "ms")):
        if abs(_rounded(seconds / scale)) < 1000:
            return f"{plain(seconds / scale)} {unit}"
    return f"{plain(seconds)} s"


def size(count: float) -> str:
    """Bytes in decimal units: 1 MB is 10^6 bytes."""
    for scale, unit in ((1, "B"), (1e3, "kB"), (1e6, "MB")):
        if abs(_rounded(count / scale)) < 1000:
            return f"{plain(count / scale)} {unit}"
    return f"{plain(count / 1e9)} GB"


def throughput(bytes_per_second: float) -> str:
    """Bytes per second, decimal units."""
    return f"{size(bytes_per_second)}/s"


def _rounded(value: float) -> float:
    return float(f"{value:.{_DIGITS - 1}e}")
