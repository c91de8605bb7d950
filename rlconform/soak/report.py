"""Writes a soak run: ``soak.json`` with all samples, and a page with plots of them."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rlconform import __version__
from rlconform._page import render_template
from rlconform.soak.plot import Plot, plot
from rlconform.soak.run import SoakState

#: Version of ``soak.json``; a key that is added does not change it.
SCHEMA = 1


def as_document(state: SoakState) -> dict[str, Any]:
    """Return the run as plain data."""
    verdict = state.verdict
    assert verdict is not None
    return {
        "schema": SCHEMA,
        "kit": __version__,
        "target": state.target,
        "options": asdict(state.options) | {"config": dict(state.options.config)},
        "seconds": round(state.seconds, 1),
        "answer": verdict.answer.value,
        "reasons": verdict.reasons,
        "delivered": state.ledger.delivered,
        "problems": dict(state.ledger.problems),
        "texts": state.ledger.texts,
        "notes": state.notes,
        "growth": [asdict(one) for one in verdict.processes],
        "calls": {kind: asdict(series) for kind, series in state.rates.series.items()},
        "processes": [asdict(series) for series in state.processes],
    }


def plots(state: SoakState) -> list[Plot]:
    """Return the plots of a run."""
    calls = dict(sorted(state.rates.series.items()))
    mib = {
        one.name: (one.seconds, [held / (1 << 20) for held in one.bytes_held])
        for one in state.processes
    }
    opened = {one.name: (one.seconds, list(map(float, one.descriptors))) for one in state.processes}
    return [
        plot(
            "Calls per second",
            "Of all callers together, by kind of call.",
            "/s",
            {kind: (one.seconds, one.per_second) for kind, one in calls.items()},
        ),
        plot(
            "Slowest calls",
            "The 99th percentile of each interval, by kind of call.",
            "ms",
            {kind: (one.seconds, one.p99_ms) for kind, one in calls.items()},
        ),
        plot(
            "Memory",
            "Anonymous and shared memory of each process; a page shared by n processes counts 1/n.",
            "MiB",
            mib,
        ),
        plot("Open descriptors", "Files, sockets and pipes of each process.", "", opened),
    ]


def render_soak(state: SoakState) -> str:
    """Return the page of a run, with every string of the plane escaped."""
    return render_template(
        "rlconform.soak", "page.html.j2", state=state, verdict=state.verdict, plots=plots(state)
    )


def write_soak(state: SoakState, folder: Path) -> None:
    """Write ``soak.json`` and ``soak.html`` into the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "soak.json").write_text(json.dumps(as_document(state), indent=1), "utf-8")
    (folder / "soak.html").write_text(render_soak(state), "utf-8", "backslashreplace")
