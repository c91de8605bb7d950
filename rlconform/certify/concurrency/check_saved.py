"""Check a saved history: ``python -m rlconform.certify.concurrency.check_saved FILE CHECKER...``.

A race may not show its defect a second time. But its history file contains the calls, and checking
them gives the same result each time.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from rlconform._files import read_text
from rlconform.certify.concurrency.explain import HistoryViolation, check_history
from rlconform.certify.concurrency.history import History
from rlconform.certify.concurrency.named_checkers import CHECKERS
from rlconform.certify.concurrency.operation import from_jsonl
from rlconform.contract import ConfigError


def main(arguments: Sequence[str]) -> int:
    """Print what the named checkers find in the file; return 1 if they find anything."""
    if len(arguments) < 2 or not set(arguments[1:]) <= CHECKERS.keys():
        print(f"usage: FILE CHECKER...; checkers: {', '.join(CHECKERS)}", file=sys.stderr)  # noqa: T201
        return 2
    try:
        text = read_text(Path(arguments[0]), "name the file of a history")
        history = History(from_jsonl(text))
    except ConfigError as error:
        print(error, file=sys.stderr)  # noqa: T201
        return 2
    try:
        check_history(history, "", *(CHECKERS[name] for name in arguments[1:]))
    except HistoryViolation as violation:
        print(violation, *violation.lines, sep="\n")  # noqa: T201
        return 1
    print("an order of the calls explains all results")  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
