"""``Share``: which of a run's checks one of several test processes at a time runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

#: Files, also all of a folder, whose checks share what the first of them made: those of a file stay
#: in one process. The number is a check's weight: how many ordinary checks take as long.
_TOGETHER = {
    "/test_par.py": 2,
    "/test_par_processes.py": 2,
    "/functional/interplay/": 10,
    "/interplay/": 4,
    "/test_long_runs.py": 48,
}
#: Files of a few checks that take long, of which one takes longest: they are dealt out as one.
_LONG = {"/test_claim_long_waits.py": 50}


@dataclass(frozen=True)
class Share:
    """The share ``number``, from 0, of ``count`` shares; its text is the option of pytest."""

    number: int = 0
    count: int = 1

    def __str__(self) -> str:
        return f"{self.number}/{self.count}"

    @classmethod
    def parse(cls, text: str) -> Share:
        """Return the share that ``str`` wrote."""
        number, count = map(int, text.split("/"))
        return cls(number, count)

    def of(self, ids: Sequence[str]) -> frozenset[str]:
        """Return this share of the checks' ids.

        Checks that stay together are dealt out first, the longest to the share with the least to
        do. The others are dealt out in turn, as checks next to each other take about the same time;
        a share with less room gets fewer of each file. Every process collects the same ids in the
        same order, and so they agree on the shares.
        """
        groups: dict[str, list[str]] = {}
        weights: Counter[str] = Counter()
        alone: list[str] = []
        for each in ids:
            name, weight = _group(each)
            (groups.setdefault(name, []) if name else alone).append(each)
            weights[name] += weight
        room = [sum(weights.values()) / self.count] * self.count
        share: set[str] = set()
        for name in sorted(groups, key=lambda group: -weights[group]):
            most = room.index(max(room))
            room[most] -= weights[name]
            share.update(groups[name] if most == self.number else ())
        dealt = [0] * self.count
        for each in alone:
            fill = [(n + 1) / max(most, 1) for n, most in zip(dealt, room, strict=True)]
            least = fill.index(min(fill))
            dealt[least] += 1
            share.update({each} if least == self.number else ())
        return frozenset(share)


def _group(check_id: str) -> tuple[str, int]:
    """Return the name of the checks that stay with this one, "" if none do, and its weight."""
    file = check_id.partition("::")[0]
    for part, weight in (_TOGETHER | _LONG).items():
        if part in f"/{file}":
            return f"{file} {'scattered' * ('scattered' in check_id)}", weight
    return "", 1
