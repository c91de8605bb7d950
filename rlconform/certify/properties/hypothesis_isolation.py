"""Undo what Hypothesis does to its process: random seeds, and files in the user's folder."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
from hypothesis.configuration import set_hypothesis_home_dir


def fresh_entropy() -> None:
    """Seed the process's random generators from the operating system again.

    Hypothesis gives them the same seed for each example. A plane may use random names as keys; rows
    of two examples would then get the same key.
    """
    random.seed()
    np.random.seed()


@contextmanager
def temporary_hypothesis_home() -> Iterator[None]:
    """Let Hypothesis keep its tables of characters in a temporary folder, not the user's folder."""
    with tempfile.TemporaryDirectory() as folder:
        set_hypothesis_home_dir(folder)
        try:
            yield
        finally:
            set_hypothesis_home_dir(None)
