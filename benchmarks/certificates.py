"""Packs certificates into ``docs/certificates`` and writes their page, ``docs/certificates.md``.

    rlconform certify ray_store --level durability --out reports/ray_store
    python -m benchmarks.certificates reports/ray_store reports/simple reports/mooncake_cpu

An archive holds the whole folder of a report: the page, the JSON report, JUnit, reproducers, and
the histories of what failed.
"""

from __future__ import annotations

import tarfile
from collections import Counter
from pathlib import Path
from typing import Annotated

import typer

from rlconform.certify.report.document import ReportDocument
from rlconform.certify.report.verify import verify_report
from rlconform.certify.results import Outcome

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "docs" / "certificates"

_HEAD = """# Certificates

Certificates of the planes of several processes at level [durability](durability.md): each
requirement under faults and load as well. An archive holds the whole folder of a report. It can be
checked offline: `rlconform verify` judges each requirement again.

```bash
mkdir ray_store && tar -xf docs/certificates/ray_store.tar.xz -C ray_store
rlconform verify ray_store            # then open ray_store/report.html in a browser
```

| Plane | Version | Date | Verdict | Requirements | Checks | Archive |
|---|---|---|---|---|---|---|
"""

_WEAK = """
## What did not pass

Each with its evidence; the archive has the calls, and the history where several processes took
part.

"""
_PASSED = frozenset({Outcome.PASS, Outcome.NOT_APPLICABLE})
#: Longest evidence that the page shows.
_LONGEST = 400


def pack(report: Path, archive: Path) -> None:
    """Write the folder of a report as an archive, without owners and times of its files."""
    with tarfile.open(archive, "w:xz") as packed:
        for path in sorted(path for path in report.rglob("*") if path.is_file()):
            entry = packed.gettarinfo(path, path.relative_to(report).as_posix())
            entry.uid = entry.gid = 0
            entry.uname = entry.gname = ""
            entry.mtime = 0
            with path.open("rb") as content:
                packed.addfile(entry, content)


def page_of(reports: dict[str, ReportDocument]) -> str:
    """Return the page: a row for each archive by its name, then all that did not pass."""
    return _HEAD + "".join(_row(*one) for one in reports.items()) + _weak(reports)


def _row(name: str, report: ReportDocument) -> str:
    target = report.header.target
    outcomes = Counter(one.outcome for one in report.requirements)
    tally = ", ".join(f"{outcomes[one]} {one}" for one in Outcome if outcomes[one])
    cells = (
        f"`{target.name}`", target.version, f"{report.header.created:%Y-%m-%d}",
        report.verdict.verdict, tally, f"{report.footer.checks_run:,}",
        f"[{name}.tar.xz](certificates/{name}.tar.xz)",
    )  # fmt: skip
    return f"| {' | '.join(cells)} |\n"


def _weak(reports: dict[str, ReportDocument]) -> str:
    lines = [
        f"- `{report.header.target.name}`, {one.id}, {one.outcome}: {_shortened(one.reason)}\n"
        for report in reports.values()
        for one in report.requirements
        if one.outcome not in _PASSED
    ]
    return _WEAK + ("".join(lines) or "Nothing.\n")


def _shortened(text: str) -> str:
    line = " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")
    return line if len(line) <= _LONGEST else f"{line[:_LONGEST]}..."


def main(reports: Annotated[list[Path], typer.Argument(help="Folders of reports.")]) -> None:
    """Verify each report and pack it under its folder's name; write the page of these."""
    FOLDER.mkdir(exist_ok=True)
    documents = {}
    for folder in reports:
        found = verify_report(folder)
        if found.findings or found.document is None:
            raise typer.BadParameter(f"{folder}: {[str(one) for one in found.findings]}")
        pack(folder, FOLDER / f"{folder.name}.tar.xz")
        documents[folder.name] = found.document
    (FOLDER.parent / "certificates.md").write_text(page_of(documents), "utf-8")


if __name__ == "__main__":
    typer.run(main)
