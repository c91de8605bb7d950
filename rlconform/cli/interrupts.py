"""``Interrupts``: the first Ctrl-C or SIGTERM ends the work, and no later one loses its result.

SIGINT, SIGTERM ──▶ Interrupts    first: KeyboardInterrupt in the main thread
                                  then, and after ``hold``: nothing more
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import Any

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interrupts:
    """Handles both signals within its block, which the main thread enters."""

    def __init__(self) -> None:
        self._held = False
        self.pressed = False  # whether a signal came
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Interrupts:
        for one in SIGNALS:
            if (before := signal.getsignal(one)) is not signal.SIG_IGN:  # as under nohup
                self._before[one] = before
                signal.signal(one, self._handle)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        stack: TracebackType | None,
    ) -> None:
        for one, handler in self._before.items():
            signal.signal(one, handler)

    def hold(self) -> None:
        """Ignore the signals from now on: the work is done, and its report must be written."""
        self._held = True

    @contextmanager
    def allowed(self) -> Iterator[None]:
        """Raise the first signal in the block, unless one came before: what it does is optional."""
        self._held = self.pressed
        try:
            yield
        finally:
            self._held = True

    def _handle(self, _number: int, _frame: FrameType | None) -> None:
        self.pressed = True
        if not self._held:
            self._held = True
            raise KeyboardInterrupt
