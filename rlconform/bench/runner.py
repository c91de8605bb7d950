"""``BenchRunner``: all targets at once, one turn after another, until every contest is over.

    Run ── Link ──▶ station ──▶ plane        as many as there are targets; one acts, the others wait
     └── Copier: the same bytes by memcpy, beside every turn

A target that is lost is out of the run, one that refuses is out of the contest; the others go on.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import rlconform
from rlconform.bench.aggregate import Aggregator
from rlconform.bench.batches import describe
from rlconform.bench.client_pool import Refused
from rlconform.bench.document import BenchDocument, TargetResult
from rlconform.bench.host import MemcpyTimer, describe_host
from rlconform.bench.measurements import Measurement, Request, measurements
from rlconform.bench.plan import BatchShape, Plan
from rlconform.bench.plane_handle import PlaneHandle, PlaneLost

#: Hears of every event; ``rlconform.bench.report.progress`` says which there are.
Listener = Callable[[Mapping[str, Any]], None]


class BenchRunner:
    """One bench run.

    >>> run = Run(["memory"], [load_shape("tiny")], load_plan(quick=True))
    >>> document = run.measure()
    """

    def __init__(
        self,
        specs: Sequence[str],
        shapes: Sequence[BatchShape],
        plan: Plan,
        quick: bool = False,
        listener: Listener | None = None,
    ) -> None:
        self._specs = list(dict.fromkeys(specs))
        self._shapes, self._plan, self._quick = shapes, plan, quick
        self._hear = listener or (lambda _event: None)
        self._links: dict[str, PlaneHandle] = {}
        self._failures: dict[str, str] = {}
        self._notes: list[str] = []
        self._tally = Aggregator()

    def measure(self) -> BenchDocument:
        """Measure everything. Interrupted, it ends what it started and gives what it has.

        Raises:
            TargetError: A target does not exist; nothing was measured.
        """
        created, started = datetime.now(UTC), time.monotonic()
        host = describe_host()
        complete = False
        try:
            self._open()
            for contest in self._announced():
                self._play(contest)
            complete = True
            self._close()
        except KeyboardInterrupt:
            self._notes.append("interrupted: what had been measured until then is shown")
        finally:
            for link in self._links.values():
                link.kill()
        return BenchDocument(
            kit=rlconform.__version__,
            created=created.isoformat(timespec="seconds"),
            seconds=round(time.monotonic() - started, 3),
            quick=self._quick,
            complete=complete,
            notes=self._notes,
            host=host,
            targets=[self._target(spec) for spec in self._specs],
            **self._tally.tables(self._specs, self._shapes, self._plan),
        )

    def _open(self) -> None:
        claimers = max(self._plan.claim_rate.consumers)
        for spec in self._specs:
            self._links[spec] = PlaneHandle(spec, claimers, self._plan.call_seconds)
        for spec, link in self._links.items():
            try:
                link.await_open()
            except PlaneLost as lost:
                self._fail(spec, str(lost))
            else:
                self._hear({"event": "target", "target": spec, "status": "ready", "reason": ""})

    def _announced(self) -> list[Measurement]:
        planned = measurements(self._shapes, self._plan)
        rounds = sum(self._plan.warmups + contest.repetitions for contest in planned)
        self._hear({"event": "plan", "turns": rounds * len(self._specs)})
        return planned

    def _close(self) -> None:
        for spec in self._in_the_run():
            self._links[spec].dismiss()  # all at the same time: there is nothing left to measure
        for spec in self._in_the_run():
            self._links[spec].end()

    # -- one contest ---------------------------------------------------------------------------

    def _play(self, contest: Measurement) -> None:
        self._hear({"event": "contest", "what": contest.title})
        playing = [spec for spec in self._in_the_run() if self._ask_all(spec, contest, "prepare")]
        spent = dict.fromkeys(playing, 0.0)
        copier = self._copier(contest)
        for number in range(self._plan.warmups + contest.repetitions):
            counted = number - self._plan.warmups
            for spec in _rotated(self._specs, number):
                self._hear({"event": "turn", "target": spec, "what": _what(contest, counted)})
                # a plane that is much slower than the others has had enough turns after fewer
                tired = spent.get(spec, 0.0) > self._plan.seconds and counted >= self._plan.enough
                if spec in playing and not tired:
                    started = time.monotonic()
                    if not self._turn(spec, contest, number, copier):
                        playing.remove(spec)
                    spent[spec] += time.monotonic() - started
                self._hear({"event": "turn_done"})
        for spec in self._in_the_run():
            self._ask_all(spec, contest, "finish")

    def _turn(
        self, spec: str, contest: Measurement, number: int, copier: MemcpyTimer | None
    ) -> bool:
        """Whether the target stays in the contest."""
        counted = number >= self._plan.warmups
        if copier:
            copy = copier.time_copies()
            if counted:
                self._tally.copies[contest.shape].append(copy)
        figures = self._ask(spec, contest, contest.turn(number))
        if figures is None:
            return False
        if counted:
            for name, values in figures.items():
                self._tally.add(spec, contest.keys[name], values)
        return True

    def _ask_all(self, spec: str, contest: Measurement, when: str) -> bool:
        """Whether all of the contest's ``prepare`` or ``finish`` came about."""
        requests: Sequence[Request] = getattr(contest, when)
        return all(self._ask(spec, contest, request) is not None for request in requests)

    def _ask(
        self, spec: str, contest: Measurement, request: Request
    ) -> dict[str, list[float]] | None:
        """The figures of one request; ``None`` if the target refused it or is lost."""
        link = self._links[spec]
        try:
            return link.ask(request.method, *request.arguments, calls=request.calls)
        except Refused as refused:
            reason = str(refused)
            self._tally.refuse(spec, contest.keys.values(), reason)
            self._hear(
                {"event": "refused", "target": spec, "what": contest.title, "reason": reason}
            )
        except PlaneLost as lost:
            self._tally.refuse(spec, contest.keys.values(), str(lost))
            self._fail(spec, f"lost at {contest.title}: {lost}")
        return None

    def _copier(self, contest: Measurement) -> MemcpyTimer | None:
        sizes = {shape.name: describe(shape).bytes for shape in self._shapes}
        return MemcpyTimer(sizes[contest.shape]) if contest.shape else None

    # -- targets -------------------------------------------------------------------------------

    def _in_the_run(self) -> list[str]:
        return [spec for spec in self._specs if spec not in self._failures]

    def _fail(self, spec: str, reason: str) -> None:
        self._failures[spec] = reason
        self._links[spec].kill()
        self._hear({"event": "target", "target": spec, "status": "failed", "reason": reason})

    def _target(self, spec: str) -> TargetResult:
        about = self._links[spec].about if spec in self._links else {}
        return TargetResult(
            spec=spec,
            name=about.get("name", ""),
            vendor=about.get("vendor", ""),
            version=about.get("version", ""),
            processes=about.get("processes", False),
            status="failed" if spec in self._failures else "measured",
            reason=self._failures.get(spec, ""),
        )


def _rotated(specs: Sequence[str], number: int) -> list[str]:
    """The targets, another one first each round: none always follows the same neighbour's noise."""
    first = number % len(specs)
    return [*specs[first:], *specs[:first]]


def _what(contest: Measurement, counted: int) -> str:
    """Which turn it is, in words."""
    return f"{contest.title} " + (
        "warming up" if counted < 0 else f"{counted + 1}/{contest.repetitions}"
    )
