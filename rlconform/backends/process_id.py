"""The process in which a client lives, as planes of several processes tell them apart."""

from __future__ import annotations

import os
from uuid import uuid4

_IMPORTED = uuid4().hex  # a fork has it too, but another pid


def process_id() -> str:
    """This process by a name that no other one ever had."""
    return f"{_IMPORTED}-{os.getpid()}"
