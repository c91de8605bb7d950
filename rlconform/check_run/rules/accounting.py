"""The rule ``accounting``: every group that is dispatched ends once, as trained or as dropped.

At each moment: dispatched = trained + dropped + in flight + buffered.
"""

from __future__ import annotations

from rlconform.check_run.anomaly import Basis
from rlconform.check_run.ledger import Ledger
from rlconform.check_run.lives import GroupLife
from rlconform.check_run.rule import Rule
from rlconform.events.schema import (
    CheckpointSaved,
    GroupCounts,
    GroupEvent,
    PromptDispatched,
    Queued,
    Record,
    Resumed,
    RunFinished,
    RunStarted,
    Unlogged,
)

_LOST = "The prompt is never learned from, and nobody notices; many of them starve a step."


class Accounting(Rule):
    """No group is lost, invented or counted twice, and the framework's own counts agree."""

    name = "accounting"
    title = "Every dispatched group ends once, as trained or as dropped"
    needs = (RunStarted, PromptDispatched)
    rests_on = (Unlogged.DROPPED,)

    def __init__(self, ledger: Ledger) -> None:
        super().__init__(ledger)
        self._over_capacity = False
        self._strays: list[Record] = []

    def on_prompt_dispatched(
        self, event: PromptDispatched, record: Record, group: GroupLife | None
    ) -> None:
        """A group must not be open already, and there must be room for it."""
        if group is not None and not self._was_lost(group, record):
            self.report(
                f"expected {event.group_id} to end before it is dispatched again; got a second "
                f"dispatch while the first is open",
                "Two generations share one name: rows of both may be mixed or trained on.",
                group.first, group.last, record, basis=Basis.ABSENCE, group_ids=(event.group_id,),
            )  # fmt: skip
        self._check_capacity(record, 0 if group is not None and group.waiting else 1)

    def _was_lost(self, group: GroupLife, record: Record) -> bool:
        """Whether a process that had the group is dead, so that it may be dispatched again."""
        event = record.event
        tried_again = isinstance(event, PromptDispatched) and event.attempt > group.attempt
        owners = {r.started.source for r in group.rows.values() if r.started is not None}
        return tried_again and bool(({group.first.source} | owners) & self.ledger.lost.keys())

    def _check_capacity(self, record: Record, more: int) -> None:
        run = self.ledger.run
        if run is None or run.capacity is None:
            return
        over = self.ledger.waiting + more > run.capacity
        if over and not self._over_capacity:
            waiting = [g for g in self.ledger.groups.values() if g.waiting]
            self.report(
                f"expected at most {run.capacity} groups that no step has taken; got "
                f"{self.ledger.waiting + more}",
                "More is generated ahead than the bound allows, so samples get staler.",
                self.ledger.run_record, *[g.first for g in waiting[:7]], record,
                basis=Basis.ABSENCE,
            )  # fmt: skip
        self._over_capacity = over

    def on_stray(self, event: GroupEvent, record: Record) -> None:
        """An event about a group that was never dispatched."""
        if self.ledger.closed.get(event.group_id) is None and len(self._strays) < 100:
            self._strays.append(record)

    def on_checkpoint_saved(
        self, event: CheckpointSaved, record: Record, _: GroupLife | None
    ) -> None:
        """Compare the framework's counts."""
        self._compare(event.counts, record)

    def on_resumed(self, event: Resumed, record: Record, _: GroupLife | None) -> None:
        """Compare the framework's counts with those of the checkpoint."""
        mark = self.ledger.checkpoint_of(event.step)
        counts = event.counts
        if mark is None or counts is None or counts.trained is None:
            return
        if counts.trained != mark.totals.trained:
            self.report(
                f"expected {mark.totals.trained} trained groups after the resume from step "
                f"{event.step}; got a count of {counts.trained}",
                "Limits and schedules that depend on the count are wrong from here on.",
                mark.record, record,
            )  # fmt: skip
        self._check_sum(counts, record)

    def on_run_finished(self, event: RunFinished, record: Record, _: GroupLife | None) -> None:
        """Compare the framework's counts."""
        self._compare(event.counts, record)

    def _compare(self, counts: GroupCounts | None, record: Record) -> None:
        if counts is None:
            return
        self._check_sum(counts, record)
        totals = self.ledger.totals
        own = {"trained": totals.trained}
        if not self.ledger.resumes:
            own |= {"dispatched": totals.dispatched, "dropped": totals.dropped.total()}
        for name, expected in own.items():
            got = getattr(counts, name)
            if got is not None and got != expected:
                self.report(
                    f"expected {name} = {expected} from the events; got {got} from the framework",
                    "The framework's counters are wrong, so what they gate is wrong as well.",
                    record, basis=Basis.ABSENCE,
                )  # fmt: skip

    def _check_sum(self, counts: GroupCounts, record: Record) -> None:
        ends = (counts.trained, counts.dropped, counts.in_flight, counts.buffered)
        known = [count for count in ends if count is not None]
        if counts.dispatched is None or len(known) < len(ends):
            return
        if counts.dispatched != sum(known):
            self.report(
                f"expected dispatched = trained + dropped + in flight + buffered; got "
                f"{counts.dispatched} = {' + '.join(map(str, known))}",
                "Groups are lost or counted twice: permits leak, or steps wait for ever.",
                record,
            )

    def at_end(self) -> None:
        """Every group must have ended in a run that was completed."""
        ledger = self.ledger
        if ledger.run is None or ledger.run.group_size is None:
            self.lacks("group_size in run_started")
        if ledger.seen[PromptDispatched]:
            self._report_strays()
        if ledger.finished is None:
            self.lacks("run_finished")
        if (finished := ledger.completed) is not None:
            self._check_steps(finished)
            for group in ledger.groups.values():
                if group.dispatched is not None:
                    self._report_lost(group, finished)

    def _check_steps(self, finished: Record) -> None:
        """A completed run has made the steps that it declared."""
        ledger = self.ledger
        declared = ledger.run.steps if ledger.run is not None else None
        if declared is not None and ledger.step != declared:
            self.report(
                f"expected the run to make {declared} steps before it was completed; got "
                f"{ledger.step}",
                "The groups of the last steps are not learned from, or there is a step too many.",
                ledger.run_record, ledger.stepped, finished, basis=Basis.ABSENCE,
            )  # fmt: skip

    def _report_strays(self) -> None:
        for record in self._strays:
            if isinstance(record.event, GroupEvent):
                name = record.event.group_id
                self.report(
                    f"expected {name} to be dispatched first; got {_tag(record)} of a group that "
                    f"never was",
                    "Something is generated or trained on that the run did not ask for.",
                    record, basis=Basis.ABSENCE, group_ids=(name,),
                )  # fmt: skip

    def _report_lost(self, group: GroupLife, finished: Record) -> None:
        where = self._where(group)
        lost = next(
            (
                self.ledger.lost[row.started.source]
                for row in group.rows.values()
                if row.started is not None and row.started.source in self.ledger.lost
            ),
            None,
        )
        self.report(
            f"expected {group.group_id} to be trained on or dropped before the run was completed; "
            f"got neither: it is {where}",
            _LOST, group.first, group.last, lost, finished,
            basis=Basis.ABSENCE, group_ids=(group.group_id,),
        )  # fmt: skip

    @staticmethod
    def _where(group: GroupLife) -> str:
        if group.trained:
            return f"trained on in part, {len(group.trained_rows)} rows"
        if group.selected is not None:
            return "selected, and not trained on"
        if group.queued is not None:
            waits = isinstance(group.queued.event, Queued)
            where = "in the trajectory queue" if waits else "taken from the trajectory queue"
            return f"{where}, and no step took it"
        if group.committed is not None:
            return "committed, and no step took it"
        return "still in flight"


def _tag(record: Record) -> str:
    return str(record.event.__struct_config__.tag)
