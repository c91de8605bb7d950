"""The live view of a soak run in a terminal; nothing is shown elsewhere."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from rlconform.soak.run import SoakState


class Dashboard:
    """Shows the state of a run while it lasts."""

    def __init__(self, console: Console) -> None:
        self._live = Live(console=console, transient=True, auto_refresh=False)
        self._shows = console.is_terminal

    def __enter__(self) -> Self:
        if self._shows:
            self._live.start()
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: object, _trace: TracebackType | None
    ) -> None:
        if self._shows:
            self._live.stop()

    def show(self, state: SoakState) -> None:
        """Show the state, at most once per turn."""
        if self._shows:
            self._live.update(view_of(state), refresh=True)


def view_of(state: SoakState) -> Group:
    """Return what the dashboard shows of a state."""
    ledger, due = state.ledger, 60 * state.options.minutes
    head = Text(f"{state.target['name']}  {state.seconds:.0f} of {due:.0f} s  ")
    head.append(f"{ledger.delivered:,} rows delivered, {ledger.in_flight:,} in the plane  ")
    bad = ", ".join(f"{count} {kind}" for kind, count in ledger.problems.most_common())
    head.append(bad or "nothing lost", style="bold red" if bad else "green")
    return Group(head, _calls(state), _processes(state))


def _calls(state: SoakState) -> Table:
    table = Table("call", "per second", "median", "p99", "in all", box=None, pad_edge=False)
    for kind, series in sorted(state.rates.series.items()):
        if series.seconds:
            table.add_row(
                kind,
                f"{series.per_second[-1]:,.0f}",
                f"{series.median_ms[-1]:.1f} ms",
                f"{series.p99_ms[-1]:.1f} ms",
                f"{series.total:,}",
            )
    return table


def _processes(state: SoakState) -> Table:
    table = Table("process", "pid", "memory", "descriptors", box=None, pad_edge=False)
    for series in state.processes:
        if series.seconds:
            memory = f"{series.bytes_held[-1] / (1 << 20):,.0f} MiB"
            table.add_row(series.name, str(series.pid), memory, str(series.descriptors[-1]))
    return table
