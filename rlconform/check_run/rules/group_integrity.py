"""The rule ``group_integrity``: a step trains on whole groups, each of the rows of one prompt."""

from __future__ import annotations

from rlconform.check_run.anomaly import Basis
from rlconform.check_run.ledger import Ledger
from rlconform.check_run.lives import GroupLife, RowLife, records_of
from rlconform.check_run.rule import Rule
from rlconform.events.schema import (
    Committed,
    Record,
    Resumed,
    RunStarted,
    Trained,
    WeightsPublished,
)

_BIASED = "The group's baseline is computed from the wrong rows, so all its advantages are biased."


class GroupIntegrity(Rule):
    """A committed group has G finished rows, and one step trains on all that have a reward."""

    name = "group_integrity"
    title = "A step trains on whole groups of finished rows"
    needs = (RunStarted, Committed, Trained)

    def __init__(self, ledger: Ledger) -> None:
        super().__init__(ledger)
        self._partial: dict[str, GroupLife] = {}
        self._step = -1
        self._trained_since_publish = True  # what is published first was not trained in this run
        self._published: Record | None = None

    def on_committed(self, event: Committed, record: Record, group: GroupLife | None) -> None:
        """A group is committed once, with as many rows as declared, all of them finished."""
        name, rows = event.group_id, set(event.rows)
        run = self.ledger.run
        if group is not None and group.committed is not None:
            self.report(
                f"expected {name} to be committed once; got it a second time",
                "The group may be trained on twice, or with the rows of another attempt.",
                group.committed, record, group_ids=(name,),
            )  # fmt: skip
        if len(rows) < len(event.rows):
            self._wrong_rows(name, f"row numbers {event.rows}, one of them twice", record)
        size = run.group_size if run is not None else None
        if size is None:
            self.lacks("group_size in run_started")
        elif len(rows) != size and not (run and run.partial_groups and 0 < len(rows) < size):
            self._wrong_rows(name, f"{len(rows)} rows where groups have {size}", record)
        if group is not None and group.rows:
            self._check_finished(group, rows, record)

    def _check_finished(self, group: GroupLife, rows: set[int], record: Record) -> None:
        for number in sorted(rows):
            row = group.rows.get(number)
            if row is None or not row.finished:
                self.report(
                    f"expected all rows of {group.group_id} to be finished when it is committed; "
                    f"got row {number}, which {_state(row)}",
                    _BIASED, group.dispatched, *records_of(row), record,
                    basis=Basis.ABSENCE, group_ids=(group.group_id,),
                )  # fmt: skip
                return

    def _wrong_rows(self, name: str, got: str, record: Record) -> None:
        self.report(
            f"expected each row of {name} once; got {got}",
            _BIASED, self.ledger.run_record, record, group_ids=(name,),
        )  # fmt: skip

    def on_trained(self, event: Trained, record: Record, group: GroupLife | None) -> None:
        """Only committed rows are trained on, all of a group's in one step."""
        self._trained_since_publish = True
        if event.step > self._step:
            self._end_step()
            self._step = event.step
        if not event.rows:
            self._wrong_rows(event.group_id, "an update without rows", record)
        if group is None:
            return
        committed = group.committed.event if group.committed is not None else None
        if not isinstance(committed, Committed):
            if self.ledger.seen[Committed]:
                self.report(
                    f"expected {event.group_id} to be committed before it is trained on; got it "
                    f"trained on uncommitted",
                    "Rows are read before they are all written.",
                    group.first, record, basis=Basis.ABSENCE, group_ids=(event.group_id,),
                )  # fmt: skip
            return
        foreign = set(event.rows) - set(committed.rows)
        if foreign:
            self.report(
                f"expected only committed rows of {event.group_id} in the update; got rows "
                f"{sorted(foreign)} too",
                _BIASED, group.committed, record, group_ids=(event.group_id,),
            )  # fmt: skip
        unrewarded = group.unrewarded_rows
        if default := unrewarded.intersection(event.rows):
            self.report(
                f"expected no row of {event.group_id} in the update whose reward failed; got rows "
                f"{sorted(default)} too",
                "They are trained on with a default, which biases the baseline of their group.",
                *(group.rows[number].reward for number in sorted(default)), record,
                group_ids=(event.group_id,),
            )  # fmt: skip
        if self.ledger.run is not None and self.ledger.run.split_groups:
            return
        to_train = set(committed.rows) - unrewarded
        if len(group.trained_rows.union(event.rows)) < len(to_train):
            self._partial[event.group_id] = group
        else:
            self._partial.pop(event.group_id, None)
            if group.trained and isinstance(earlier := group.trained[0].event, Trained):
                reported = {name for one in self.anomalies for name in one.group_ids}
                if earlier.step != event.step and event.group_id not in reported:
                    self._report_partial(group, record)

    def _end_step(self) -> None:
        for group in self._partial.values():
            if group.trained:
                self._report_partial(group, group.trained[-1])
        self._partial = {}

    def _report_partial(self, group: GroupLife, record: Record) -> None:
        self.report(
            f"expected all rows of {group.group_id} in one step; got rows "
            f"{sorted(group.trained_rows)} only",
            _BIASED, group.committed, *group.trained[-3:], record,
            basis=Basis.ABSENCE, group_ids=(group.group_id,),
        )  # fmt: skip

    def on_weights_published(
        self, event: WeightsPublished, record: Record, _: GroupLife | None
    ) -> None:
        """A step that makes new weights has trained on something."""
        earlier = self._published.event if self._published is not None else None
        new = isinstance(earlier, WeightsPublished) and event.version > earlier.version
        if new and not self._trained_since_publish:
            self.report(
                f"expected version {event.version} to come from an update; got no rows trained on "
                f"since the version before",
                "A step had no samples: it moved the optimizer's state, or nothing.",
                self._published, record, basis=Basis.ABSENCE,
            )  # fmt: skip
        self._published, self._trained_since_publish = record, not self.ledger.seen[Trained]

    def on_resumed(self, event: Resumed, _: Record, __: GroupLife | None) -> None:
        """Steps after the checkpoint are undone."""
        self._partial, self._step = {}, event.step
        self._published, self._trained_since_publish = None, True

    def at_end(self) -> None:
        """The last step must be whole too."""
        if self.ledger.finished is not None:
            self._end_step()


def _state(row: RowLife | None) -> str:
    if row is None or row.started is None:
        return "was never started"
    if row.ended is None:
        return "is still generated"
    return f"ended as {row.ended.event.__struct_config__.tag}"
