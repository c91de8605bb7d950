"""Searches texts for a waiver's pattern, in a process that is killed if the search takes too long.

    caller ──pattern, texts (JSON)──▶ child: re.search    waits at most ``SEARCH_S``
           ◀──────found (JSON)──────

A pattern such as ``(a+)+$`` takes longer than anyone waits, and whoever gets a report to verify did
not write its waivers.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence

#: Seconds for all texts of one pattern.
SEARCH_S = 5.0

_CHILD = """
import json, re, sys
pattern, texts = json.load(sys.stdin)
json.dump([bool(re.search(pattern, text)) for text in texts], sys.stdout)
"""


class PatternTooSlow(Exception):
    """A search for the pattern did not end in time."""


def found_in(pattern: str, texts: Sequence[str], seconds: float = SEARCH_S) -> list[bool]:
    """Return whether the regular expression is found in each text.

    Raises:
        PatternTooSlow: It took longer than ``seconds``.
    """
    if pattern.replace(" ", "").isalnum():  # no special characters
        return [pattern in text for text in texts]
    try:
        done = subprocess.run(
            [sys.executable, "-I", "-S", "-c", _CHILD],
            input=json.dumps([pattern, list(texts)]).encode(),
            capture_output=True,
            timeout=seconds,
            check=True,
        )
    except subprocess.TimeoutExpired:
        raise PatternTooSlow(f"no answer within {seconds:g} s") from None
    found: list[bool] = json.loads(done.stdout)
    return found
