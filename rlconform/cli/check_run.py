"""The ``check-run`` command."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated
from xml.etree import ElementTree

import typer

from rlconform.check_run.judge import RunReport, judge_run
from rlconform.check_run.report.console import print_report
from rlconform.check_run.report.html_report import render_run_page
from rlconform.check_run.report.json_report import report_document
from rlconform.check_run.report.junit_report import junit_of_run
from rlconform.check_run.rule import Rule
from rlconform.check_run.rules import ALL_RULES
from rlconform.check_run.verdict import exit_code
from rlconform.cli.console import fail, new_console
from rlconform.contract import did_you_mean

EPILOG = (
    "Examples:\n\n"
    "rlconform check-run run/events\n\n"
    "rlconform check-run run/events --html run.html --junit junit.xml --json report.json\n\n"
    "rlconform check-run run/events --rule staleness --rule exactly_once\n\n"
    "docs/check_run.md says how a framework writes its events, and what each rule means.\n\n"
    "Exit codes: 0 every rule that applies passes, 1 one fails or can't be decided, 2 the files "
    "can't be read, 3 no rule applies."
)


def check_run(
    paths: Annotated[
        list[Path], typer.Argument(metavar="DIR|FILE...", help="Files of events, or their folder.")
    ],
    json_file: Annotated[Path | None, typer.Option("--json", help="Write the report here.")] = None,
    junit: Annotated[Path | None, typer.Option(help="Write JUnit XML here.")] = None,
    html: Annotated[Path | None, typer.Option(help="Write a page here.")] = None,
    rule: Annotated[list[str] | None, typer.Option(help="Judge this rule only; repeat.")] = None,
    allow_indeterminate: Annotated[
        bool, typer.Option(help="Succeed although the log leaves a rule undecided.")
    ] = False,
) -> None:
    """Judge an asynchronous run, of any framework, from the events that it wrote."""
    rules = _rules(rule)
    try:
        report = judge_run(paths, rules)
    except ValueError as error:
        fail(f"check-run: {error}")
    except OSError as error:
        fail(f"check-run: {error.filename}: {error.strerror}; name files that can be read")
    if not report.records:
        reason = f"; {report.holes[0].message}" if report.holes else ""
        fail(f"check-run: no event can be read in {', '.join(map(str, paths))}{reason}")
    _write(report, json_file, junit, html)
    print_report(report, new_console())
    raise typer.Exit(exit_code(report.verdicts, allow_indeterminate))


def _rules(names: list[str] | None) -> tuple[type[Rule], ...]:
    known = {rule.name: rule for rule in ALL_RULES}
    for name in names or ():
        if name not in known:
            suggestion = did_you_mean(name, known)
            fail(f"check-run: no rule {name!r}{suggestion}; there are {', '.join(known)}")
    return tuple(known[name] for name in names) if names else ALL_RULES


def _write(
    report: RunReport, json_file: Path | None, junit: Path | None, html: Path | None
) -> None:
    try:
        if json_file is not None:
            text = json.dumps(report_document(report), indent=2)
            json_file.write_text(text + "\n", "utf-8")
        if junit is not None:
            suite = junit_of_run(report)
            ElementTree.ElementTree(suite).write(junit, "utf-8", xml_declaration=True)
        if html is not None:
            html.write_text(render_run_page(report), "utf-8", errors="backslashreplace")
    except OSError as error:
        fail(f"check-run: {error.filename} can't be written: {error.strerror}")
