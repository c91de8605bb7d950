"""``SyncProgress``: whether all engines of a run have the weights that were published last."""

from __future__ import annotations

from rlconform.events.schema import Record


class SyncProgress:
    """Follows publications and applications of weights; ``over_since`` is when a sync was over."""

    def __init__(self) -> None:
        self._published: int | None = None
        self._engines: dict[str, int] = {}
        self.over_since: Record | None = None

    def published(self, version: int) -> None:
        """A sync begins."""
        self._published, self.over_since = version, None

    def applied(self, engine: str, version: int, record: Record) -> None:
        """An engine has new weights; with the last one the sync is over."""
        self._engines[engine] = version
        wanted = self._published
        if wanted is None or self.over_since is not None:
            return
        if all(has >= wanted for has in self._engines.values()):
            self.over_since = record
