"""``Share``: which of a run's checks one of several test processes at a time runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

#: Files and folders whose checks share what the first of them made: they stay in one process.
_TOGETHER = ("/test_par.py", "/test_par_processes.py", "/interplay/", "/test_long_runs.py")


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
        """Return this share of the checks' ids: every ``count``-th of those that share nothing.

        Checks next to each other take about the same time, so the shares do too. Every process
        collects the same ids in the same order, and so they agree on the shares.
        """
        groups: dict[str, list[str]] = {}
        for each in ids:
            groups.setdefault(_group(each), []).append(each)
        return frozenset(
            each
            for place, group in enumerate(groups.values())
            if place % self.count == self.number
            for each in group
        )


def _group(check_id: str) -> str:
    """Return the name of the checks that stay with this one, or its own id."""
    file = check_id.partition("::")[0]
    if any(part in f"/{file}" for part in _TOGETHER):
        return f"{file} {'scattered' * ('scattered' in check_id)}"
    return check_id
