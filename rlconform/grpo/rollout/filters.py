"""Rollout filters: which of the claimed rows are trained on, told from their tags alone.

    claim_meta ──▶ meta ──▶ filter.split ──▶ kept     ──▶ shard_meta_for_dp ──▶ ranks
                                        └──▶ dropped  ──▶ clear_samples

A filter is never given a client: what it drops costs no fetch.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from rlconform.contract import BatchMeta, KVBatchMeta, Tags

#: Tag with the version of the weights that a row was generated under.
WEIGHT_VERSION = "weight_version"


class RolloutFilterError(Exception):
    """Root of the errors by which a filter says that it can't decide."""


class MissingTag(RolloutFilterError, LookupError):
    """A row lacks its tags, or the one that the filter decides by."""


class WrongVersion(RolloutFilterError, ValueError):
    """A version that is no integer, is negative, or lies ahead of the current one."""


class NoCurrentVersion(RolloutFilterError, ValueError):
    """Staleness is asked for before the trainer has a version to count from."""


class Split(NamedTuple):
    """A claim's rows, each in one of two metas, in the order claimed."""

    kept: KVBatchMeta
    dropped: KVBatchMeta


class BaseRolloutFilter(ABC):
    """Decides row by row, by ``keeps``; a claimed meta is all that it sees.

    Example:
        kept, dropped = StalenessFilter(max_staleness=1, current_version=7).split(claimed)
        client.clear_samples(dropped.sample_ids, dropped.partition_id)
    """

    @abstractmethod
    def keeps(self, sample_id: str, tags: Mapping[str, Any]) -> bool:
        """Whether the row ``sample_id`` with these tags is trained on.

        Raises:
            RolloutFilterError: The tags don't tell.
        """

    def keep(self, meta: BatchMeta) -> list[int]:
        """Row numbers of ``meta`` to keep, ascending.

        Raises:
            MissingTag: ``meta`` has a row without tags.
            ValueError: ``meta`` has tags, but not one entry for each row.
            RolloutFilterError: A row's tags don't tell.
        """
        rows = enumerate(_tagged_rows(KVBatchMeta.of(meta)))
        return [row for row, (sample_id, tags) in rows if self.keeps(sample_id, tags)]

    def split(self, meta: BatchMeta) -> Split:
        """The rows to keep, and the others; errors as in ``keep``."""
        rows = self.keep(meta)
        whole = KVBatchMeta.of(meta)
        return Split(whole.subset(rows), whole.drop(rows))


class StalenessFilter(BaseRolloutFilter):
    """Keeps rows generated at most ``max_staleness`` weight versions before the current one.

    It never guesses: a version is a whole number, Python's or numpy's, and anything else raises.

    Args:
        max_staleness: Versions that a row may lie behind, 0 for on-policy only.
        current_version: Version of the trainer's weights now; assign it anew after each update.
        key: The tag that holds a row's version.

    Raises:
        ValueError: ``max_staleness`` is not a non-negative integer.
    """

    def __init__(
        self,
        max_staleness: int,
        current_version: int | None = None,
        *,
        key: str = WEIGHT_VERSION,
    ) -> None:
        bound = _version(max_staleness)
        if bound is None:
            raise ValueError(f"max_staleness must be a non-negative integer, got {max_staleness!r}")
        self.max_staleness = bound
        self.current_version = current_version
        self._key = key

    def keep(self, meta: BatchMeta) -> list[int]:
        """Row numbers of ``meta`` to keep, ascending; errors as in ``keeps`` and the base class.

        The current version is judged before any row: a trainer without one shows at its first
        claim, also where that is empty.
        """
        self._current()
        return super().keep(meta)

    def keeps(self, sample_id: str, tags: Mapping[str, Any]) -> bool:
        """Whether the row is fresh enough.

        Raises:
            MissingTag: No tag ``key``.
            WrongVersion: The tag is None, a bool, a float, any other thing than a non-negative
                integer, or ahead of ``current_version``: then one of the two is wrong.
            NoCurrentVersion: ``current_version`` is None.
        """
        current = self._current()
        if self._key not in tags:
            raise MissingTag(f"{sample_id!r} has no tag {self._key!r}, only {sorted(tags)}")
        version = _version(tags[self._key])
        if version is None:
            raise WrongVersion(
                f"tag {self._key!r} of {sample_id!r} must be a non-negative integer, "
                f"got {tags[self._key]!r}"
            )
        if version > current:
            raise WrongVersion(
                f"{sample_id!r} was generated under version {version}, ahead of the current "
                f"one, {current}"
            )
        return current - version <= self.max_staleness

    def _current(self) -> int:
        if self.current_version is None:
            raise NoCurrentVersion("no current version to judge rows by")
        current = _version(self.current_version)
        if current is None:
            raise WrongVersion(
                f"the current version must be a non-negative integer, got {self.current_version!r}"
            )
        return current


def _version(value: object) -> int | None:
    """``value`` as an int if it is a non-negative integer; bools and floats are none."""
    if isinstance(value, int | np.integer) and not isinstance(value, bool) and value >= 0:
        return int(value)
    return None


def _tagged_rows(meta: KVBatchMeta) -> Iterator[tuple[str, Tags]]:
    """Each row's id with its tags."""
    for row, sample_id in enumerate(meta.sample_ids):
        if meta.tags is None or not isinstance(meta.tags[row], Mapping):
            raise MissingTag(f"{sample_id!r} has no tags")
        yield sample_id, meta.tags[row]
