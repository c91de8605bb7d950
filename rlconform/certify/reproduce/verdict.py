"""The verdict of a reproducer: its exit code, and the last two lines that it prints."""

from __future__ import annotations

import re
from dataclasses import dataclass

#: Exit codes: the plane does what is expected; it does not; the script could not decide.
NOT_REPRODUCED, REPRODUCED, UNDECIDED = 0, 1, 2

#: A violation's text, ``expected A; got B``, possibly after the start of an outer sentence.
_BOTH = re.compile(r"^(?P<where>.*?)\bexpected (?P<expected>.*?); got (?P<got>.*)$", re.S)


@dataclass(frozen=True)
class ReproducerVerdict:
    """The exit code, and the texts of the last two printed lines."""

    code: int
    expected: str
    got: str


def split_evidence(evidence: str) -> tuple[str, str]:
    """Split the evidence of a failure into what was expected and what the plane did."""
    line = " ".join(evidence.split())
    if both := _BOTH.match(line):
        return f"{both['where']}{both['expected']}", both["got"]
    return "the plane to do what the requirement asks", line
