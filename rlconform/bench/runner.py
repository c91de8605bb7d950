"""``BenchRunner``: measures all targets in one run, in alternation.

    BenchRunner ── PlaneHandle ──▶ plane process ──▶ plane     one per target; one works, the
         │                                                     others wait
         └── MemcpyTimer: copies the same bytes with every turn

A target that is lost is left out of the rest of the run. A target that refuses a call is left out
of the rest of the measurement. The others continue.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Sequence
from datetime import UTC, datetime

import numpy as np
from rich.console import Console
from rich.markup import escape

import rlconform
from rlconform._live_bar import LiveBar
from rlconform.bench.batches import describe
from rlconform.bench.client_pool import CallRefused, PlaneLost
from rlconform.bench.document import (
    BenchDocument,
    ClaimRate,
    Growth,
    Memcpy,
    OperationTimes,
    Summary,
    TargetResult,
    TargetRow,
    Wake,
)
from rlconform.bench.host import MemcpyTimer, describe_host
from rlconform.bench.measurements import CarryBatch, Figures, Measurement, measurements
from rlconform.bench.plan import BatchShape, Plan
from rlconform.bench.plane_handle import PlaneHandle

_STYLES = {"ready": "green", "failed": "bold red", "refused": "yellow", "measure": "blue"}


class BenchProgress(LiveBar):
    """A progress bar of turns; without a terminal, a line for each measurement."""

    def __init__(self, console: Console) -> None:
        super().__init__(console, "starting the planes")

    def line(self, word: str, *texts: str) -> None:
        """Print one line that stays above the bar: ``word text: text``."""
        text = ": ".join(map(escape, texts))
        self.console.print(f"[{_STYLES[word]}]{word:<8}[/] {text}", highlight=False)

    def measurement(self, title: str) -> None:
        """Show that a measurement begins; the bar names it with each turn."""
        if not self.console.is_terminal:
            self.line("measure", title)


class BenchRunner:
    """One bench run; ``measure`` returns the document of its results."""

    def __init__(
        self,
        specs: Sequence[str],
        shapes: Sequence[BatchShape],
        plan: Plan,
        quick: bool = False,
        progress: BenchProgress | None = None,
    ) -> None:
        self._specs = list(dict.fromkeys(specs))
        self._shapes, self._plan, self._quick = shapes, plan, quick
        self._progress = progress or BenchProgress(Console(quiet=True))
        self._measurements = measurements(shapes, plan)
        self._planes: dict[str, PlaneHandle] = {}
        self._failures: dict[str, str] = {}
        self._notes: list[str] = []
        self._figures: dict[tuple[str, Measurement], list[Figures]] = defaultdict(list)
        self._refusals: dict[tuple[str, Measurement], str] = defaultdict(str)
        self._copies: dict[str, list[tuple[float, float]]] = defaultdict(list)

    def measure(self) -> BenchDocument:
        """Measure everything. When interrupted, end all processes and return what was measured.

        Raise ``TargetError``, without measuring anything, if a target does not exist.
        """
        created, started = datetime.now(UTC), time.monotonic()
        host = describe_host()
        complete = False
        try:
            self._open()
            turns = sum(self._plan.warmups + one.repetitions for one in self._measurements)
            self._progress.show(total=turns * len(self._specs))
            for measurement in self._measurements:
                self._run(measurement)
            complete = True
            self._close()
        except KeyboardInterrupt:
            self._notes.append("interrupted: what had been measured until then is shown")
        finally:
            for plane in self._planes.values():
                plane.kill()
        rows = [
            row
            for measurement in self._measurements
            for spec in self._specs
            for row in self._rows(spec, measurement)
        ]
        return BenchDocument(
            kit=rlconform.__version__,
            created=created.isoformat(timespec="seconds"),
            seconds=round(time.monotonic() - started, 3),
            quick=self._quick,
            complete=complete,
            notes=self._notes,
            host=host,
            targets=[self._target(spec) for spec in self._specs],
            shapes=[describe(shape) for shape in self._shapes],
            memcpy=[
                Memcpy(shape=shape, warm=summarize(warm), fresh=summarize(fresh))
                for shape, copies in self._copies.items()
                for warm, fresh in [list(zip(*copies, strict=True))]
            ],
            operations=[row for row in rows if isinstance(row, OperationTimes)],
            claim_rate=[row for row in rows if isinstance(row, ClaimRate)],
            growth=[row for row in rows if isinstance(row, Growth)],
            wake=[row for row in rows if isinstance(row, Wake)],
        )

    def _rows(self, spec: str, measurement: Measurement) -> list[TargetRow]:
        """Return the document's rows of a target; a refusal replaces all its figures."""
        turns, refused = self._figures[spec, measurement], self._refusals[spec, measurement]
        if not turns and not refused:
            return []  # interrupted before
        names = [] if refused else turns[0]
        found = {name: summarize([figures[name] for figures in turns]) for name in names}
        return measurement.rows(found, target=spec, refused=refused)

    def _open(self) -> None:
        claimers = max(self._plan.claim_rate.consumers)
        for spec in self._specs:
            self._planes[spec] = PlaneHandle(spec, claimers, self._plan.call_seconds)
        for spec, plane in self._planes.items():
            try:
                plane.await_open()
            except PlaneLost as lost:
                self._fail(spec, str(lost))
            else:
                self._progress.line("ready", spec)

    def _close(self) -> None:
        remaining = [self._planes[spec] for spec in self._remaining()]
        for plane in remaining:
            plane.dismiss()  # all at the same time: there is nothing left to measure
        for plane in remaining:
            plane.end()

    # -- one measurement -----------------------------------------------------------------------

    def _run(self, measurement: Measurement) -> None:
        self._progress.measurement(measurement.title)
        active = [
            spec
            for spec in self._remaining()
            if all(
                self._ask(spec, measurement, "prepare", step) is not None
                for step in range(measurement.steps)
            )
        ]
        spent = dict.fromkeys(active, 0.0)
        shape = measurement.shape if isinstance(measurement, CarryBatch) else None
        memcpy = MemcpyTimer(describe(shape).bytes) if shape else None
        for number in range(self._plan.warmups + measurement.repetitions):
            counted = number - self._plan.warmups
            turn = "warming up" if counted < 0 else f"{counted + 1}/{measurement.repetitions}"
            first = number % len(self._specs)  # so that none always follows the same one
            for spec in [*self._specs[first:], *self._specs[:first]]:
                self._progress.show(f"{spec} {measurement.title} {turn}")
                # a plane that is much slower than the others gets fewer turns
                enough = spent.get(spec, 0.0) > self._plan.seconds and counted >= self._plan.enough
                if spec in active and not enough:
                    started = time.monotonic()
                    copies = memcpy.time_copies() if memcpy else None
                    figures = self._ask(spec, measurement, "turn", number)
                    if figures is None:
                        active.remove(spec)
                    elif counted >= 0:
                        self._figures[spec, measurement].append(figures)
                    if shape and copies and counted >= 0:
                        self._copies[shape.name].append(copies)
                    spent[spec] += time.monotonic() - started
                self._progress.advance()
        for spec in self._remaining():
            self._ask(spec, measurement, "finish", 0)

    def _ask(self, spec: str, measurement: Measurement, method: str, number: int) -> Figures | None:
        """Return the figures of one request; ``None`` if the target refused it or is lost."""
        try:
            return self._planes[spec].ask(measurement, method, number)
        except CallRefused as refused:
            self._refusals[spec, measurement] = str(refused)
            self._progress.line("refused", spec, measurement.title, str(refused))
        except PlaneLost as lost:
            self._refusals[spec, measurement] = str(lost)
            self._fail(spec, f"lost at {measurement.title}: {lost}")
        return None

    # -- targets -------------------------------------------------------------------------------

    def _remaining(self) -> list[str]:
        return [spec for spec in self._specs if spec not in self._failures]

    def _fail(self, spec: str, reason: str) -> None:
        self._failures[spec] = reason
        self._planes[spec].kill()
        self._progress.line("failed", spec, reason)

    def _target(self, spec: str) -> TargetResult:
        about = self._planes[spec].about if spec in self._planes else {}
        reason = self._failures.get(spec)
        return TargetResult(
            spec=spec,
            status="measured" if reason is None else "failed",
            reason=reason or "",
            **about,
        )


def summarize(values: Sequence[float]) -> Summary:
    """Return the sample's quantiles, interpolated linearly; ``ValueError`` without values."""
    if not values:
        raise ValueError("nothing was measured")
    low, p25, median, p75, p99, high = np.quantile(values, [0, 0.25, 0.5, 0.75, 0.99, 1]).tolist()
    return Summary(n=len(values), median=median, p25=p25, p75=p75, p99=p99, min=low, max=high)
