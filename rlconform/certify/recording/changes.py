"""``ChangeWatch``: notices arguments that a call changed, and results that later calls changed.

The calls of every check are watched, so that a violation of LIFE-09 (arguments) or GET-13 (results)
is found in any check.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from rlconform.certify.recording.shorten import brief
from rlconform.certify.recording.snapshot import Snapshot

#: The requirements that a change of an argument and of a result breaks.
ARGUMENTS, RESULTS = "LIFE-09", "GET-13"


@dataclass(frozen=True)
class Change:
    """A forbidden change: the violated requirement, and a text ``expected ...; got ...``."""

    requirement: str
    text: str


class ChangeWatch:
    """Watches the arguments and results of a check's calls."""

    def __init__(self) -> None:
        self._changes: list[Change] = []
        self._results: list[tuple[str, Any, Snapshot]] = []
        self._lock = threading.Lock()

    def arguments(self, call: str, describe: Callable[[], str], values: Any) -> Callable[[], None]:
        """Take a snapshot of a call's arguments; return a function that compares them after it.

        ``call`` is the call as text; ``describe`` builds the text again, with changed arguments.
        """
        before = Snapshot(values)

        def compare() -> None:
            if not before.changed():
                return
            now = describe()
            got = now if now != call else f"{call} with other contents"
            self._note(ARGUMENTS, f"expected the arguments of {call} unchanged by it; got {got}")

        return compare

    def result(self, call: str, result: Any) -> None:
        """Take a snapshot of a result when it returns; ``changes`` compares the result with it."""
        if result is not None:
            with self._lock:
                self._results.append((call, result, Snapshot(result)))

    def forget_results(self) -> None:
        """Forget the results so far: the check itself changed one, or a new example begins."""
        with self._lock:
            self._results.clear()

    def changes(self) -> list[Change]:
        """Compare the results; return all changes so far."""
        with self._lock:
            results, self._results = self._results, []
        for call, result, before in results:
            if before.changed():
                what = f"expected the result of {call} unchanged by later calls"
                self._note(RESULTS, f"{what}; got {brief(result)}")
        return self._changes

    def _note(self, requirement: str, text: str) -> None:
        with self._lock:
            self._changes.append(Change(requirement, text))
