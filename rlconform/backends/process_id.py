"""An identifier of the current process, unique across hosts and over time."""

from __future__ import annotations

import os
from uuid import uuid4

_IMPORTED = uuid4().hex  # a fork has it too, but another pid


def process_id() -> str:
    """Return this process's identifier, which no other process ever has."""
    return f"{_IMPORTED}-{os.getpid()}"
