"""Print what the tests on a GPU did, by name: passed, failed, not run and why.

    python ci/gpu_summary.py RESULTS.xml

The file is what ``pytest --junitxml`` writes. A test that was skipped counts as not run: a summary
by counts alone would hide that no test of several GPUs ran on a machine with one.
"""

from __future__ import annotations

import sys
from pathlib import Path
from xml.etree import ElementTree


def outcome(case: ElementTree.Element) -> tuple[str, str]:
    """Return ``passed``, ``FAILED`` or ``not run``, and the first line of the reason."""
    for tag, word in (("failure", "FAILED"), ("error", "FAILED"), ("skipped", "not run")):
        part = case.find(tag)
        if part is not None:
            return word, part.get("message", "").split("\n")[0]
    return "passed", f"{float(case.get('time', '0')):.1f} s"


def summary(results: str) -> str:
    """Return a line per test of a JUnit file's text, and the counts."""
    lines: list[str] = []
    counts = {"passed": 0, "FAILED": 0, "not run": 0}
    for case in ElementTree.fromstring(results).iter("testcase"):
        word, note = outcome(case)
        counts[word] += 1
        file = case.get("classname", "").rpartition(".")[2]
        lines.append(f"{word:8}  {file}::{case.get('name')}  ({note})")
    total = ", ".join(f"{count} {word}" for word, count in counts.items())
    return "\n".join([*sorted(lines), f"GPU tests: {total}"])


if __name__ == "__main__":
    sys.stdout.write(summary(Path(sys.argv[1]).read_text()) + "\n")
