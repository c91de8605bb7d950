"""``ChangeWatch``: notices arguments that a call changed, and results that later calls changed.

Every check watches its calls this way, so that LIFE-09 and GET-13 are judged wherever they break
and not only by the checks that ask for them.
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
    """A change that the contract rules out: the requirement, and ``expected ...; got ...``."""

    requirement: str
    text: str


class ChangeWatch:
    """The arguments and results of a check's calls."""

    def __init__(self) -> None:
        self._changes: list[Change] = []
        self._results: list[tuple[str, Any, Snapshot]] = []
        self._lock = threading.Lock()

    def arguments(self, call: str, describe: Callable[[], str], values: Any) -> Callable[[], None]:
        """Look at the arguments before a call; call what is returned after it.

        ``call`` is the call as text, with its arguments as they are; ``describe`` makes it anew.
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
        """Look at a result when it returns; ``changes`` looks again."""
        if result is not None:
            with self._lock:
                self._results.append((call, result, Snapshot(result)))

    def forget_results(self) -> None:
        """Forget the results so far: the check has changed one itself, or a new example begins."""
        with self._lock:
            self._results.clear()

    def changes(self) -> list[Change]:
        """All changes so far."""
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
