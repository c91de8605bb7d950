"""Runs scenarios: one after the other, or several at once, step by step.

    at once:  set_up of all ─▶ first looks of all ─▶ changes ─▶ [guest] ─▶ last looks of all

Scenarios that run at once use the same ids in neighbouring partitions, so a plane that remembers
something by less than the whole key mixes them up. A guest joins or leaves between the changes and
the last looks, once for all scenarios of a batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rlconform.certify.assertions.expect import ContractViolation
from rlconform.certify.interplay.changes import make_change
from rlconform.certify.interplay.looks import judge_claim, look, look_at_everything
from rlconform.certify.interplay.processes import Processes
from rlconform.certify.interplay.row_versions import LABELS, LATER, MORE
from rlconform.certify.interplay.scenario import Change, InterplayScenario
from rlconform.certify.interplay.shared_partition import Difference, SharedPartition
from rlconform.certify.properties.excerpt import FailureReport
from rlconform.certify.threads import BackgroundCall
from rlconform.contract import BatchMeta


@dataclass(frozen=True)
class ScenarioBatch:
    """Scenarios that run together; ``at_once``: step by step, else one after the other."""

    scenarios: tuple[InterplayScenario, ...]
    at_once: bool


class ScenarioRun:
    """One run of a scenario, whose steps are called in the order in which they are written."""

    def __init__(self, scenario: InterplayScenario, processes: Processes, objects: bool) -> None:
        self.scenario = scenario
        self.difference: Difference | None = None
        self.report: FailureReport | None = None  # of the difference, with the calls until then
        self._recording = processes.recording
        self._part = SharedPartition(scenario, processes, objects)
        self._settle_s = processes.timeouts.settle
        self._waiting: BackgroundCall | None = None
        self._changed_at = 0.0  # on the clock that all processes share

    def set_up(self) -> None:
        """Register the partition and put its rows."""
        with self._part.judging("call"):
            self._part.register(self.scenario.registers)
            self._part.put_first(self.scenario.writes)

    def look_first(self) -> None:
        """Look for the first time, or begin to wait."""
        if self.scenario.looks == "wait":
            self._begin_to_wait()
        look(self._part, self.scenario.looks, self.scenario.looker)

    def change_first(self) -> None:
        """Make the first change."""
        self._make(self.scenario.changes[:1], self.scenario.changers[:1])

    def look_again(self) -> None:
        """Look between two changes."""
        if len(self.scenario.changes) > 1 and self.scenario.again:
            look(self._part, self.scenario.looks, self.scenario.looker)

    def change_again(self) -> None:
        """Make the second change."""
        self._make(self.scenario.changes[1:], self.scenario.changers[1:])

    def look_last(self) -> None:
        """Look at everything."""
        if self._waiting is not None:
            self._finish_waiting(self._waiting)
        guest = self.scenario.guest
        self._part.now.late, self._part.now.left = guest == "late", guest not in {"late", "none"}
        look_at_everything(self._part, self.scenario.last, self.scenario.order)

    def _make(self, changes: Sequence[Change], changers: Sequence[int]) -> None:
        for change, by in zip(changes, changers, strict=True):
            make_change(self._part, change, by)
            self._changed_at = self._part.view(by).last_end

    def step(self, name: str) -> None:
        """Run a step unless an earlier one has shown a difference."""
        if self.difference is None:
            try:
                getattr(self, name)()
            except Difference as found:
                self.end(found)

    def end(self, found: Difference) -> None:
        """End the run with a difference."""
        self.difference = found
        self.report = FailureReport.of(found.error, self._recording)

    # -- a claim that waits ----------------------------------------------------------------------

    def _begin_to_wait(self) -> None:
        part, task = self._part, self._part.tasks[0]
        view, rows = part.view(self.scenario.looker), self._rows_awaited()
        fields, timeout_s = self._fields_awaited(), view.timeouts.operation

        def claim() -> tuple[BatchMeta, float]:
            return view.claim(task, fields, rows, blocking=True, timeout_s=timeout_s), view.last_end

        self._waiting = BackgroundCall(claim, "the blocked claim")
        early = self._waiting.returned_within(_ASLEEP_S)
        part.expect("wake", not early, f"the claim to wait for {rows} rows", "an early answer")

    def _finish_waiting(self, waiting: BackgroundCall) -> None:
        """Expect the claim to return soon after the change, with the rows."""
        part, view = self._part, self._part.view(self.scenario.looker)
        due = f"the blocked claim to come back within {self._settle_s:g} s of the put"
        with part.judging("wake"):
            try:
                meta, ended = waiting.result(view.call_s + self._settle_s)
            except TimeoutError as error:
                raise ContractViolation(due, f"TimeoutError: {error}") from error
        late = ended - self._changed_at
        part.expect("wake", late <= self._settle_s, due, f"its answer after {late:.1f} s")
        judge_claim(part, part.tasks[0], self._fields_awaited(), meta)
        due = f"{self._rows_awaited()} rows of the woken claim"
        part.expect("wake", len(meta.sample_ids) == self._rows_awaited(), due, meta.sample_ids)

    def _fields_awaited(self) -> list[str]:
        later = self.scenario.changes[-1] == "put_column"
        return [LABELS, LATER] if later else [LABELS]

    def _rows_awaited(self) -> int:
        return 4 if self.scenario.changes[-1] == "put_column" else 4 + len(MORE)


#: Seconds in which a claim that is to wait reaches the plane.
_ASLEEP_S = 0.02

STEPS = ("set_up", "look_first", "change_first", "look_again", "change_again", "look_last")


def run_batch(batch: ScenarioBatch, processes: Processes, objects: bool) -> Sequence[ScenarioRun]:
    """Run the scenarios of a batch; each run has the difference that it showed, if any."""
    runs = [ScenarioRun(each, processes, objects) for each in batch.scenarios]
    if not batch.at_once:
        for run in runs:
            _run_steps([run], processes)
        return runs
    _run_steps(runs, processes)
    return runs


def _run_steps(runs: Sequence[ScenarioRun], processes: Processes) -> None:
    guests = {run.scenario.guest for run in runs} - {"none"}
    for step in STEPS:
        if step == "look_last" and guests:
            _move_guest(runs, processes, late=guests == {"late"})
        for run in runs:
            run.step(step)


def _move_guest(runs: Sequence[ScenarioRun], processes: Processes, late: bool) -> None:
    """Let the guest attach late, or leave; an error of the plane ends all runs."""
    try:
        (processes.guest_attaches if late else processes.guest_leaves)()
    except Exception as error:
        if not processes.raised_by_plane(error):
            raise
        for run in runs:
            if run.difference is None:
                run.end(Difference("LIFE-06" if late else "LIFE-02", error))


def in_batches(scenarios: Sequence[InterplayScenario], size: int) -> list[ScenarioBatch]:
    """Divide scenarios into batches, so that a batch has guests of one kind.

    Without guests, every other batch runs its scenarios one after the other.
    """
    kinds: dict[str, list[InterplayScenario]] = {}
    for each in scenarios:
        kind = each.guest if each.guest in {"none", "late"} else "leaves"
        kinds.setdefault(kind, []).append(each)
    cut = {
        kind: [tuple(some[n : n + size]) for n in range(0, len(some), size)]
        for kind, some in kinds.items()
    }
    return [
        ScenarioBatch(some, at_once=kind != "none" or number % 2 == 0)
        for kind, batches in cut.items()
        for number, some in enumerate(batches)
    ]
