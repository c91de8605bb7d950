"""What Hypothesis would do to the process in which it runs, and what is done about it."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from hypothesis.configuration import set_hypothesis_home_dir


class Entropy:
    """The state of the process's random generators, as the plane has it.

    Hypothesis starts them anew for each example; a plane that names its keys by them, as it may,
    would give two rows the same one.
    """

    def __init__(self) -> None:
        self._state = random.getstate(), np.random.get_state()

    @contextmanager
    def own(self) -> Iterator[None]:
        """Let the generators go on from where they were at the end of the last time."""
        around = random.getstate(), np.random.get_state()
        self._set(self._state)
        try:
            yield
        finally:
            self._state = random.getstate(), np.random.get_state()
            self._set(around)

    @staticmethod
    def _set(state: tuple[Any, Any]) -> None:
        random.setstate(state[0])
        np.random.set_state(state[1])


@contextmanager
def elsewhere() -> Iterator[None]:
    """Let Hypothesis keep its tables of characters and constants out of the user's folder."""
    with tempfile.TemporaryDirectory() as folder:
        set_hypothesis_home_dir(folder)
        try:
            yield
        finally:
            set_hypothesis_home_dir(None)
