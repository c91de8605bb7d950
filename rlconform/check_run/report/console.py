"""Prints a report: the verdict, one line per rule, and each anomaly with its proof."""

from __future__ import annotations

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from rlconform.check_run.judge import RunReport
from rlconform.check_run.report.words import (
    OUTCOME_WORDS,
    fates_in_words,
    proof_in_words,
    verdict_in_words,
)
from rlconform.check_run.verdict import RuleOutcome, RuleVerdict

_STYLES = {
    RuleOutcome.PASS: "green",
    RuleOutcome.FAIL: "bold red",
    RuleOutcome.INDETERMINATE: "yellow",
    RuleOutcome.NOT_APPLICABLE: "dim",
}
#: Anomalies of a rule that are shown in full.
SHOWN = 3


def print_report(report: RunReport, console: Console) -> None:
    """Print the whole report."""
    console.print(
        f"Run {escape(report.run)}: {report.records:,} events of {len(report.files)} processes"
    )
    console.print(escape(fates_in_words(report)), highlight=False)
    console.print(_table(report))
    for verdict in report.verdicts:
        _print_anomalies(verdict, console)
    failed = any(verdict.outcome is RuleOutcome.FAIL for verdict in report.verdicts)
    style = "bold red" if failed else "bold"
    console.print(f"\n[{style}]{escape(verdict_in_words(report))}.[/]", highlight=False)


def _table(report: RunReport) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("Rule", no_wrap=True)
    table.add_column("Verdict", no_wrap=True)
    table.add_column("What it says, or what is missing", overflow="fold")
    for verdict in report.verdicts:
        style = _STYLES[verdict.outcome]
        table.add_row(
            verdict.rule,
            f"[{style}]{OUTCOME_WORDS[verdict.outcome]}[/]",
            escape(_explanation(verdict)),
        )
    return table


def _explanation(verdict: RuleVerdict) -> str:
    if verdict.outcome is RuleOutcome.FAIL:
        return f"{verdict.title}: not so in {verdict.count} cases"
    if verdict.outcome is RuleOutcome.INDETERMINATE:
        suspected = f"{verdict.suspected} suspected; " if verdict.suspected else ""
        return f"{suspected}missing: {'; '.join(verdict.missing)}"
    return verdict.reason or verdict.title


def _print_anomalies(verdict: RuleVerdict, console: Console) -> None:
    proven = len(verdict.anomalies) - verdict.suspected
    for number, anomaly in enumerate(verdict.anomalies[:SHOWN]):
        word = "[bold red]FAIL[/]" if number < proven else "[yellow]suspected[/]"
        console.print(
            f"\n{word} [bold]{verdict.rule}[/]  {escape(anomaly.sentence)}", highlight=False
        )
        console.print(f"  {escape(anomaly.impact)}", style="dim", highlight=False)
        for line in proof_in_words(anomaly.proof):
            console.print(f"    {escape(line)}", highlight=False, soft_wrap=True)
    if verdict.count > SHOWN:
        console.print(f"  … and {verdict.count - SHOWN} more of {verdict.rule}", highlight=False)
