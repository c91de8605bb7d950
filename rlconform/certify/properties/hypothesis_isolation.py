"""What Hypothesis would do to the process in which it runs, and what is done about it."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
from hypothesis.configuration import set_hypothesis_home_dir


def fresh_entropy() -> None:
    """Start the process's random generators anew, as they are in a process that just began.

    Hypothesis starts them from the same number for each example, and puts them back after it; a
    plane that names its keys by them, as it may, would give rows of two examples the same one.
    """
    random.seed()
    np.random.seed()


@contextmanager
def in_fresh_process() -> Iterator[None]:
    """Let Hypothesis keep its tables of characters and constants out of the user's folder."""
    with tempfile.TemporaryDirectory() as folder:
        set_hypothesis_home_dir(folder)
        try:
            yield
        finally:
            set_hypothesis_home_dir(None)
