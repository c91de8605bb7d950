"""How a reproducer ends: its exit code and its last two lines."""

from __future__ import annotations

import re
from dataclasses import dataclass

#: Exit codes: the plane does what is expected; it does not; nothing could be judged.
NOT_REPRODUCED, REPRODUCED, UNDECIDED = 0, 1, 2

#: A violation's text, ``expected A; got B``, with whatever an outer sentence puts before it.
_BOTH = re.compile(r"^(?P<where>.*?)\bexpected (?P<expected>.*?); got (?P<got>.*)$", re.S)


@dataclass(frozen=True)
class ReproducerVerdict:
    """Exit code, and what the last lines say."""

    code: int
    expected: str
    got: str


def split_evidence(evidence: str) -> tuple[str, str]:
    """A failure's one sentence as what was expected and what came."""
    line = " ".join(evidence.split())
    if both := _BOTH.match(line):
        return f"{both['where']}{both['expected']}", both["got"]
    return "the plane to do what the requirement asks", line
