"""Renders ``docs/field.md``: the planes, their root causes, and the matrix. Pure functions."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence

from benchmarks.field.certified import FieldResult
from rlconform.certify.report.document import ReportDocument
from rlconform.certify.report.page.comparison_pages import (
    markdown_cell,
    matrix_markdown,
    names_of,
)
from rlconform.certify.report.root_causes import RootCause, describe
from rlconform.certify.results import Outcome

_HEAD = """# The field

Available planes, each tested unchanged. One command makes this page:

```bash
python -m benchmarks.field --nemo-rl path/to/RL        # all; reports are kept in rlconform-field
python -m benchmarks.field --only transfer_queue_0.1.9 # one of them again, and the page
```

A verdict is that of the plane *with its adapter*, of a version, at a level, on a day. The adapters
without workarounds are in `fixtures/planes`, some hundred lines each: they show what a plane does,
and what an adapter has to add. There are findings with reproducers that run without rlconform for
[TransferQueue](findings/transfer_queue.md), [Mooncake](findings/mooncake.md) and
[NeMo-RL's clients](findings/nemo_rl_data_plane.md).
"""

_CAUSES = """## Root causes

The defects that break MUSTs, those first that explain most; requirements that may follow from one
are in brackets. Each has a reproducer in its plane's folder,
`rlconform-field/NAME/report/reproducers/ID.py`, and one that needs nothing of rlconform,
`ID_plain.py`, where calls of one process show it.
"""
#: Longest evidence that the page shows.
_LONGEST = 220
#: The folders of an installed package's file, which differ from machine to machine.
_FOLDERS = re.compile(r"/[^\s\"']*/(?=site-packages/)")


def field_page(results: Sequence[FieldResult]) -> str:
    """Return the page; ``results`` are in the order of the columns."""
    run = [(result.plane.name, result.report) for result in results if result.report]
    left_out = [result for result in results if result.report is None]
    parts = [_HEAD, "## Planes\n", _planes(results), _not_run(left_out), _CAUSES]
    parts += [_causes(name, report) for name, report in run]
    reports = [report for _, report in run]
    parts += ["## Matrix\n", _legend(), matrix_markdown(reports) if reports else ""]
    return "\n".join(filter(None, parts))


def in_one_line(result: FieldResult) -> str:
    """Return the verdict and the outcomes, or why there is no report."""
    if result.report is None:
        return f"not certified: {result.reason}"
    return f"{result.report.verdict.verdict}; {_tally(result.report)}"


def _planes(results: Sequence[FieldResult]) -> str:
    rows = [
        "| Plane | What is certified | Version | Level | Date | Verdict | Requirements |",
        "|---|---|---|---|---|---|---|",
    ]
    for result in results:
        if (report := result.report) is not None:
            header = report.header
            cells = [
                f"`{result.plane.name}`",
                result.plane.about,
                markdown_cell(header.target.version or header.kit),
                header.level,
                f"{header.created:%Y-%m-%d}",
                str(report.verdict.verdict),
                _tally(report),
            ]
            rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows) + "\n"


def _tally(report: ReportDocument) -> str:
    counts = Counter(part.outcome for part in report.requirements)
    return ", ".join(f"{counts[outcome]} {outcome}" for outcome in Outcome if counts[outcome])


def _not_run(results: Sequence[FieldResult]) -> str:
    if not results:
        return ""
    rows = ["## Not run\n", "| Plane | What it is | Why |", "|---|---|---|"]
    rows += [
        f"| `{result.plane.name}` | {result.plane.about} | {_clipped(result.reason)} |"
        for result in results
    ]
    return "\n".join(rows) + "\n"


def _causes(name: str, report: ReportDocument) -> str:
    musts = {part.id for part in report.requirements if part.level == "MUST"}
    lines = list(_cause_lines(report.causes, musts))
    if not lines:
        return ""
    (full,) = names_of([report])
    return "\n".join([f"### {markdown_cell(full)} (`{name}`)\n", *lines]) + "\n"


def _cause_lines(causes: Sequence[RootCause], musts: set[str]) -> Iterator[str]:
    for cause in causes:
        if musts & {*cause.requirements}:
            followers = f" ({', '.join(cause.followers)})" if cause.followers else ""
            evidence = describe(cause).partition(": ")[2]
            yield f"- **{', '.join(cause.requirements)}**{followers}: {_clipped(evidence)}"


def _legend() -> str:
    return (
        "✓ passes; n/a does not apply; ? was not tested; warn is a broken SHOULD; FAIL, CRASH and\n"
        "TIMEOUT are broken. A TIMEOUT may depend on the machine.\n"
    )


def _clipped(text: str) -> str:
    line = _FOLDERS.sub("", " ".join(text.split()))
    return markdown_cell(line if len(line) <= _LONGEST else f"{line[:_LONGEST]} ...")
