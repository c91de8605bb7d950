"""The weight versions of a prompt group, and its staleness.

Version v is the policy after v training steps. A group has four::

    dispatch  the trainer's version when the prompt was dispatched
    start     the engine's version when this attempt was reserved
    end       the highest version of any of its tokens
    consumed  the trainer's version when a step takes the group

The gate, the sweep and the metrics use ``staleness`` alone, so they can't disagree.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple


class MissingVersion(ValueError):
    """A group lacks one of its versions; no version is ever taken for 0."""


class WrongVersionOrder(ValueError):
    """A group's versions can't be: each is at least as high as the one before it."""


@dataclass(frozen=True)
class GroupVersions:
    """The four versions of a group."""

    dispatch: int | None = None
    start: int | None = None
    end: int | None = None
    consumed: int | None = None


class Staleness(NamedTuple):
    """Numbers of versions; ``total`` is the sum of the other two."""

    total: int  # consumed - start: NeMo-RL, prime-rl, torchtitan and trl
    in_flight: int  # end - start: weights changed during the generation
    in_queue: int  # consumed - end: weights changed after it; verl's lower bound


def staleness(versions: GroupVersions) -> Staleness:
    """Compute how many versions older than the trainer's a group's weights are.

    Raises:
        MissingVersion: A version is None.
        WrongVersionOrder: Not dispatch <= start <= end <= consumed.
    """
    dispatch, start, end, consumed = (
        versions.dispatch,
        versions.start,
        versions.end,
        versions.consumed,
    )
    if dispatch is None or start is None or end is None or consumed is None:
        missing = [name for name, value in vars(versions).items() if value is None]
        raise MissingVersion(f"expected four versions; {', '.join(missing)} is missing")
    if not 0 <= dispatch <= start <= end <= consumed:
        raise WrongVersionOrder(f"expected 0 <= dispatch <= start <= end <= consumed; {versions}")
    return Staleness(consumed - start, end - start, consumed - end)


def is_stale(start: int, current: int, bound: int) -> bool:
    """Whether a group that started with these weights is too old to be trained on now."""
    return current - start > bound


def staleness_metrics(groups: Iterable[GroupVersions]) -> dict[str, float]:
    """Count a step's groups by each definition: ``staleness/<definition>/<versions>``.

    ``dispatch`` is consumed - dispatch, verl's drop rule. The maxima are ``.../max``.
    """
    counts: Counter[tuple[str, int]] = Counter()
    for versions in groups:
        lags = staleness(versions)._asdict()  # raises unless all versions are there
        lags["dispatch"] = (versions.consumed or 0) - (versions.dispatch or 0)
        counts.update(lags.items())
    metrics = {f"staleness/{name}/{lag}": float(n) for (name, lag), n in sorted(counts.items())}
    for name in sorted({name for name, _ in counts}):
        metrics[f"staleness/{name}/max"] = float(max(lag for key, lag in counts if key == name))
    return metrics
