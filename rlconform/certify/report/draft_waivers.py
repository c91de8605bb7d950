"""Drafts a waiver file from the failures of a report; a person adds reason and issue.

``match`` is made of the failures without what differs from run to run: names, numbers, addresses.
An empty reason or issue is refused by ``certify --waivers``, so no draft waives anything unread.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import date

from rlconform.certify.report.document import ReportDocument, RequirementPart
from rlconform.certify.report.pattern_search import PatternTooSlow, found_in
from rlconform.certify.report.root_causes import PARTICULAR
from rlconform.certify.report.waivers import Waiver
from rlconform.certify.results import BROKEN, Outcome

#: Characters of a failure that its pattern covers.
LONGEST_MATCH = 100
#: Characters with a meaning in a regular expression.
_SPECIAL = re.compile(r"[\\.^$*+?{}\[\]|()]")
_HEADER = """\
# Waivers for {name} at level {level}, drafted from the report of {created:%Y-%m-%d}.
# Each needs a reason and the address of an issue before `rlconform certify --waivers` takes it.
"""


@dataclass(frozen=True)
class WaiverDraft:
    """The waivers of a file: those that still apply, and one for each other failure."""

    waivers: list[Waiver]
    added: list[str]  # ids
    dropped: list[str]  # ids of waivers whose requirement no longer fails


def draft_waivers(
    report: ReportDocument,
    present: Sequence[Waiver],
    expires: date,
    reason: str = "",
    issue: str = "",
) -> WaiverDraft:
    """Return a waiver for each broken requirement; ``present`` ones that still apply stay."""
    failing = {
        part.id: part
        for part in report.requirements
        if part.outcome in BROKEN or part.outcome is Outcome.DEVIATION
    }
    kept = {waiver.id: waiver for waiver in (*report.waivers, *present) if waiver.id in failing}
    waivers, added = [], []
    for part in failing.values():
        pattern = pattern_of(part.failures or [part.reason])
        waiver = kept.get(part.id)
        if waiver is None:
            waiver = Waiver(part.id, reason, issue, pattern, expires)
            added.append(part.id)
        elif not _matches(waiver, part):
            waiver = replace(waiver, match=pattern)
        waivers.append(waiver)
    dropped = [waiver.id for waiver in present if waiver.id not in failing]
    return WaiverDraft(waivers, added, dropped)


def _matches(waiver: Waiver, part: RequirementPart) -> bool:
    try:
        return all(found_in(waiver.match, part.failures or [part.reason]))
    except PatternTooSlow:
        return False


def pattern_of(failures: Iterable[str]) -> str:
    """Return a regular expression that is found in each failure, and in the same ones next time."""
    patterns = dict.fromkeys(_pattern(failure) for failure in failures)
    needed = [one for one in patterns if not any(one.startswith(o) for o in patterns if o != one)]
    several = "|".join(needed)
    return f"(?s){several}" if ".*" in several else several


def _pattern(failure: str) -> str:
    """Return what was expected as a pattern: names, numbers and white space may differ."""
    asked = failure.partition("; got ")[0][:LONGEST_MATCH]
    if len(asked) == LONGEST_MATCH:
        asked = asked.rpartition(" ")[0] or asked
    fixed = [_SPECIAL.sub(r"\\\g<0>", part) for part in PARTICULAR.split(asked)]
    return ".*".join(re.sub(r"[^\S ]\s*| \s+", r"\\s+", part) for part in fixed)


def waiver_file(report: ReportDocument, waivers: Iterable[Waiver]) -> str:
    """Return the waivers as TOML, with each requirement's title and failure as a comment."""
    header, parts = report.header, {part.id: part for part in report.requirements}
    lines = [
        _HEADER.format(
            name=_one_line(header.target.name), level=header.level, created=header.created
        )
    ]
    for waiver in waivers:
        part = parts[waiver.id]
        failure = (part.failures or [part.reason])[0]
        lines += [
            "[[waiver]]",
            f"# {part.title}",
            f"# {_one_line(failure)[:160]}",
            f"id = {_toml(waiver.id)}",
            f"reason = {_toml(waiver.reason)}",
            f"issue = {_toml(waiver.issue)}",
            f"match = {_toml(waiver.match)}",
            f"expires = {waiver.expires}",
            "",
        ]
    return "\n".join(lines)


def _one_line(text: str) -> str:
    """Return a text as a comment can hold it: one line without control characters."""
    return "".join(one if one.isprintable() else " " for one in " ".join(text.split()))


def _toml(text: str) -> str:
    """Return a text as a TOML string; JSON's escapes are a part of TOML's, but for DEL."""
    plain = text.encode("utf-8", "replace").decode()
    return json.dumps(plain, ensure_ascii=False).replace("\x7f", "\\u007f")
