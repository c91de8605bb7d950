"""``GroupLife`` and ``RowLife``: what the log has said so far of a group that is not closed."""

from __future__ import annotations

from rlconform.events.schema import PromptDispatched, Record


class RowLife:
    """The latest attempt of one row."""

    __slots__ = (
        "attempt",
        "ended",
        "engine",
        "finished",
        "first_version",
        "last_version",
        "reward",
        "stamp",
        "started",
        "token_version",
        "tokens",
        "unrewarded",
    )  # fmt: skip

    def __init__(self, attempt: int) -> None:
        self.attempt = attempt
        self.started: Record | None = None
        self.engine: str | None = None  # the engine that generates it
        self.stamp: int | None = None  # weight_version of its start
        self.first_version: int | None = None  # of its first token
        self.last_version: int | None = None  # of its last token
        self.tokens = 0
        self.token_version: int | None = None  # of its first segment: weights may have changed
        # between the start and the first token
        self.ended: Record | None = None  # its rollout_finished, rollout_failed or rollout_aborted
        self.finished = False
        self.reward: Record | None = None  # its reward_computed or reward_failed
        self.unrewarded = False  # whether its reward failed

    def saw_version(self, version: int) -> None:
        """Widen the range of versions of its tokens."""
        if self.first_version is None or version < self.first_version:
            self.first_version = version
        if self.last_version is None or version > self.last_version:
            self.last_version = version


def records_of(row: RowLife | None) -> tuple[Record, ...]:
    """Return the start and the end of a row, as far as the log has them, for a proof."""
    if row is None:
        return ()
    return tuple(record for record in (row.started, row.ended) if record is not None)


class GroupLife:
    """A group from its dispatch until all its rows are trained on or it is dropped."""

    __slots__ = (
        "attempt", "cleared", "committed", "dispatched", "first", "group_id", "prompt_id",
        "queued", "rows", "selected", "trained", "trained_rows",
    )  # fmt: skip

    def __init__(self, group_id: str, first: Record) -> None:
        event = first.event
        dispatched = isinstance(event, PromptDispatched)
        self.group_id = group_id
        self.prompt_id = event.prompt_id if isinstance(event, PromptDispatched) else None
        self.attempt = event.attempt if isinstance(event, PromptDispatched) else 0
        self.dispatched = first if dispatched else None
        self.first = first
        self.rows: dict[int, RowLife] = {}
        self.committed: Record | None = None
        self.queued: Record | None = None  # its last queued or dequeued
        self.selected: Record | None = None
        self.trained: list[Record] = []
        self.trained_rows: set[int] = set()
        self.cleared: Record | None = None

    @property
    def last(self) -> Record:
        """The latest record of the group, or of the latest attempts of its rows."""
        of_rows = [one for row in self.rows.values() for one in (*records_of(row), row.reward)]
        steps = [self.committed, self.queued, self.selected, self.cleared]
        of_group = [self.first, *steps, *self.trained]
        known = [record for record in (*of_rows, *of_group) if record is not None]
        return max(known, key=lambda record: record.clock)

    @property
    def waiting(self) -> bool:
        """Whether no step has taken it yet."""
        return self.selected is None and not self.trained

    @property
    def unrewarded_rows(self) -> set[int]:
        """The rows whose reward failed, which are not trained on."""
        return {number for number, row in self.rows.items() if row.unrewarded}

    def forget_training(self) -> None:
        """Undo what a resume undoes: the step that took the group."""
        self.queued = self.selected = self.cleared = None
        self.trained, self.trained_rows = [], set()

    def oldest_row(self) -> RowLife | None:
        """Return the row with the oldest first token; None if no row has a version."""
        rows = [row for row in self.rows.values() if row.first_version is not None]
        return min(rows, key=lambda row: row.first_version or 0, default=None)

    def first_token_version(self) -> int | None:
        """Return the lowest version of a first token, as segments or else starts say it."""
        versions = [
            row.first_version if row.token_version is None else row.token_version
            for row in self.rows.values()
        ]
        return min((one for one in versions if one is not None), default=None)

    def version_range(self) -> tuple[int | None, int | None]:
        """Return the lowest and the highest version of any token; None if no row has one."""
        lowest = highest = None
        for row in self.rows.values():
            first, last = row.first_version, row.last_version
            if first is not None and (lowest is None or first < lowest):
                lowest = first
            if last is not None and (highest is None or last > highest):
                highest = last
        return lowest, highest
