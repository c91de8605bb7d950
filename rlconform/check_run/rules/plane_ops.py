"""The rule ``plane_ops``: what a plane has acknowledged is visible, and what is cleared is gone."""

from __future__ import annotations

from rlconform.check_run.anomaly import Basis
from rlconform.check_run.closed_ids import ClosedIds, Fate
from rlconform.check_run.ledger import Ledger
from rlconform.check_run.lives import GroupLife
from rlconform.check_run.rule import Rule
from rlconform.events.schema import EventSource, Feature, PlaneOp, Record, RunStarted

_SHORT = "Batches are shorter than asked for, or a step waits for rows that are never seen."


class _KeyLife:
    """What is known of one key of a partition."""

    __slots__ = ("claimed", "clearing", "put", "putting")

    def __init__(self) -> None:
        self.put: Record | None = None  # its first acknowledged put
        self.putting = 0  # puts that may yet take effect
        self.clearing: Record | None = None  # the invocation of a clear
        self.claimed: dict[str, Record] = {}  # by task


class PlaneOperations(Rule):
    """Each call of the plane agrees with the calls that ended before it began.

    A call whose outcome is unknown may have had its effect or not; both are allowed.
    """

    name = "plane_ops"
    title = "An acknowledged put is visible, a cleared row is gone, a claim is exclusive"
    needs = (RunStarted, PlaneOp)

    def __init__(self, ledger: Ledger) -> None:
        super().__init__(ledger)
        self._invoked: dict[tuple[EventSource, int], Record] = {}
        self._keys: dict[tuple[str, str], _KeyLife] = {}
        self._cleared = ClosedIds()

    def not_applicable(self) -> str | None:
        """Without a plane there are no calls."""
        run, seen = self.ledger.run, self.ledger.seen
        if seen[PlaneOp] or run is None or Feature.PLANE in run.features:
            return None
        return "the run declares no plane (feature plane)"

    def on_plane_op(self, event: PlaneOp, record: Record, _: GroupLife | None) -> None:
        """Note an invocation, or judge an outcome."""
        call = (record.source, event.op_id)
        if event.status == "invoked":
            self._invoked[call] = record
            self._begin(event, record)
            return
        began = self._invoked.pop(call, None)
        if began is None or not isinstance(began.event, PlaneOp):
            self.lacks("plane_op with status invoked", f"op_id {event.op_id}")
            return
        asked = began.event
        if asked.op == "put":
            self._end_put(event, record, began, asked)
        elif event.status == "ok" and asked.op == "clear":
            self._end_clear(record, began, asked)
        elif event.status == "ok" and asked.op == "get":
            returned = asked.keys if event.keys is None else event.keys
            self._check_visible(asked, returned or (), record, began)
            self._check_gone(asked, returned or (), record, began)
        elif event.status == "ok" and asked.op == "claim":
            self._check_claim(event, record, began)
        elif event.error == "not_found" and asked.op == "get" and self._all_put(asked, began):
            self._check_visible(asked, (), record, began)

    def _begin(self, asked: PlaneOp, record: Record) -> None:
        if asked.op == "put":
            for key in asked.keys or ():
                name = (asked.partition, key)
                life = self._keys.get(name)
                if life is None:
                    life = self._keys[name] = _KeyLife()
                life.putting += 1
        elif asked.op == "clear":
            for key in asked.keys or ():
                life = self._keys.get((asked.partition, key))
                if life is not None:
                    life.clearing = life.clearing or record

    def _end_put(self, event: PlaneOp, record: Record, began: Record, asked: PlaneOp) -> None:
        for key in asked.keys or ():
            life = self._keys.get((asked.partition, key))
            if life is None:
                continue
            if event.status != "unknown":
                life.putting -= 1
            if event.status == "ok":
                cleared = life.clearing
                if cleared is not None and cleared.clock < began.clock and life.put is None:
                    life.clearing = None  # put again after a clear
                life.put = life.put or record

    def _end_clear(self, record: Record, began: Record, asked: PlaneOp) -> None:
        for key in asked.keys or ():
            name = (asked.partition, key)
            life = self._keys.get(name)
            if life is None:
                continue
            if life.putting or life.put is None or life.put.clock > began.clock:
                life.put = None  # a concurrent put may have come after or before
            else:
                del self._keys[name]
                self._cleared.add(f"{asked.partition}/{key}", Fate.CLEARED, record)

    def _all_put(self, asked: PlaneOp, began: Record) -> bool:
        """Whether no key of a get explains by itself that something was not found."""
        lives = [self._keys.get((asked.partition, key)) for key in asked.keys or ()]
        return all(
            life is not None
            and life.put is not None
            and life.clearing is None
            and life.put.clock < began.clock
            for life in lives
        )

    def _check_visible(
        self, asked: PlaneOp, returned: list[str] | tuple[()], record: Record, began: Record
    ) -> None:
        there = set(returned)
        for key in asked.keys or ():
            life = self._keys.get((asked.partition, key))
            if key in there or life is None or life.put is None or life.clearing is not None:
                continue
            if life.put.clock < began.clock:
                self.report(
                    f"expected {key} of {asked.partition} to be readable after its put was "
                    f"acknowledged; got it missing from a get",
                    _SHORT, life.put, began, record, basis=Basis.ABSENCE,
                )  # fmt: skip
                return

    def _check_gone(
        self, asked: PlaneOp, returned: list[str] | tuple[()], record: Record, began: Record
    ) -> None:
        for key in returned:
            if (asked.partition, key) in self._keys:
                continue
            closed = self._cleared.get(f"{asked.partition}/{key}")
            if closed is not None:
                self.report(
                    f"expected {key} of {asked.partition} to be gone after its clear was "
                    f"acknowledged; got it from a get",
                    "Rows of an earlier step are trained on under a name that is used again.",
                    closed.ended_by, began, record, basis=Basis.ABSENCE,
                )  # fmt: skip
                return

    def _check_claim(self, event: PlaneOp, record: Record, began: Record) -> None:
        for key in event.keys or ():
            life = self._keys.get((event.partition, key))
            if life is None:
                continue  # its put is concurrent, or not in the log
            earlier = life.claimed.get(event.task or "")
            if earlier is not None:
                self.report(
                    f"expected {key} of {event.partition} to be claimed once by task {event.task}; "
                    f"got it claimed again",
                    "The row is trained on twice.",
                    life.put, earlier, began, record,
                )  # fmt: skip
                return
            life.claimed[event.task or ""] = record

    def at_end(self) -> None:
        """A call that never ended says nothing, unless its process is dead."""
        for (source, number), record in self._invoked.items():
            if source not in self.ledger.lost and isinstance(record.event, PlaneOp):
                self.report(
                    f"expected {record.event.op} number {number} of {source.role} {source.rank} to "
                    f"end; got no outcome until the end of the log",
                    "The caller hangs, and with it perhaps the run.",
                    record, self.ledger.finished, basis=Basis.ABSENCE,
                )  # fmt: skip
