"""Shows what check-run says about the training runs of a certification, rule by rule."""

from __future__ import annotations

from collections import Counter

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from rlconform.certify.judged_runs import JudgedRule
from rlconform.certify.results import RunRecord
from rlconform.check_run.report.words import OUTCOME_WORDS
from rlconform.check_run.verdict import RuleOutcome

#: Outcomes of a rule from worst to best, each with its style in the terminal.
_STYLES = {
    RuleOutcome.FAIL: "bold red",
    RuleOutcome.INDETERMINATE: "yellow",
    RuleOutcome.PASS: "green",
    RuleOutcome.NOT_APPLICABLE: "dim",
}
#: Anomalies of a rule that the terminal shows; the report has more.
SHOWN = 2


def print_runs(console: Console, run: RunRecord) -> None:
    """Print one row per rule over all training runs, then each run that a rule does not pass."""
    judged = run.judged
    if not judged:
        return
    events = sum(one.events for _, one in judged)
    several = "s" * (len(judged) != 1)
    console.print(
        f"\n[bold]Training runs, judged by their events[/] (check-run): {len(judged)} run{several}"
        f", {events:,} events",
        highlight=False,
    )
    console.print(_rule_table(run))
    for result, one in judged:
        wrong = [*one.of(RuleOutcome.FAIL), *one.of(RuleOutcome.INDETERMINATE)]
        if wrong:
            where = f"{result.requirement}, {one.name}: {one.verdict}"
            console.print(f"\n{escape(where)}", highlight=False)
        for rule in wrong:
            _print_rule(console, rule)


def _rule_table(run: RunRecord) -> Table:
    """Build a table of one row per rule: its outcomes, and what it says."""
    by_rule: dict[str, Counter[RuleOutcome]] = {}
    titles: dict[str, str] = {}
    for _, judged in run.judged:
        for rule in judged.rules:
            by_rule.setdefault(rule.rule, Counter())[rule.outcome] += 1
            titles[rule.rule] = rule.title
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("Rule", "Runs"):
        table.add_column(name, no_wrap=True)
    table.add_column("What it says", overflow="fold")
    for name, outcomes in by_rule.items():
        counts = [
            f"[{style}]{outcomes[outcome]} {OUTCOME_WORDS[outcome]}[/]"
            for outcome, style in _STYLES.items()
            if outcomes[outcome]
        ]
        table.add_row(name, ", ".join(counts), escape(titles[name]))
    return table


def _print_rule(console: Console, rule: JudgedRule) -> None:
    style, word = _STYLES[rule.outcome], OUTCOME_WORDS[rule.outcome]
    console.print(f"  [{style}]{word}[/] {rule.rule}: {escape(rule.title)}", highlight=False)
    for anomaly in rule.anomalies[:SHOWN]:
        suspected = "" if anomaly.proven else "suspected: "
        console.print(f"    {suspected}{escape(anomaly.sentence)}", highlight=False)
        console.print(f"    {escape(anomaly.impact)}", style="dim", highlight=False)
    if rule.count > SHOWN:
        console.print(f"    and {rule.count - SHOWN} more", highlight=False)
    if rule.missing:
        console.print(f"    missing: {escape('; '.join(rule.missing))}", highlight=False)
