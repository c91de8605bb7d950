"""The rule ``completeness``: the log has no gap, so what it doesn't show did not happen."""

from __future__ import annotations

from rlconform.check_run.rule import Rule
from rlconform.events.log_file import DefectKind, LogDefect, LogFileInfo
from rlconform.events.schema import EventSource, RunFinished, RunStarted

#: Defects that the death of a process explains, if another process reports it.
_OF_THE_DEAD = {DefectKind.TORN_LINE, DefectKind.NOT_CLOSED}


class LogComplete(Rule):
    """Reports no anomalies: what is missing leaves every rule undecided."""

    name = "completeness"
    title = "The log is whole"
    needs = (RunStarted, RunFinished)


def holes(
    defects: list[LogDefect], files: list[LogFileInfo], lost: set[EventSource]
) -> list[LogDefect]:
    """Return the defects that a reported death of their process does not explain."""
    dead = {info.path for info in files if info.source in lost}
    return [d for d in defects if not (d.kind in _OF_THE_DEAD and d.path in dead)]
