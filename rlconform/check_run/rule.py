"""``Rule``: the base class of all rules, and how one is fed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from rlconform.check_run.anomaly import LONGEST_PROOF, Basis, RecordKey, RunAnomaly
from rlconform.check_run.ledger import Ledger
from rlconform.check_run.lives import GroupLife
from rlconform.events.schema import (
    AnyEvent,
    GroupEvent,
    Record,
    RunEvent,
    RunStarted,
    Trained,
    Unlogged,
)

#: Anomalies of a rule that are kept; all are counted.
MOST_ANOMALIES = 100

Handler = Callable[[Any, Record, GroupLife | None], None]

#: By tag, the classes of events.
KINDS: dict[str, type[RunEvent]] = {
    str(kind.__struct_config__.tag): kind for kind in AnyEvent.__args__
}


class Rule:
    """A streaming state machine: it sees each record once, and the ledger as it was before it.

    A rule has a method ``on_<tag>(event, record, group)`` for each type of event that it wants.
    ``group`` is the open group of the event, or None. ``on_stray(event, record)`` gets events of
    groups that aren't open, other than ``prompt_dispatched``.

    Attributes:
        anomalies: The first that were found; ``count`` has how many there are.
        missing: What the log lacks for a decision, with how often and one example.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    #: Types of events without which the rule decides nothing.
    needs: ClassVar[tuple[type[RunEvent], ...]] = (RunStarted, Trained)
    #: Types that a right log may have no event of, but that a run must not leave out.
    rests_on: ClassVar[tuple[Unlogged, ...]] = ()

    def __init_subclass__(cls) -> None:
        wanted = {name.removeprefix("on_") for name in vars(cls) if name.startswith("on_")}
        unknown = wanted - {*KINDS, "stray"}
        if unknown:
            raise TypeError(f"{cls.__name__} handles events that do not exist: {sorted(unknown)}")

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self.anomalies: list[RunAnomaly] = []
        self.count = 0
        self.missing: dict[str, tuple[int, str]] = {}

    def finish(self) -> list[RunAnomaly]:
        """Judge what the end of the log decides, and return the anomalies."""
        for kind in self.needs:
            if not self.ledger.seen[kind]:
                self.lacks(str(kind.__struct_config__.tag))
        for unlogged in self.left_out():
            self.lacks(f"{unlogged.value}, which the run does not write")
        self.at_end()
        return self.anomalies

    def left_out(self) -> list[Unlogged]:
        """Return the types of events that the run declares not to write and the rule rests on."""
        run = self.ledger.run
        return [one for one in self.rests_on if run is not None and one in run.unlogged]

    def at_end(self) -> None:
        """Judge what only the end of the log decides."""

    def not_applicable(self) -> str | None:
        """Return why the rule does not apply to the run, or None if it does."""
        return None

    def handlers(self) -> dict[type[RunEvent], Handler]:
        """Return the methods by type of event."""
        return handlers_of(self)

    def feed(self, record: Record) -> None:
        """Judge one record. The caller feeds the ledger afterwards."""
        event = record.event
        group = None
        if isinstance(event, GroupEvent):
            group = self.ledger.groups.get(event.group_id)
            stray = getattr(self, "on_stray", None)
            if (
                group is None
                and stray is not None
                and type(event) is not KINDS["prompt_dispatched"]
            ):
                stray(event, record)
        handler = self.handlers().get(type(event))
        if handler is not None:
            handler(event, record, group)

    def report(
        self, sentence: str, impact: str, *proof: Record | RecordKey | None,
        basis: Basis = Basis.PRESENCE, group_ids: tuple[str, ...] = (),
    ) -> None:  # fmt: skip
        """Note an anomaly with the records that prove it; None stands for a record not known."""
        self.count += 1
        if len(self.anomalies) < MOST_ANOMALIES:
            keys = [one for one in proof if isinstance(one, RecordKey)]
            records = {id(one): one for one in proof if isinstance(one, Record)}
            ordered: list[Record] = sorted(records.values(), key=lambda record: record.clock)
            whole: list[Record | RecordKey] = [*keys, *ordered]
            shortest = tuple(whole[:LONGEST_PROOF])
            self.anomalies.append(
                RunAnomaly(self.name, sentence, impact, basis, shortest, group_ids)
            )

    def lacks(self, what: str, example: str = "") -> None:
        """Note that the log lacks something that a decision needs."""
        count, first = self.missing.get(what, (0, example))
        self.missing[what] = (count + 1, first)


def handlers_of(owner: object) -> dict[type[RunEvent], Handler]:
    """Return an object's ``on_<tag>`` methods by type of event."""
    methods = {kind: getattr(owner, f"on_{tag}", None) for tag, kind in KINDS.items()}
    return {kind: method for kind, method in methods.items() if method is not None}
