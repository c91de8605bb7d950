"""Undo what Hypothesis does to its process, and what the process does to Hypothesis's examples."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
from hypothesis.configuration import set_hypothesis_home_dir
from hypothesis.internal.cache import LRUCache
from hypothesis.internal.conjecture import providers
from hypothesis.internal.constants_ast import Constants

#: What Hypothesis takes literals of modules from, and what it keeps of them, without any.
_WITHOUT: Mapping[str, Any] = {
    "_get_local_constants": Constants,
    "CONSTANTS_CACHE": LRUCache(1024),
}


def fresh_entropy() -> None:
    """Seed the process's random generators from the operating system again.

    Hypothesis gives them the same seed for each example. A plane may use random names as keys; rows
    of two examples would then get the same key.
    """
    random.seed()
    np.random.seed()


@contextmanager
def no_constants_of_modules() -> Iterator[None]:
    """Let Hypothesis draw no literals that it finds in the source of imported modules.

    It looks for them in all modules that are not installed, in rlconform's own if a checkout is
    certified. The examples of a seed would depend on that, and the search takes a second of each
    process. The names are Hypothesis's own; a version without them draws literals again.
    """
    usual = {name: getattr(providers, name) for name in _WITHOUT if hasattr(providers, name)}
    try:
        for name in usual:
            setattr(providers, name, _WITHOUT[name])
        yield
    finally:
        for name, value in usual.items():
            setattr(providers, name, value)


@contextmanager
def temporary_hypothesis_home() -> Iterator[None]:
    """Let Hypothesis keep its tables of characters in a temporary folder, not the user's folder."""
    with tempfile.TemporaryDirectory() as folder:
        set_hypothesis_home_dir(folder)
        try:
            yield
        finally:
            set_hypothesis_home_dir(None)
