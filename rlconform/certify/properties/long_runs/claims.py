"""``ModelledClaims``: the claims of a long run on one partition, and the status of its tasks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from rlconform.certify.assertions.expect import ContractViolation, expect
from rlconform.certify.properties.long_runs.plan import MOST_WAITS
from rlconform.certify.properties.long_runs.rows import ModelledRows
from rlconform.certify.properties.long_runs.standing_claims import AWAITED, WAITING, StandingClaims
from rlconform.certify.scenarios.consumers import (
    KitWasLate,
    expect_woken,
    start_blocking_claim,
)
from rlconform.certify.scenarios.partition import batch_of
from rlconform.certify.threads import BackgroundCall

#: How often a consumer now and then makes a claim without a pause.
EQUAL = 6
#: Seconds that a claim waits for more rows than come.
SHORT_WAIT_S = 0.02
#: Tasks whose claims wait at the same time.
WAITERS = (1, 1, 1, 2, 3)


@dataclass(frozen=True)
class WaitingClaim:
    """A claim of ``size`` rows that waits in a thread."""

    task: str
    fields: list[str]
    size: int
    call: BackgroundCall


class ModelledClaims(ModelledRows):
    """Claims, blocked ones among them; each public method makes one call, or a few."""

    _standing: StandingClaims | None = None
    #: Task, fields, size and rank of the newest claim, which a consumer repeats.
    _newest: tuple[str, list[str], int, int | None] | None = None
    #: The tasks of the newest status, which a driver asks for again.
    _asked: Sequence[str] = ()

    def stand(self, count: int) -> None:
        """Let so many claims wait until ``end_standing``."""
        self._standing = StandingClaims(self._part, count)

    def end_standing_if_due(self) -> None:
        """Let the claims that wait end before they time out."""
        if self._standing is not None and self._standing.is_due:
            self.end_standing()

    def end_standing(self) -> None:
        """Put what the claims wait for, on new rows and others; each must be claimed once."""
        if self._standing is None:
            return
        known = self._plan.rng.sample([*self._model.rows], len(self._model.rows))
        ids, claimed = self._standing.finish(self._put_awaited, known)
        self._model.claim(WAITING, claimed)
        with self._plan.judged_as("claims") as judged:
            due = f"claims that waited to have the rows {ids}, each once"
            expect(not judged or sorted(claimed) == sorted(ids), due, str(claimed))

    def let_go(self) -> None:
        """Let the claims that wait end, whatever the plane does: the run is over."""
        try:
            self.end_standing()
        except Exception:  # noqa: BLE001 - a plane may raise anything, and its run is judged
            return

    def _put_awaited(self, ids: list[str]) -> None:
        self._part.put_batch(ids, batch_of({AWAITED: torch.arange(len(ids))}, len(ids)))
        self._model.put(ids, [AWAITED], 0)

    def _claimable_fields(self) -> list[str]:
        """Draw known fields: a plane may refuse a claim by others.

        The first two are always declared.
        """
        known = self._known_fields()
        drawn = [name for name in self._plan.some_fields() if name in known]
        return drawn or self._plan.fields[:2]

    def _known_fields(self) -> set[str]:
        """Return the fields that were declared or that a row has."""
        return {*self._plan.declared}.union(*(row.versions for row in self._model.rows.values()))

    def _task(self) -> str:
        return self._plan.rng.choice(self._tasks)

    def claim(self) -> None:
        """Claim some of the rows that are ready; block for rows that are ready now and then."""
        rng = self._plan.rng
        task, names, size, rank = self._newest or (self._task(), self._plan.fields[:2], 1, 0)
        if rng.random() < 0.6 or not self._known_fields().issuperset(names):
            task, names = self._task(), self._claimable_fields()[:2]
            size, rank = rng.choice((1, 2, 3, 8, 50, 2000)), rng.choice(self._plan.ranks)
        self._newest = task, names, size, rank
        for _ in range(rng.choice((1, 1, 1, EQUAL))):
            self._claim(task, names, size, rank)

    def _claim(self, task: str, names: list[str], size: int, rank: int | None) -> None:
        rng, ready = self._plan.rng, self._model.ready(task, names)
        size = min(max(1, len(ready)), size * self._model.group_size)
        blocking = bool(ready) and self._model.group_size == 1 and rng.random() < 0.3
        wait_s = self._part.timeouts.operation
        meta = self._part.claim(
            task, names, size, blocking=blocking, timeout_s=wait_s, dp_rank=rank
        )
        self._judge_claim(task, names, meta, ready, min(size, len(ready)))
        if self._claimed and rng.random() < 0.4:
            self._fetch(self._claimed[-1])

    def wait(self) -> None:
        """Claim more rows than are ready in threads; write and clear others, then let them come.

        Each claim is for a task of its own, so none takes the rows of another.
        """
        if self._plan.waits >= MOST_WAITS:
            return
        self._plan.waits += 1
        rng = self._plan.rng
        tasks = rng.sample(self._tasks, min(rng.choice(WAITERS), len(self._tasks)))
        waiting = [self._start_waiting(task) for task in tasks]
        for each in waiting:
            each.call.finished.wait(SHORT_WAIT_S)
        for _ in range(rng.choice((0, 1, 3))):
            if all(map(self._missing, waiting)):
                self._change_some()
        for each in waiting:
            while self._missing(each):
                self._make_ready(each)
        for each in waiting:
            if self._plan.over:
                return
            self._judge_waiting(each)

    def _judge_waiting(self, waiting: WaitingClaim) -> None:
        """Expect the claim to return; the run ends if it does not and the run judges no claims."""
        ready = self._model.ready(waiting.task, waiting.fields)
        with self._plan.judged_as("claims") as judged:
            try:
                meta = expect_woken(waiting.call, self._part, self._part)
            except KitWasLate:  # on a busy machine the rows came after the claim's time
                return
            except ContractViolation:
                if judged:
                    raise
                self._plan.over = True
                return
        self._judge_claim(waiting.task, waiting.fields, meta, ready, waiting.size)

    def _start_waiting(self, task: str) -> WaitingClaim:
        rng, names = self._plan.rng, self._claimable_fields()[:2]
        size = len(self._model.ready(task, names)) + rng.choice((1, 1, 2, 9))
        rank, timeout_s = rng.choice(self._plan.ranks), self._part.timeouts.operation
        call = start_blocking_claim(self._part, size, timeout_s, rank, names, task)
        return WaitingClaim(task, names, size, call)

    def _missing(self, waiting: WaitingClaim) -> int:
        """How many rows a claim that waits still lacks."""
        return max(0, waiting.size - len(self._model.ready(waiting.task, waiting.fields)))

    def _make_ready(self, waiting: WaitingClaim) -> None:
        """Put the rows that a waiting claim lacks, or what rows lack that exist, field by field."""
        names, missing = waiting.fields, self._missing(waiting)
        lacking = [
            sample_id
            for sample_id, row in self._model.rows.items()
            if waiting.task not in row.claimed_by and not self._model.produced(sample_id, names)
        ]
        if lacking and self._plan.rng.random() < 0.6:
            chosen = self._plan.rng.sample(lacking, min(missing, len(lacking)))
            for name in names:
                ids = [i for i in chosen if not self._model.produced(i, [name])]
                self._write(ids, [name], tagged=False)
        else:
            new = [self._new_id() for _ in range(missing)]
            self._write([i for i in new if i not in self._model.rows], names, tagged=True)

    def _change_some(self) -> None:
        """Stamp, overwrite or clear some rows."""
        ids = self._plan.some(list(self._model.rows))
        if self._plan.rng.random() < 0.2:
            self._part.clear(ids)
            self._model.clear(ids)
        else:
            names = self._plan.rng.choice(([], self._plan.some_fields()))
            self._write(ids, names, tagged=not names)

    def time_out(self) -> None:
        """Block for more rows than are ready."""
        if self._plan.waits >= MOST_WAITS:
            return
        self._plan.waits += 1
        task, names = self._task(), self._claimable_fields()[:1]
        size = len(self._model.ready(task, names)) + 1
        try:
            meta = self._part.claim(task, names, size, blocking=True, timeout_s=SHORT_WAIT_S)
        except TimeoutError:
            return
        due = f"TimeoutError where fewer than {size} are ready"
        raise ContractViolation(due, f"a claim of {meta.sample_ids}", leans_on=("CLAIM-05",))

    def drain(self) -> None:
        """Claim all ready rows for one task or more, and compare the status of these."""
        tasks = self._some_tasks()
        for task in tasks:
            self._drain(task)
        self._judge_status(tasks)

    def _drain(self, task: str) -> None:
        for name in self._plan.fields:
            if ready := self._model.ready(task, [name]):
                rank = self._plan.rng.choice(self._plan.ranks)
                meta = self._part.claim(task, [name], len(ready), dp_rank=rank)
                self._judge_claim(task, [name], meta, ready, len(ready))
                self._model.claim(task, ready)

    def status(self) -> None:
        """Compare the status of one task or two."""
        repeats = self._asked and self._plan.rng.random() < 0.5
        self._judge_status(self._asked if repeats else self._some_tasks())

    def _some_tasks(self) -> list[str]:
        most = min(self._plan.rng.choice((1, 1, 2)), len(self._tasks))
        return self._plan.rng.sample(self._tasks, most)

    def _judge_status(self, tasks: Sequence[str]) -> None:
        due = self._model.consumed(tasks)
        if due is None:
            return
        self._asked = tasks
        got = self._part.consumed(*tasks)
        with self._plan.judged_as("status") as judged:
            expect(got is due or not judged, f"the status of {tasks} to be {due}", str(got))
