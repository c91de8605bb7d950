"""Measures the event log: the cost of writing, and the speed and memory of ``rlconform check-run``.

    python benchmarks/check_run.py                       a million events
    python benchmarks/check_run.py --events 10000000     as in docs/check_run.md; 3.5 GB of disk

Costs are processor time of one process, which other load on the machine changes least. The log is
that of a right run with groups of eight rows, five events a row, ten files.
"""

from __future__ import annotations

import json
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from rlconform.check_run.closed_ids import ClosedIds, Fate
from rlconform.check_run.judge import judge_run
from rlconform.check_run.verdict import RuleOutcome
from rlconform.events import EventWriter
from rlconform.events.schema import (
    Cleared,
    Committed,
    EventSource,
    Feature,
    LogClosed,
    PromptDispatched,
    Record,
    RewardComputed,
    RolloutFinished,
    RolloutStarted,
    RunEvent,
    RunFinished,
    RunStarted,
    Segment,
    Selected,
    StalenessBound,
    StalenessDefinition,
    Trained,
    WeightsApplied,
    WeightsPublished,
)

ENGINES, GROUP, PROMPTS, ENDED = 8, 8, 64, 1_700_000_000_000_000
_JUDGE = "--judge"


class FastLog:
    """Writes records with a growing clock, without asking for the time."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._clock = ENDED
        self._numbers: dict[EventSource, int] = {}
        self._lines: dict[EventSource, list[bytes]] = {}
        self._encode = msgspec.json.Encoder().encode
        self.count = 0

    def write(self, source: EventSource, event: RunEvent) -> None:
        """Add one event."""
        self._clock += 10
        number = self._numbers.get(source, 0)
        self._numbers[source] = number + 1
        record = Record(
            run="bench", seq=number, clock=self._clock, mono_ns=1000 * self._clock,
            wall_ns=1000 * self._clock, source=source, event=event,
        )  # fmt: skip
        self._lines.setdefault(source, []).append(self._encode(record))
        self.count += 1
        if self.count % 100_000 == 0:
            self.flush()

    def flush(self) -> None:
        """Write what is buffered."""
        for source, lines in self._lines.items():
            path = self._folder / f"events-{source.role}-{source.pid}.jsonl"
            with path.open("ab") as file:
                file.write(b"".join(line + b"\n" for line in lines))
        self._lines = {}

    def close(self) -> None:
        """Close all files."""
        for source in list(self._numbers):
            self.write(source, LogClosed())
        self.flush()


def generate(folder: Path, events: int) -> int:
    """Write the log of a right run, and return the number of its events."""
    log = FastLog(folder)
    trainer, judge = EventSource("trainer", 0, "a", 1), EventSource("reward", 0, "a", 2)
    engines = [EventSource("rollout", number, "a", 10 + number) for number in range(ENGINES)]
    bound = StalenessBound(definition=StalenessDefinition.START, bound=1)
    log.write(
        trainer,
        RunStarted(
            group_size=GROUP, prompts_per_step=PROMPTS, staleness=bound, mixed_versions=False,
            rollout_deadline_s=1e6, step_deadline_s=1e6, features=[Feature.REWARD, Feature.SYNC],
        ),
    )  # fmt: skip
    version = 0
    while log.count < events:
        log.write(trainer, WeightsPublished(version=version, digest=f"w{version}"))
        for number, engine in enumerate(engines):
            applied = WeightsApplied(version=version, engine=f"e{number}", digest=f"w{version}")
            log.write(engine, applied)
        _one_step(log, trainer, judge, engines, version)
        version += 1
    log.write(trainer, RunFinished(reason="completed"))
    log.close()
    return log.count


def _one_step(
    log: FastLog, trainer: EventSource, judge: EventSource, engines: list[EventSource], version: int
) -> None:
    names = [f"train-{version * PROMPTS + number}" for number in range(PROMPTS)]
    for name in names:
        log.write(
            trainer,
            PromptDispatched(group_id=name, prompt_id=name, step=version + 1, version=version),
        )
    for row in range(GROUP):
        for number, name in enumerate(names):
            key = {"group_id": name, "row": row}
            engine = engines[number % ENGINES]
            log.write(
                engine, RolloutStarted(**key, weight_version=version, engine=f"e{number % ENGINES}")
            )
            log.write(engine, Segment(**key, weight_version=version, tokens=700))
            log.write(engine, RolloutFinished(**key, tokens=700, output=f"{name}/{row}"))
            log.write(judge, RewardComputed(**key, reward=1.0, output=f"{name}/{row}"))
    for name in names:
        log.write(trainer, Committed(group_id=name, rows=list(range(GROUP))))
        log.write(trainer, Selected(group_id=name, step=version + 1, version=version))
    for name in names:
        event = Trained(group_id=name, rows=list(range(GROUP)), step=version + 1, version=version)
        log.write(trainer, event)
        log.write(trainer, Cleared(group_id=name))


def measure_writing(folder: Path, events: int = 100_000) -> float:
    """Return microseconds of processor time per event."""
    with EventWriter(folder, run="bench", role="rollout") as writer:
        began = time.process_time()
        for number in range(events):
            writer.write(
                Segment(group_id=f"train-{number >> 3}", row=number & 7, weight_version=3, tokens=9)
            )
        return (time.process_time() - began) / events * 1e6


def measure_closed_ids(count: int = 1_000_000) -> float:
    """Return bytes per closed id."""
    ids = ClosedIds()
    record = Record(
        run="r", seq=1, clock=1, mono_ns=0, wall_ns=0, source=EventSource("t", 0, "a", 1),
        event=LogClosed(),
    )  # fmt: skip
    for number in range(count):
        ids.add(f"train-{number}", Fate.TRAINED, record)
    return ids.nbytes / count


def main(
    events: Annotated[int, typer.Option(help="Events of the log to judge.")] = 1_000_000,
    out: Annotated[Path | None, typer.Option(help="A file for the figures, as JSON.")] = None,
    judge: Annotated[Path | None, typer.Option(help="Only judge this folder.")] = None,
) -> None:
    """Measure, and print."""
    if judge is not None:
        began = time.process_time()
        report = judge_run([judge])
        seconds = time.process_time() - began
        assert all(v.outcome is not RuleOutcome.FAIL for v in report.verdicts)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(json.dumps({"events": report.records, "seconds": seconds, "peak_mib": peak}))
        return
    folder = Path(tempfile.mkdtemp(prefix="rlconform-bench-"))
    try:
        writing = measure_writing(folder / "written")
        (folder / "run").mkdir()
        generate(folder / "run", events)
        size = sum(path.stat().st_size for path in (folder / "run").iterdir())
        ran = subprocess.run(
            [sys.executable, __file__, _JUDGE, str(folder / "run")],
            capture_output=True, text=True, check=True,
        )  # fmt: skip
    finally:
        shutil.rmtree(folder)
    judged = json.loads(ran.stdout)
    figures = {
        "write_us_per_event": round(writing, 2),
        "bytes_per_event": round(size / judged["events"]),
        "judged_events": judged["events"],
        "events_per_second": round(judged["events"] / judged["seconds"]),
        "peak_mib": round(judged["peak_mib"]),
        "bytes_per_closed_id": round(measure_closed_ids(), 1),
    }
    for name, value in figures.items():
        print(f"{name:20} {value}")
    if out is not None:
        out.write_text(json.dumps(figures, indent=2) + "\n", "utf-8")


if __name__ == "__main__":
    typer.run(main)
