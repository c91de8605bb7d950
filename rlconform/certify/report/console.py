"""Shows a certification in the terminal: progress while checks run, then the results."""

from __future__ import annotations

import textwrap
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from rlconform._live_bar import LiveBar
from rlconform.certify.isolation import events
from rlconform.certify.isolation.events import Event
from rlconform.certify.report.report_folder import PAGE, REPRODUCERS
from rlconform.certify.report.root_causes import RootCause, describe
from rlconform.certify.report.time_left import in_words, seconds_left
from rlconform.certify.report.verdict import Certificate, Verdict, counted_as
from rlconform.certify.results import (
    BROKEN,
    NOT_SELECTED,
    CheckResult,
    Outcome,
    RequirementResult,
    RunRecord,
)
from rlconform.contract import load_requirements

#: Lines of broken checks of one requirement; the report has all of them.
MOST_LINES = 3
#: Seconds between lines of progress, where no bar can be shown.
QUIET_S = 30.0
#: Seconds between two estimates of the time left.
ESTIMATE_S = 1.0
#: Longest text of a cause in the terminal; the report has the whole text.
LONGEST = 300

STYLE: dict[Outcome, str] = {
    Outcome.PASS: "green",
    Outcome.WARN: "yellow",
    Outcome.FAIL: "bold red",
    Outcome.CRASH: "bold red",
    Outcome.TIMEOUT: "bold red",
    Outcome.SUITE_ERROR: "bold magenta",
    Outcome.DEVIATION: "yellow",
    Outcome.NOT_TESTED: "cyan",
    Outcome.NOT_APPLICABLE: "dim",
}


class CertifyProgress(LiveBar):
    """A bar of checks, and a line for each broken check; without a terminal, a line now and then.

    ``earlier`` has the seconds that checks took in an earlier run, for the estimate.
    """

    def __init__(
        self,
        console: Console,
        verbose: bool,
        earlier: Mapping[str, float] = MappingProxyType({}),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(console, "starting the plane")
        self._verbose, self._earlier, self._clock = verbose, earlier, clock
        self._said_at = self._estimated_at = clock()
        self._left, self._broken = "", 0  # the last estimate, and how many checks are broken
        self._introduced: set[type[Event]] = set()  # kinds of events that one line is about
        self._shown: Counter[str] = Counter()  # broken checks by requirement
        self._requirements = load_requirements()

    def hear(self, run: RunRecord, event: Event) -> None:
        """Update the display for an event of the run."""
        match event:
            case events.TargetDescribed() if self._is_first(event):
                self.console.print(
                    f"Certifying [bold]{escape(run.target['name'])}[/] "
                    f"{escape(run.target['version'])}{' ' * bool(run.target['version'])}"
                    f"at level [bold]{run.target['level']}[/]{_level_origin(run)}"
                )
            case events.ChecksCollected() if self._is_first(event):
                self.show("checking", total=len(run.due))
                self._said_at = self._clock()
                self.console.print(f"{len(run.due)} checks planned")
            case events.CheckBegan(check_id):
                self.show(check_id.rpartition("::")[2])
            case events.CheckEnded(result) | events.ChangeFound(result):
                self._broken += result.outcome in BROKEN
                self._print(run, result)
                self._show_progress(run)

    def _is_first(self, event: Event) -> bool:
        """Whether it is the first event of its kind: every test process sends one."""
        first = type(event) not in self._introduced
        self._introduced.add(type(event))
        return first

    def _show_progress(self, run: RunRecord) -> None:
        """Show how many checks are done, how many are broken, and about how long the rest takes."""
        if self._clock() - self._estimated_at >= ESTIMATE_S:  # it looks at all checks
            self._estimated_at = self._clock()
            self._left = in_words(seconds_left(run, self._earlier))
        known = [f"{self._broken} broken" * bool(self._broken), self._left]
        more = ", ".join(filter(None, known))
        self.show(done=len(run.results), more=more)
        if not self.console.is_terminal and self._clock() - self._said_at >= QUIET_S:
            self._said_at = self._clock()
            done = f"{len(run.results)} of {len(run.due)} checks"
            self.console.print(", ".join(filter(None, [done, more])), highlight=False)

    def _print(self, run: RunRecord, result: CheckResult) -> None:
        outcome = result.outcome
        dull = outcome in {Outcome.PASS, Outcome.NOT_TESTED}
        if (dull or run.is_probe(result)) and not self._verbose:
            return  # the table shows what a probe found
        outcome = counted_as(outcome, self._requirements[result.requirement])
        if self._is_repeated(result) and not self._verbose:
            return
        self.console.print(
            f"[{STYLE[outcome]}]{outcome:<7}[/] {result.requirement:<9} "
            f"[dim]{escape(result.id.rpartition('::')[2])}[/]",
            highlight=False,
        )
        if not dull:
            row = self._requirements[result.requirement]
            self.console.print(f"        {escape(row.title)}", highlight=False)

    def _is_repeated(self, result: CheckResult) -> bool:
        """Whether enough lines have shown this requirement break; the report has every check."""
        if result.outcome not in BROKEN:
            return False
        self._shown[result.requirement] += 1
        count = self._shown[result.requirement]
        if count == MOST_LINES + 1:
            self.console.print("        the report has more of this one")
        return count > MOST_LINES


def _level_origin(run: RunRecord) -> str:
    declared = run.target["declared_level"]
    if run.target["level"] == declared:
        return " (what the target declares)"
    return f" (asked for; the target declares {declared})"


def requirement_table(results: list[RequirementResult]) -> Table:
    """Build a table of one row per requirement: its outcome, and the reason unless it passed."""
    table = Table(box=None, pad_edge=False, header_style="bold", expand=False)
    for name in ("Requirement", "Level", "Outcome"):
        table.add_column(name, no_wrap=True)
    table.add_column("What it requires, and what was found", overflow="fold")
    unselected = _not_selected(results)
    for result in results:
        if result in unselected:
            continue
        row = load_requirements()[result.id]
        text = escape(row.title)
        if result.outcome in BROKEN:
            text += f"\n{escape(row.sentence)}"
        if result.outcome is not Outcome.PASS:
            text += f"\n[dim]{escape(result.reason)}[/]"
        if result.may_follow_from:
            text += f"\n[dim]may follow from {', '.join(result.may_follow_from)}[/]"
        outcome = f"[{STYLE[result.outcome]}]{result.outcome}[/]"
        table.add_row(result.id, row.level, outcome, text)
    if unselected:
        table.caption = f"{len(unselected)} more requirements, whose checks were not selected"
        table.caption_justify = "left"
    return table


def _not_selected(results: Sequence[RequirementResult]) -> list[RequirementResult]:
    """Return the requirements whose checks ``-k`` all deselected."""
    return [r for r in results if not r.checks and r.reason.endswith(NOT_SELECTED)]


def print_causes(console: Console, causes: Sequence[RootCause]) -> None:
    """Print root causes, each with the requirements that may be broken because of it."""
    if not causes:
        return
    console.print("\n[bold]What is broken, root causes first[/]")
    for number, cause in enumerate(causes, 1):
        text = textwrap.shorten(describe(cause), LONGEST, placeholder="...")
        console.print(f"{number:>3}. {escape(text)}", highlight=False)
        if len(cause.requirements) > 1:
            console.print(f"     {', '.join(cause.requirements)}", highlight=False)
        if cause.followers:
            console.print(f"     may follow: {', '.join(cause.followers)}", highlight=False)


def print_summary(console: Console, certificate: Certificate) -> None:
    """Print the verdict, counts by outcome, the time split, and what to read first."""
    run, results = certificate.run, certificate.results
    counts = Counter(result.outcome for result in results)
    tally = ", ".join(f"{counts[outcome]} {outcome}" for outcome in Outcome if counts[outcome])
    split = run.time_split
    console.print()
    for note in run.notes:
        console.print(f"[yellow]note:[/] {escape(note)}")
    console.print(f"{len(results)} requirements: {tally}", highlight=False)
    several = "es" * (run.children != 1)
    at_once = f", {run.jobs} at a time" if run.jobs > 1 else ""
    console.print(
        f"{len(run.results)} checks in {split.total:.0f} s: {split.processes:.0f} s to start and "
        f"end processes, {split.plane_calls:.0f} s inside the plane's calls, {split.kit:.0f} s "
        f"({split.kit_share:.0%}) the kit's own; {run.children} test process{several}"
        f"{at_once}",
        highlight=False,
    )
    style = {
        Verdict.CERTIFIED: "bold green",
        Verdict.CONDITIONAL: "bold yellow",
        Verdict.NOT_CERTIFIED: "bold red",
    }[certificate.conclusion.verdict]
    hosts = run.target.get("hosts", [])
    where = f" with processes on {', '.join(map(escape, hosts))}" if hosts else ""
    level = run.target["level"]
    console.print(f"[{style}]{certificate.conclusion.verdict}[/] at level {level}{where}")
    unselected = tuple(f"{result.id} {result.outcome}:" for result in _not_selected(results))
    every = certificate.conclusion.reasons
    reasons = [reason for reason in every if not reason.startswith(unselected)]
    for reason in reasons[:20]:
        console.print(f"  {escape(reason)}")
    if len(reasons) > 20:
        console.print(f"  and {len(reasons) - 20} more")
    if explained := _to_explain(results, certificate.causes):
        console.print(f"rlconform explain {explained} shows what it requires, and why")


def _to_explain(results: list[RequirementResult], causes: Sequence[RootCause]) -> str:
    """Return the requirement to explain first: the first root cause; failures before warnings."""
    outcomes = {result.id: result.outcome for result in results}
    named = [one for cause in causes for one in cause.requirements] + list(outcomes)
    failed = [one for one in named if outcomes[one] in BROKEN]
    return next(iter(failed + [one for one in named if outcomes[one] is Outcome.WARN]), "")


def print_folder(console: Console, run: RunRecord, out: Path) -> None:
    """Print the paths of the report and of the reproducer scripts."""
    console.print(f"report: {escape(str(out / 'report.json'))}", soft_wrap=True)
    console.print(f"page: {escape(str(out / PAGE))}", soft_wrap=True)
    if any(result.reproducer for result in run.results.values()):
        console.print(f"reproducers: {escape(str(out / REPRODUCERS))}", soft_wrap=True)
