"""``BenchRunner``: measures all targets at the same time, turn by turn.

    BenchRunner ── PlaneHandle ──▶ plane process ──▶ plane     one per target; one works, the
         │                                                     others wait
         └── MemcpyTimer: copies the same bytes with every turn

A target that is lost is left out of the rest of the run; one that refuses, of the rest of the
measurement. The others continue.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Literal

from rich.console import Console

import rlconform
from rlconform.bench.aggregate import Aggregator
from rlconform.bench.batches import describe
from rlconform.bench.client_pool import CallRefused
from rlconform.bench.document import BenchDocument, TargetResult
from rlconform.bench.host import MemcpyTimer, describe_host
from rlconform.bench.measurement_requests import Measurement, Request, measurements
from rlconform.bench.plan import BatchShape, Plan
from rlconform.bench.plane_handle import PlaneHandle, PlaneLost
from rlconform.bench.report.progress import BenchProgress


class BenchRunner:
    """One bench run.

    >>> document = BenchRunner(["memory"], [load_shape("tiny")], load_plan(quick=True)).measure()
    """

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
        self._bytes = {shape.name: describe(shape).bytes for shape in shapes}
        self._planes: dict[str, PlaneHandle] = {}
        self._failures: dict[str, str] = {}
        self._notes: list[str] = []
        self._aggregator = Aggregator()

    def measure(self) -> BenchDocument:
        """Measure everything. When interrupted, end all processes and return what was measured.

        Raises:
            TargetError: A target does not exist; nothing was measured.
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
        keys = [key for measurement in self._measurements for key in measurement.keys.values()]
        tables: dict[str, Any] = dict(self._aggregator.tables(self._specs, keys))
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
            memcpy=self._aggregator.memcpy(),
            **tables,
        )

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
        for spec in self._remaining():
            self._planes[spec].dismiss()  # all at the same time: there is nothing left to measure
        for spec in self._remaining():
            self._planes[spec].end()

    # -- one measurement -----------------------------------------------------------------------

    def _run(self, measurement: Measurement) -> None:
        self._progress.measurement(measurement.title)
        active = [s for s in self._remaining() if self._ask_all(s, measurement, "prepare")]
        spent = dict.fromkeys(active, 0.0)
        memcpy = MemcpyTimer(self._bytes[measurement.shape]) if measurement.shape else None
        for number in range(self._plan.warmups + measurement.repetitions):
            counted = number - self._plan.warmups
            for spec in _rotated(self._specs, number):
                self._progress.show(f"{spec} {_turn_title(measurement, counted)}")
                # a plane that is much slower than the others gets fewer turns
                enough = spent.get(spec, 0.0) > self._plan.seconds and counted >= self._plan.enough
                if spec in active and not enough:
                    started = time.monotonic()
                    if not self._turn(spec, measurement, number, memcpy):
                        active.remove(spec)
                    spent[spec] += time.monotonic() - started
                self._progress.advance()
        for spec in self._remaining():
            self._ask_all(spec, measurement, "finish")

    def _turn(
        self, spec: str, measurement: Measurement, number: int, memcpy: MemcpyTimer | None
    ) -> bool:
        """Whether the target stays in the measurement."""
        counted = number >= self._plan.warmups
        if memcpy:
            copies = memcpy.time_copies()
            if counted:
                self._aggregator.copies[measurement.shape].append(copies)
        figures = self._ask(spec, measurement, measurement.turn(number))
        if figures is None:
            return False
        if counted:
            for name, values in figures.items():
                self._aggregator.add(spec, measurement.keys[name], values)
        return True

    def _ask_all(self, spec: str, measurement: Measurement, when: str) -> bool:
        """Whether all ``prepare`` or ``finish`` requests of the measurement succeeded."""
        requests: Sequence[Request] = getattr(measurement, when)
        return all(self._ask(spec, measurement, request) is not None for request in requests)

    def _ask(
        self, spec: str, measurement: Measurement, request: Request
    ) -> dict[str, list[float]] | None:
        """The figures of one request; ``None`` if the target refused it or is lost."""
        try:
            return self._planes[spec].ask(request.method, *request.arguments, calls=request.calls)
        except CallRefused as refused:
            self._aggregator.refuse(spec, measurement.keys.values(), str(refused))
            self._progress.line("refused", spec, measurement.title, str(refused))
        except PlaneLost as lost:
            self._aggregator.refuse(spec, measurement.keys.values(), str(lost))
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
        status: Literal["failed", "measured"] = "failed" if spec in self._failures else "measured"
        reason = self._failures.get(spec, "")
        return TargetResult(spec=spec, status=status, reason=reason, **about)


def _rotated(specs: Sequence[str], number: int) -> list[str]:
    """The targets, rotated each round, so that none always follows the same one."""
    first = number % len(specs)
    return [*specs[first:], *specs[:first]]


def _turn_title(measurement: Measurement, counted: int) -> str:
    turn = "warming up" if counted < 0 else f"{counted + 1}/{measurement.repetitions}"
    return f"{measurement.title} {turn}"
