"""Verdicts on calls as such: right ones that raised, and those that hung."""

from __future__ import annotations

from collections.abc import Iterator

from rlconform.certify.concurrency.anomaly import Anomaly, anomaly
from rlconform.certify.concurrency.history import History


def refused(history: History) -> Iterator[Anomaly]:
    """Right calls that raised; reads are judged by what was there to read.

    Whether a partition that holds rows can be registered again, is the plane's to say.
    """
    for event in history.events:
        if event.error and event.op not in {"get", "register"}:
            said = f"{event.who}'s {event.op} raised {event.error}"
            row = event.ids[0] if event.ids else None
            yield anomaly("refused", row, said, event)


def refused_alone(history: History) -> Iterator[Anomaly]:
    """Right calls that raised, save puts whose rows another call wrote or cleared meanwhile.

    Rows stay right where a plane lets one of two such calls fail, and the contract asks no more.
    """
    for found in refused(history):
        event = found.events[0]
        if event.op != "put" or not history.contended(event):
            yield found


def hung(history: History) -> Iterator[Anomaly]:
    """Calls that did not come back within the target's deadline."""
    for event in history.events:
        if event.end is None:
            said = f"{event.who}'s {event.op} did not come back"
            yield anomaly("hung", event.ids[0] if event.ids else None, said, event)
