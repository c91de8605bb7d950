"""``SoakLedger``: what happened to each row of a soak run, from the calls of all callers.

A row's life, which begins again when its id is granted again::

    granted ──put(version)──▶ put ──claim, get(version)──▶ taken ──clear──▶ freed

Calls of different callers may arrive in any order, so a version that was taken may be put later in
the ledger. Whether each version was both put and taken is known at the end. The memory is bounded:
only the last version of each id is kept.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from rlconform.certify.concurrency.operation import Operation

#: Problems that are kept with their text; all are counted.
_MOST_TEXTS = 20


@dataclass
class SoakRow:
    """The last version of an id that was put, and the last one that a claimer took; 0 for none."""

    put: int = 0
    taken: int = 0
    unsure: bool = False  # a call on it failed, so it may or may not have happened


@dataclass
class SoakLedger:
    """Takes calls in and keeps what they mean for the rows."""

    rows: dict[str, SoakRow] = field(default_factory=dict)
    problems: Counter[str] = field(default_factory=Counter)  # by kind
    texts: list[str] = field(default_factory=list)
    delivered: int = 0  # rows that were taken with the right bytes
    overdue: set[tuple[str, float]] = field(default_factory=set)  # calls without an answer in time

    def feed(self, op: Operation, role: str) -> list[str]:
        """Take in a call that has ended; return the ids that may be put again."""
        if op.error and not (role == "reader" and "LookupError" in op.error_bases):
            self._problem("refused", f"{op.who}'s {op.op} raised {op.error}")
            for sample_id in op.ids:
                self._row(sample_id).unsure = True
        match op.op:
            case "put" if op.ok and op.version is not None:
                for sample_id in op.ids:
                    self._row(sample_id).put = op.version
            case "get" if op.ok:
                self._read(op, role)
            case "clear" if op.ok:
                return [str(sample_id) for sample_id in op.ids]
        return []

    def note_overdue(self, op: Operation, seconds: float) -> None:
        """Take in a call that has no answer after ``seconds``, once."""
        if (op.who, op.start) not in self.overdue:
            self.overdue.add((op.who, op.start))
            self._problem("hung", f"{op.who}'s {op.op} has no answer after {seconds:g} s")

    def note_lost(self, text: str) -> None:
        """Take in that a process ended, or that a caller did not."""
        self._problem("stuck or gone", text)

    def close(self, drained: bool) -> None:
        """Judge what is left; ``drained`` says whether the claimers claimed until nothing was."""
        for sample_id, row in self.rows.items() if drained else ():
            if row.put > row.taken and not row.unsure:
                self._problem("lost", f"{sample_id} v{row.put} was put, and nobody got it")
            if row.taken > row.put and not row.unsure:
                self._problem("phantom", f"{sample_id} v{row.taken} was read, and never put")

    @property
    def in_flight(self) -> int:
        """Rows that were put and not taken yet."""
        return sum(row.put > row.taken for row in self.rows.values())

    def _read(self, op: Operation, role: str) -> None:
        for sample_id, values in zip(op.ids, op.values, strict=True):
            versions = set(values.values())
            wrong = next((value for value in versions if isinstance(value, str)), None)
            if wrong is not None:
                self._problem("wrong-row", f"{op.who} asked for {sample_id} and got {wrong}")
            elif len(versions) != 1:
                self._problem("torn", f"{op.who} read {sample_id} as {values}")
            elif role == "claimer":
                self._taken(op, str(sample_id), int(next(iter(versions))))

    def _taken(self, op: Operation, sample_id: str, version: int) -> None:
        row = self._row(sample_id)
        if version <= row.taken:
            kind = "duplicated" if version == row.taken else "stale"
            self._problem(kind, f"{op.who} claimed {sample_id} v{version}, claimed before")
        else:
            self.delivered += 1
        row.taken = max(row.taken, version)

    def _row(self, sample_id: str) -> SoakRow:
        return self.rows.setdefault(sample_id, SoakRow())

    def _problem(self, kind: str, text: str) -> None:
        self.problems[kind] += 1
        if len(self.texts) < _MOST_TEXTS:
            self.texts.append(f"{kind}: {text}")
